//! The one definition of sampling. Every backend and the engine's host path agree with it.
//!
//! Order of the stages: allowed-token mask, logit bias, penalties, top-k, top-p, min-p, temperature, draw.
//! Random numbers are a function of seed and position alone, so that every backend, batch and
//! restart draws the same (counter-based, after Salmon et al., "Parallel Random Numbers: As Easy as
//! 1, 2, 3", 2011; the mixer is SplitMix64's finaliser, Steele et al., 2014).

/// How a sequence's tokens are drawn.
#[derive(Debug, Clone, PartialEq)]
pub struct SampleParams {
    /// Divides the logits; 0 takes the most likely token.
    pub temperature: f32,
    /// Keep this many of the most likely tokens; 0 keeps all.
    pub top_k: u32,
    /// Keep the smallest set of most likely tokens whose probability reaches this; 1 keeps all.
    pub top_p: f32,
    /// Drop tokens less likely than this fraction of the most likely one; 0 keeps all.
    pub min_p: f32,
    /// Logits of tokens seen are divided by this when positive, multiplied when negative; 1 is off.
    pub repeat_penalty: f32,
    /// Subtracted once from the logits of tokens seen; 0 is off.
    pub presence_penalty: f32,
    /// Subtracted per occurrence from the logits of tokens seen; 0 is off.
    pub frequency_penalty: f32,
    /// How many of the last tokens count as seen.
    pub penalty_last_n: u32,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Added to logits before anything else.
    pub logit_bias: Vec<(u32, f32)>,
}

impl Default for SampleParams {
    fn default() -> SampleParams {
        SampleParams {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repeat_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            penalty_last_n: 64,
            seed: 0,
            logit_bias: Vec::new(),
        }
    }
}

impl SampleParams {
    /// Whether a draw needs the tokens that came before.
    pub fn needs_history(&self) -> bool {
        self.repeat_penalty != 1.0 || self.presence_penalty != 0.0 || self.frequency_penalty != 0.0
    }

    /// Whether the logits are changed before the choice.
    pub fn edits_logits(&self) -> bool {
        self.needs_history() || !self.logit_bias.is_empty()
    }
}

