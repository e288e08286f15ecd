//! Sampling, by the one definition of the seam.

use infr_backend::SampleParams;
use infr_backend::sample::{draw, log_sum_exp};

use super::Launch;
use super::memory::Memory;

pub(super) fn sample(l: &Launch<'_>, m: &mut Memory) {
    let vocab = l.usize(0);
    for out in 0..l.rows(m, 2) {
        let words = m.words(l.address(2) + 32 * out as u64, 8);
        let flags = words[6];
        if flags & 1 == 0 {
            continue;
        }
        let logits = m.floats(l.address(1) + (4 * out * vocab) as u64, vocab);
        let params = SampleParams {
            temperature: f32::from_bits(words[0]),
            top_k: words[1],
            top_p: f32::from_bits(words[2]),
            min_p: f32::from_bits(words[3]),
            ..SampleParams::default()
        };
        let token = draw(&logits, &params, f32::from_bits(words[4]));
        let logprob = (f64::from(logits[token as usize]) - log_sum_exp(&logits)) as f32;
        m.put_words(l.address(4) + 8 * out as u64, &[token, logprob.to_bits()]);
        m.put_words(l.address(5) + 4 * out as u64, &[token]);
        if flags & 2 != 0 {
            m.put_words(l.address(3) + 4 * u64::from(words[5]), &[token]);
        }
    }
}
