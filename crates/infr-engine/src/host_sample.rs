//! Sampling on the host, for what devices do not do: penalties, biases and their combination with
//! constraints. It gives the same tokens as a device for the same logits.

use infr_backend::{RowOut, SampleParams, sample};

use crate::event::TokenOut;

/// What a draw depends on beside the logits.
pub(crate) struct Draw<'a> {
    pub(crate) params: &'a SampleParams,
    /// All tokens of the sequence up to here.
    pub(crate) history: &'a [u32],
    /// Allowed tokens.
    pub(crate) mask: Option<&'a [u32]>,
    /// Position of the row that gave the logits.
    pub(crate) position: u32,
    /// How many likely tokens to name.
    pub(crate) top: u8,
}

/// Draws from a row's logits.
pub(crate) fn sample(row: &mut RowOut, draw: &Draw<'_>) -> TokenOut {
    let logits = &mut row.logits;
    let top = sample::top_logprobs(logits, usize::from(draw.top));
    let total = sample::log_sum_exp(logits);
    let plain = std::mem::take(logits);
    let mut edited = plain.clone();
    if let Some(mask) = draw.mask {
        sample::apply_mask(&mut edited, mask);
    }
    sample::edit_logits(&mut edited, draw.params, draw.history);
    let uniform = sample::uniform(draw.params.seed, draw.position);
    let id = sample::draw(&edited, draw.params, uniform);
    let logprob = plain.get(id as usize).map(|&l| (f64::from(l) - total) as f32);
    TokenOut { id, logprob, top }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> RowOut {
        RowOut { logits: vec![1.0, 3.0, 2.0, 0.0], ..RowOut::default() }
    }

    #[test]
    fn the_log_probability_is_the_models_own() {
        let params = SampleParams { logit_bias: vec![(3, 9.0)], ..SampleParams::default() };
        let draw = Draw { params: &params, history: &[], mask: None, position: 0, top: 1 };
        let out = sample(&mut row(), &draw);
        assert_eq!(out.id, 3);
        let total = [1.0f64, 3.0, 2.0, 0.0].map(f64::exp).iter().sum::<f64>().ln();
        assert!((f64::from(out.logprob.unwrap()) + total).abs() < 1e-6);
        assert_eq!(out.top[0].0, 1);
    }

    #[test]
    fn mask_and_history_count() {
        let params = SampleParams { presence_penalty: 5.0, ..SampleParams::default() };
        let mask = [0b1101];
        let draw = Draw { params: &params, history: &[2], mask: Some(&mask), position: 0, top: 0 };
        assert_eq!(sample(&mut row(), &draw).id, 0);
    }
}
