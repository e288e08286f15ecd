//! Wanted rows, sampling and what each row gives back.

use std::sync::Arc;

use infr_backend::{SampleParams, Want};
use infr_graph::{Op, Output};

use crate::maker::{Case, Maker};
use crate::tolerance::Tolerance;

pub(crate) fn cases() -> Vec<Case> {
    let params = SampleParams { temperature: 0.8, seed: 11, ..SampleParams::default() };
    let settings = [
        ("greedy", SampleParams::default()),
        ("temperature", params.clone()),
        ("top_k", SampleParams { top_k: 5, ..params.clone() }),
        ("top_p", SampleParams { top_p: 0.6, ..params.clone() }),
        ("min_p", SampleParams { min_p: 0.2, ..params.clone() }),
        ("bias", SampleParams { logit_bias: vec![(3, 50.0)], ..SampleParams::default() }),
    ];
    let mut out = Vec::new();
    for (name, params) in settings {
        for (vocab, masked) in [(10, false), (10, true), (1000, false), (1000, true)] {
            out.push(sample(name, &params, vocab, masked));
        }
    }
    for temperature in [0.0, 1.0, 0.3] {
        for vocab in [7, 1000, 4096] {
            out.push(probabilities(temperature, vocab));
        }
    }
    out
}

/// Probabilities and their entropies, at the temperature of each sequence.
fn probabilities(temperature: f32, vocab: u32) -> Case {
    let mut m = Maker::new(81, &[2, 3]);
    m.want = Want::Logits;
    let x = m.input(vocab, 2.0);
    let logits = m.builder.gather_out(x);
    let p = m.builder.node(Op::Softmax, &[logits], &[], None)[0];
    let entropy = m.builder.node(Op::Entropy, &[p], &[], None)[0];
    m.builder.output(Output::Logits, logits);
    m.builder.output(Output::Carried(0), p);
    m.builder.output(Output::Carried(1), entropy);
    let name = format!("sample softmax and entropy of {vocab} at {temperature}");
    let mut case = m.close(name, Tolerance::F32);
    case.eval.batch.seqs[1].sample.temperature = temperature;
    case
}

/// Rows of several sequences want different things of the same logits.
fn sample(name: &str, params: &SampleParams, vocab: u32, masked: bool) -> Case {
    let mut m = Maker::new(80, &[3, 1, 4]);
    m.want = Want::Token;
    let x = m.input(vocab, 3.0);
    let logits = m.builder.gather_out(x);
    let tokens = m.builder.sample(logits);
    m.builder.output(Output::Hidden, logits);
    m.builder.output(Output::Logits, logits);
    m.builder.output(Output::Tokens, tokens);
    let mut case = m.close(format!("sample {name} of {vocab}, masked {masked}"), Tolerance::F32);
    let batch = &mut case.eval.batch;
    batch.seqs.iter_mut().for_each(|s| s.sample = params.clone());
    batch.rows[0].output = Want::Nothing;
    batch.rows[1].output = Want::Logprobs { top: 4 };
    batch.rows[3].output = Want::Logits;
    batch.rows[5].output = Want::Hidden;
    if masked {
        let words = vocab.div_ceil(32) as usize;
        let mask: Vec<u32> =
            (0..words).map(|_| 0b1010_0110_1000_1110_0110_1010_0101_1001).collect();
        batch.rows.iter_mut().skip(1).for_each(|r| r.mask = Some(Arc::new(mask.clone())));
    }
    case
}