/// A well-mixed number that depends on seed and position alone.
pub fn hash(seed: u64, position: u32) -> u64 {
    let mut z = seed ^ (u64::from(position) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for _ in 0..2 {
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
    }
    z
}

/// A uniform number in `[0, 1)` that depends on seed and position alone.
pub fn uniform(seed: u64, position: u32) -> f32 {
    (hash(seed, position) >> 40) as f32 / (1u64 << 24) as f32
}

/// Sets the logits of tokens outside the mask to minus infinity.
pub fn apply_mask(logits: &mut [f32], mask: &[u32]) {
    for (id, logit) in logits.iter_mut().enumerate() {
        let word = mask.get(id / 32).copied().unwrap_or(0);
        if word >> (id % 32) & 1 == 0 {
            *logit = f32::NEG_INFINITY;
        }
    }
}

/// Applies bias and penalties; `history` holds the sequence's tokens, oldest first.
pub fn edit_logits(logits: &mut [f32], params: &SampleParams, history: &[u32]) {
    for &(id, bias) in &params.logit_bias {
        if let Some(logit) = logits.get_mut(id as usize) {
            *logit += bias;
        }
    }
    if !params.needs_history() {
        return;
    }
    let start = history.len().saturating_sub(params.penalty_last_n as usize);
    let mut seen = history[start..].to_vec();
    seen.sort_unstable();
    for run in seen.chunk_by(|a, b| a == b) {
        let Some(logit) = logits.get_mut(run[0] as usize) else { continue };
        if *logit > 0.0 {
            *logit /= params.repeat_penalty;
        } else {
            *logit *= params.repeat_penalty;
        }
        *logit -= params.presence_penalty + params.frequency_penalty * run.len() as f32;
    }
}

/// The most likely token; ties go to the lower id, NaN never wins.
pub fn argmax(logits: &[f32]) -> u32 {
    let mut best = (0, f32::NEG_INFINITY);
    for (id, &logit) in logits.iter().enumerate() {
        if logit > best.1 {
            best = (id, logit);
        }
    }
    best.0 as u32
}

/// Draws a token from edited logits; `uniform` is in `[0, 1)`.
pub fn draw(logits: &[f32], params: &SampleParams, uniform: f32) -> u32 {
    if params.temperature <= 0.0 || params.top_k == 1 {
        return argmax(logits);
    }
    let mut kept = candidates(logits, params);
    if kept.is_empty() {
        return argmax(logits);
    }
    let max = kept[0].1;
    let mut total = 0.0f64;
    for (_, p) in &mut kept {
        *p = ((*p - max) / params.temperature).exp();
        total += f64::from(*p);
    }
    let mut left = f64::from(uniform) * total;
    for &(id, p) in &kept {
        left -= f64::from(p);
        if left < 0.0 {
            return id;
        }
    }
    kept[kept.len() - 1].0
}

/// Tokens that survive top-k, top-p and min-p with their logits, most likely first.
///
/// Only what survives is sorted: a vocabulary of 262,144 tokens takes longer to sort than a small
/// model takes to decode.
fn candidates(logits: &[f32], params: &SampleParams) -> Vec<(u32, f32)> {
    let finite = |(id, &logit): (usize, &f32)| {
        (logit > f32::NEG_INFINITY && !logit.is_nan()).then_some((id as u32, logit))
    };
    let mut all: Vec<(u32, f32)> = logits.iter().enumerate().filter_map(finite).collect();
    let max = all.iter().map(|&(_, l)| l).fold(f32::NEG_INFINITY, f32::max);
    let k = params.top_k as usize;
    if k > 0 && k < all.len() {
        keep_best(&mut all, k);
    }
    let mut kept = if params.top_p < 1.0 {
        nucleus(all, max, f64::from(params.top_p))
    } else {
        let floor = min_p_floor(max, params);
        all.retain(|&(_, l)| l >= floor);
        all.sort_unstable_by(by_logit);
        all
    };
    let floor = min_p_floor(max, params);
    kept.retain(|&(_, l)| l >= floor);
    kept
}

fn by_logit(a: &(u32, f32), b: &(u32, f32)) -> std::cmp::Ordering {
    b.1.total_cmp(&a.1).then(a.0.cmp(&b.0))
}

fn keep_best(all: &mut Vec<(u32, f32)>, n: usize) {
    all.select_nth_unstable_by(n - 1, by_logit);
    all.truncate(n);
}

fn min_p_floor(max: f32, params: &SampleParams) -> f32 {
    if params.min_p > 0.0 { max + params.min_p.ln() } else { f32::NEG_INFINITY }
}

/// The smallest set of most likely tokens whose probability reaches `top_p`, sorted. Looks at ever
/// more of the best until they suffice.
fn nucleus(all: Vec<(u32, f32)>, max: f32, top_p: f64) -> Vec<(u32, f32)> {
    let weight = |&(_, l): &(u32, f32)| f64::from((l - max).exp());
    let wanted = top_p * all.iter().map(weight).sum::<f64>();
    let mut n = 64;
    loop {
        let mut best = all.clone();
        if n < best.len() {
            keep_best(&mut best, n);
        }
        best.sort_unstable_by(by_logit);
        let mut sum = 0.0;
        let reached = best.iter().position(|candidate| {
            sum += weight(candidate);
            sum >= wanted
        });
        match reached {
            Some(last) => best.truncate(last + 1),
            None if n < all.len() => {
                n *= 8;
                continue;
            }
            None => {}
        }
        return best;
    }
}

/// Natural logarithm of the sum of exponentials, in `f64`.
pub fn log_sum_exp(logits: &[f32]) -> f64 {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|&l| f64::from(l - max).exp()).sum();
    f64::from(max) + sum.ln()
}

