//! The metadata accessors: what they accept, and what their errors say. And the writer's refusals.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use infr_gguf::{Gguf, GgufError, TensorType, Value, Writer};
use infr_tensor::DType;

fn open(set: impl FnOnce(&mut Writer)) -> Gguf {
    let mut writer = Writer::new();
    set(&mut writer);
    Gguf::from_bytes("f.gguf", writer.begin(Vec::new()).unwrap().finish().unwrap()).unwrap()
}

#[track_caller]
fn says<T: std::fmt::Debug>(result: Result<T, GgufError>, wanted: &str) {
    assert_eq!(result.unwrap_err().to_string(), wanted);
}

#[test]
fn integers_of_any_type_that_fit() {
    let values: [Value; 8] = [
        7u8.into(),
        7i8.into(),
        7u16.into(),
        7i16.into(),
        7u32.into(),
        7i32.into(),
        7u64.into(),
        7i64.into(),
    ];
    for value in values {
        let gguf = open(|w| {
            w.set("k", value);
        });
        let m = gguf.metadata();
        assert_eq!((m.u32("k").unwrap(), m.u64("k").unwrap()), (Some(7), Some(7)));
        assert_eq!((m.i32("k").unwrap(), m.f32("k").unwrap()), (Some(7), Some(7.0)));
    }
    let gguf = open(|w| {
        w.set("neg", -1i32).set("big", 1u64 << 32).set("f", 1f32).set("b", true);
    });
    let m = gguf.metadata();
    assert_eq!(m.u32("absent").unwrap(), None);
    says(m.u32("neg"), "f.gguf: key \"neg\" should be an unsigned 32-bit integer but is -1");
    says(
        m.u32("big"),
        "f.gguf: key \"big\" should be an unsigned 32-bit integer but is 4294967296",
    );
    says(m.u32("f"), "f.gguf: key \"f\" should be an unsigned 32-bit integer but is f32 1");
    says(m.u32("b"), "f.gguf: key \"b\" should be an unsigned 32-bit integer but is bool true");
    says(m.bool("neg"), "f.gguf: key \"neg\" should be a bool but is i32 -1");
    assert!(
        matches!(m.require_u32("absent"), Err(GgufError::MissingKey { key, .. }) if key == "absent")
    );
    says(
        m.architecture(),
        "f.gguf: key \"general.architecture\" is missing; the file is not a complete model, \
         or its converter does not know this architecture",
    );
}

#[test]
fn floats_and_text() {
    let gguf = open(|w| {
        w.set("d", 0.5f64)
            .set("nan", f32::NAN)
            .set("huge", 1e300f64)
            .set("s", "x\u{1b}")
            .set("raw", Value::String(vec![0xff, b'a'].into()))
            .set("list", vec![1u32, 2]);
    });
    let m = gguf.metadata();
    assert_eq!(m.f32("d").unwrap(), Some(0.5));
    says(m.f32("nan"), "f.gguf: key \"nan\" should be a finite float but is NaN");
    assert!(matches!(m.f32("huge"), Err(GgufError::OutOfRange { .. })));
    says(m.f32("s"), "f.gguf: key \"s\" should be a float but is string \"x\\u{1b}\"");
    says(m.str("raw"), "f.gguf: key \"raw\" should be UTF-8 text but is \"\u{fffd}a\"");
    assert_eq!(m.text("raw").unwrap().unwrap().as_bytes(), [0xff, b'a']);
    says(m.str("list"), "f.gguf: key \"list\" should be a string but is array of u32 [2]");
}

#[test]
fn arrays() {
    let gguf = open(|w| {
        w.set("i", vec![1i64, -2])
            .set("u", vec![1u8, 2])
            .set("f", vec![0.5f64])
            .set("b", vec![true, false])
            .set("s", vec!["a", "b"])
            .set("none", Vec::<i32>::new())
            .set("one", 3u32);
    });
    let m = gguf.metadata();
    assert_eq!(m.i32s("i").unwrap(), Some(vec![1, -2]));
    assert_eq!(m.u32s("u").unwrap(), Some(vec![1, 2]));
    says(
        m.u32s("i"),
        "f.gguf: key \"i\" should be an array of unsigned 32-bit integers but is an array with -2",
    );
    assert_eq!(m.f32s("f").unwrap(), Some(vec![0.5]));
    assert_eq!(m.f32s("u").unwrap(), Some(vec![1.0, 2.0]));
    assert_eq!(m.bools("b").unwrap(), Some(vec![true, false]));
    assert_eq!(m.bools("i").unwrap(), Some(vec![true, true]));
    assert_eq!(m.strings("s").unwrap().unwrap().get_str(1), Some("b"));
    assert_eq!(m.strings("s").unwrap().unwrap().get(2), None);
    assert_eq!(m.strings("none").unwrap().unwrap().len(), 0);
    assert_eq!(m.u32s("absent").unwrap(), None);
    says(m.strings("u"), "f.gguf: key \"u\" should be an array of strings but is array of u8 [2]");
    says(
        m.i32s("s"),
        "f.gguf: key \"s\" should be an array of signed 32-bit integers but is array of strings [2]",
    );
    says(
        m.u32s("one"),
        "f.gguf: key \"one\" should be an array of unsigned 32-bit integers but is u32 3",
    );
}

#[test]
fn the_writer_refuses() {
    let f32 = TensorType::Known(DType::F32);
    let declared = |name: &str, dims: &[u64], dtype| {
        Writer::new().tensor(name, dims, dtype).map(|_| ()).unwrap_err().to_string()
    };
    assert!(declared("t", &[33], DType::Q4_0.into()).contains("block of 32"));
    assert!(declared("t", &[], f32).contains("rank 0"));
    assert!(declared("t", &[1; 5], f32).contains("rank 5"));
    assert!(declared("t", &[u64::MAX, 2], f32).contains("more elements"));
    assert!(declared("", &[1], f32).contains("1 to 63 bytes"));
    let mut w = Writer::new();
    w.tensor("a", &[1], f32).unwrap().tensor("b", &[2], f32).unwrap();
    assert!(w.tensor("a", &[1], f32).unwrap_err().to_string().contains("declared already"));
    let mut data = w.begin(Vec::new()).unwrap();
    assert!(data.write_tensor("b", &[0; 8]).unwrap_err().to_string().contains("\"a\" is next"));
    assert!(data.write_tensor("a", &[0; 3]).unwrap_err().to_string().contains("4 bytes wanted"));
    assert!(data.write_chunk(&[0; 5]).unwrap_err().to_string().contains("4 bytes wanted"));
    data.write_tensor("a", &[0; 4]).unwrap();
    data.write_chunk(&[0; 7]).unwrap();
    let text = data.finish().unwrap_err().to_string();
    assert!(text.contains("\"b\": 1 bytes are still missing"), "{text}");
    let mut w = Writer::new();
    w.set("general.alignment", 48u32);
    assert!(w.begin(Vec::new()).unwrap_err().to_string().contains("power of two"));
    let mut w = Writer::new();
    w.set("", 1u32);
    assert!(w.begin(Vec::new()).is_err());
}

#[test]
fn setting_a_key_again_replaces_it_in_place() {
    let gguf = open(|w| {
        w.set("a", 1u32).set("b", 2u32).set("a", "x");
    });
    let keys: Vec<_> = gguf.metadata().iter().map(|(k, v)| (k, v.to_string())).collect();
    assert_eq!(keys, [("a", "\"x\"".to_owned()), ("b", "2".to_owned())]);
}