/// The `n` most likely tokens with their log-probabilities, descending.
pub fn top_logprobs(logits: &[f32], n: usize) -> Vec<(u32, f32)> {
    let lse = log_sum_exp(logits);
    let params = SampleParams { top_k: n as u32, ..SampleParams::default() };
    if n == 0 {
        return Vec::new();
    }
    let kept = candidates(logits, &params);
    kept.into_iter().map(|(id, l)| (id, (f64::from(l) - lse) as f32)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params() -> SampleParams {
        SampleParams { temperature: 1.0, ..SampleParams::default() }
    }

    #[test]
    fn greedy_takes_the_first_of_equals() {
        assert_eq!(draw(&[1.0, 3.0, 3.0], &SampleParams::default(), 0.9), 1);
        assert_eq!(argmax(&[f32::NAN, 1.0]), 1);
    }

    #[test]
    fn draws_follow_the_probabilities() {
        let logits = [0.0f32, 1.0, 2.0, 3.0];
        let total: f64 = logits.iter().map(|l| f64::from(*l).exp()).sum();
        let mut counts = [0u32; 4];
        for position in 0..100_000 {
            counts[draw(&logits, &params(), uniform(7, position)) as usize] += 1;
        }
        for (logit, count) in logits.iter().zip(counts) {
            let wanted = f64::from(*logit).exp() / total;
            assert!((f64::from(count) / 1e5 - wanted).abs() < 0.006, "{wanted} {count}");
        }
    }

    #[test]
    fn filters_keep_what_they_say() {
        let logits = [3.0, 2.0, 1.0, 0.0];
        let ids = |p: &SampleParams| candidates(&logits, p).iter().map(|c| c.0).collect::<Vec<_>>();
        assert_eq!(ids(&SampleParams { top_k: 2, ..params() }), [0, 1]);
        // Probabilities are 0.644, 0.237, 0.087, 0.032.
        assert_eq!(ids(&SampleParams { top_p: 0.7, ..params() }), [0, 1]);
        assert_eq!(ids(&SampleParams { min_p: 0.1, ..params() }), [0, 1, 2]);
        assert_eq!(ids(&SampleParams { top_p: 0.0, ..params() }), [0]);
    }

    #[test]
    fn the_nucleus_of_a_large_vocabulary_is_that_of_a_full_sort() {
        let logits: Vec<f32> = (0..5000).map(|i| 3.0 * uniform(5, i)).collect();
        for top_p in [0.001, 0.1, 0.5, 0.99] {
            let kept = candidates(&logits, &SampleParams { top_p, ..params() });
            let mut all: Vec<(u32, f32)> = (0..).zip(logits.iter().copied()).collect();
            all.sort_by(by_logit);
            let total: f64 = logits.iter().map(|l| f64::from(l.exp())).sum();
            let below: f64 = kept[..kept.len() - 1].iter().map(|c| f64::from(c.1.exp())).sum();
            let sum = below + f64::from(kept[kept.len() - 1].1.exp());
            let wanted = f64::from(top_p) * total;
            assert!(below < wanted && sum >= wanted * 0.999_99, "{top_p}: {below} {sum} {wanted}");
            assert_eq!(kept, all[..kept.len()]);
        }
    }

    #[test]
    fn penalties_touch_only_recent_tokens() {
        let p = SampleParams {
            repeat_penalty: 2.0,
            frequency_penalty: 0.5,
            presence_penalty: 0.25,
            penalty_last_n: 3,
            ..params()
        };
        let mut logits = [4.0, -4.0, 4.0];
        edit_logits(&mut logits, &p, &[2, 0, 0, 1]);
        assert_eq!(logits, [4.0 / 2.0 - 1.25, -4.0 * 2.0 - 0.75, 4.0]);
    }

    #[test]
    fn mask_and_bias() {
        let mut logits = [1.0, 2.0, 3.0];
        apply_mask(&mut logits, &[0b011]);
        let p = SampleParams { logit_bias: vec![(0, 5.0), (9, 1.0)], ..SampleParams::default() };
        edit_logits(&mut logits, &p, &[]);
        assert_eq!(draw(&logits, &p, 0.0), 0);
        assert_eq!(logits[2], f32::NEG_INFINITY);
    }

    #[test]
    fn uniform_is_a_function_of_seed_and_position() {
        assert_eq!(uniform(1, 2), uniform(1, 2));
        assert_ne!(uniform(1, 2), uniform(1, 3));
        assert_ne!(uniform(1, 2), uniform(2, 2));
        let mean = (0..10_000).map(|i| f64::from(uniform(3, i))).sum::<f64>() / 1e4;
        assert!((mean - 0.5).abs() < 0.02);
    }

    #[test]
    fn log_probabilities_sum_to_one() {
        let top = top_logprobs(&[1.0, 2.0, 5.0, -3.0], 4);
        assert_eq!(top[0].0, 2);
        let sum: f64 = top.iter().map(|(_, l)| f64::from(*l).exp()).sum();
        assert!((sum - 1.0).abs() < 1e-6);
    }
}
