//! The rule by which a canvas of tokens is denoised. It is pure: what the model says of each row
//! goes in, the next canvas comes out.
//!
//! Each step gives every row its most likely token, one sample and the entropy of its
//! probabilities. The rows that the model is surest of take their samples, as many as keep the sum
//! of the entropies before them within a bound; all others are drawn anew from the whole
//! vocabulary (entropy-bounded unmasking: Ben-Hamu et al., "Accelerated Sampling from Masked
//! Diffusion Models via Entropy Bounded Unmasking", 2025). The block's text is its most likely
//! tokens.

use infr_backend::sample::hash;
use infr_models::Diffusion;

/// Repeats of a pattern that make a loop.
const LOOP_REPEATS: usize = 6;
/// Longest pattern that is looked for.
const LOOP_STRIDE: usize = 2;
/// Temperature below which probabilities are a one-hot row anyway.
const LEAST_TEMPERATURE: f32 = 1e-3;
/// Keeps the canvas's random tokens apart from the samples of the same seed.
const CANVAS: u64 = 0x6361_6e76_6173;

/// What a step says of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RowSays {
    /// Its most likely token.
    pub(crate) best: u32,
    /// A token drawn at the step's temperature.
    pub(crate) sample: u32,
    /// Entropy of its probabilities at that temperature, in nats.
    pub(crate) entropy: f32,
}

/// Where random tokens come from: they depend on seed, step and position alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Noise {
    pub(crate) seed: u64,
    /// Position of the canvas's first row.
    pub(crate) start: u32,
    pub(crate) vocab: u32,
}

impl Noise {
    /// The random token of a row that was not accepted before `step`.
    fn token(&self, step: u32, row: usize) -> u32 {
        let number = hash(hash(self.seed ^ CANVAS, step), self.start + row as u32);
        (((number >> 32) * u64::from(self.vocab)) >> 32) as u32
    }

    /// The seed of a step's samples.
    pub(crate) fn sample_seed(&self, step: u32) -> u64 {
        hash(self.seed, step)
    }
}

/// A block while it is denoised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Canvas {
    noise: Noise,
    /// The next step's input.
    pub(crate) tokens: Vec<u32>,
    /// The block's text: the most likely tokens of the last step.
    pub(crate) best: Vec<u32>,
    /// Steps done.
    pub(crate) steps: u32,
    /// Steps for which the text stayed equal.
    stable: u32,
}

impl Canvas {
    /// A canvas of random tokens.
    pub(crate) fn new(rows: u32, noise: Noise) -> Canvas {
        let tokens = (0..rows as usize).map(|row| noise.token(0, row)).collect();
        Canvas { noise, tokens, best: Vec::new(), steps: 0, stable: 0 }
    }

    /// Takes a step's results; says whether the block is done.
    pub(crate) fn advance(&mut self, rule: &Diffusion, rows: &[RowSays]) -> bool {
        let entropies: Vec<f32> = rows.iter().map(|row| row.entropy).collect();
        let best: Vec<u32> = rows.iter().map(|row| row.best).collect();
        self.stable = if best == self.best { self.stable + 1 } else { 0 };
        self.best = best;
        self.steps += 1;
        let accepted = accept(&entropies, rule.entropy_bound);
        for (row, token) in self.tokens.iter_mut().enumerate() {
            *token = match accepted[row] {
                true => rows[row].sample,
                false => self.noise.token(self.steps, row),
            };
        }
        let mean = entropies.iter().sum::<f32>() / entropies.len().max(1) as f32;
        let sure = self.stable >= rule.stability_threshold && mean < rule.confidence_threshold;
        sure || self.steps >= rule.max_steps
    }
}

/// The temperature of a step, counted from 0: the highest first, falling linearly.
pub(crate) fn temperature(rule: &Diffusion, step: u32) -> f32 {
    let left = rule.max_steps.saturating_sub(step) as f32 / rule.max_steps as f32;
    (rule.t_min + (rule.t_max - rule.t_min) * left).max(LEAST_TEMPERATURE)
}

/// Which rows take their sample: in order of entropy, those before which the entropies sum to at
/// most `bound`.
fn accept(entropies: &[f32], bound: f32) -> Vec<bool> {
    let mut order: Vec<usize> = (0..entropies.len()).collect();
    order.sort_by(|&a, &b| entropies[a].total_cmp(&entropies[b]));
    let mut accepted = vec![false; entropies.len()];
    let mut before = 0.0;
    for row in order {
        if before > bound || entropies[row].is_nan() {
            break;
        }
        accepted[row] = true;
        before += entropies[row];
    }
    accepted
}

/// Where a block's text ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// It goes on in the next block.
    None,
    /// A stop token stands at this place.
    Stop(usize),
    /// A loop begins at this place.
    Loop(usize),
}

/// Where a block's text ends: at its first stop token or where a short pattern begins to repeat.
pub(crate) fn cut(tokens: &[u32], stop: &[u32]) -> Cut {
    for at in 0..tokens.len() {
        if stop.contains(&tokens[at]) {
            return Cut::Stop(at);
        }
        if (1..=LOOP_STRIDE).any(|stride| repeats(&tokens[at..], stride) >= LOOP_REPEATS) {
            return Cut::Loop(at);
        }
    }
    Cut::None
}

/// How often the first `stride` tokens stand one after another.
fn repeats(tokens: &[u32], stride: usize) -> usize {
    tokens.chunks_exact(stride).take_while(|chunk| *chunk == &tokens[..stride]).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule() -> Diffusion {
        Diffusion {
            canvas: 4,
            max_steps: 4,
            t_min: 0.4,
            t_max: 0.8,
            entropy_bound: 0.1,
            stability_threshold: 1,
            confidence_threshold: 0.005,
            mask_token: None,
        }
    }

    const NOISE: Noise = Noise { seed: 3, start: 10, vocab: 1000 };

    fn says(entropies: &[f32], best: &[u32]) -> Vec<RowSays> {
        let row = |(&entropy, &best): (&f32, &u32)| RowSays { best, sample: best + 5000, entropy };
        entropies.iter().zip(best).map(row).collect()
    }

    #[test]
    fn temperatures_fall_from_the_highest() {
        let found: Vec<f32> = (0..4).map(|step| temperature(&rule(), step)).collect();
        for (found, wanted) in found.iter().zip([0.8, 0.7, 0.6, 0.5]) {
            assert!((found - wanted).abs() < 1e-6, "{found} {wanted}");
        }
        let cold = Diffusion { t_min: 0.0, t_max: 0.0, ..rule() };
        assert!(temperature(&cold, 0) > 0.0);
    }

    #[test]
    fn rows_are_accepted_while_the_sum_before_them_is_within_the_bound() {
        let nan = f32::NAN;
        let cases: &[(&[f32], f32, &[usize])] = &[
            (&[], 0.1, &[]),
            // The surest row is always accepted.
            (&[5.0, 3.0, 4.0], 0.1, &[1]),
            // The row that crosses the bound is accepted, the next one is not.
            (&[0.06, 0.05, 0.2, 0.3], 0.1, &[0, 1]),
            (&[0.06, 0.03, 0.2, 0.3], 0.1, &[0, 1, 2]),
            // A sum equal to the bound is within it.
            (&[0.25, 0.25, 0.5, 0.75], 0.5, &[0, 1, 2]),
            (&[0.0, 0.0, 0.0, 0.0], 0.0, &[0, 1, 2, 3]),
            // Equals in order of rows.
            (&[0.2, 0.2, 0.2], 0.1, &[0]),
            (&[0.3, 0.1, 0.0, 0.2], 0.1, &[1, 2, 3]),
            (&[nan, 0.0, nan], 0.1, &[1]),
            (&[nan, nan], 0.1, &[]),
        ];
        for &(entropies, bound, wanted) in cases {
            let accepted = accept(entropies, bound);
            let found: Vec<usize> = (0..accepted.len()).filter(|&row| accepted[row]).collect();
            assert_eq!(found, wanted, "{entropies:?} within {bound}");
        }
    }

    #[test]
    fn accepted_rows_take_their_sample_and_others_noise() {
        let mut canvas = Canvas::new(4, NOISE);
        let first = canvas.tokens.clone();
        assert!(first.iter().all(|&t| t < 1000));
        assert!(!canvas.advance(&rule(), &says(&[2.0, 0.05, 0.07, 2.0], &[1, 2, 3, 4])));
        assert_eq!(canvas.best, [1, 2, 3, 4]);
        assert_eq!(canvas.tokens[1..3], [5002, 5003]);
        for row in [0, 3] {
            assert!(canvas.tokens[row] < 1000 && canvas.tokens[row] != first[row]);
        }
        // A row that was accepted once may be given up again.
        canvas.advance(&rule(), &says(&[0.2, 2.0, 2.0, 2.0], &[1, 2, 3, 4]));
        assert_eq!(canvas.tokens[0], 5001);
        assert!(canvas.tokens[1] < 1000);
    }

    /// Entropies and most likely tokens of a step.
    type Said<'a> = (&'a [f32; 4], &'a [u32; 4]);

    #[test]
    fn a_block_ends_when_it_is_stable_and_sure_or_out_of_steps() {
        let (sure, unsure) = ([0.001; 4], [0.5; 4]);
        let (a, b) = ([1, 2, 3, 4], [1, 2, 3, 5]);
        let cases: &[(u32, &[Said<'_>], u32)] = &[
            // Sure at once, but nothing was equal before the second step.
            (1, &[(&sure, &a), (&sure, &a)], 2),
            (1, &[(&sure, &a), (&sure, &b), (&sure, &b)], 3),
            (1, &[(&sure, &a), (&unsure, &a), (&sure, &a)], 3),
            (2, &[(&sure, &a), (&sure, &a), (&sure, &a)], 3),
            (0, &[(&sure, &a)], 1),
            // Never sure, never stable, never a number.
            (1, &[(&unsure, &a); 4], 4),
            (1, &[(&sure, &a), (&sure, &b), (&sure, &a), (&sure, &b)], 4),
            (1, &[(&[f32::NAN; 4], &a); 4], 4),
        ];
        for &(stability_threshold, steps, wanted) in cases {
            let rule = Diffusion { stability_threshold, ..rule() };
            let mut canvas = Canvas::new(4, NOISE);
            let done = steps
                .iter()
                .position(|(entropies, best)| canvas.advance(&rule, &says(*entropies, *best)));
            assert_eq!(done, Some(wanted as usize - 1), "{steps:?}");
        }
    }

    #[test]
    fn noise_depends_on_seed_step_and_position_alone() {
        let canvas = |seed, start| Canvas::new(64, Noise { seed, start, vocab: 1000 }).tokens;
        assert_eq!(canvas(3, 10), canvas(3, 10));
        assert_eq!(canvas(3, 10)[1..], canvas(3, 11)[..63]);
        assert_ne!(canvas(3, 10), canvas(4, 10));
        assert_ne!(NOISE.token(0, 5), NOISE.token(1, 5));
        assert_ne!(NOISE.sample_seed(0), NOISE.sample_seed(1));
        let mean = canvas(7, 0).iter().sum::<u32>() / 64;
        assert!((400..600).contains(&mean), "{mean}");
    }

    #[test]
    fn a_block_is_cut_at_a_stop_token_or_a_loop() {
        let cases: &[(&[u32], Cut)] = &[
            (&[], Cut::None),
            (&[5, 6, 7, 8], Cut::None),
            (&[5, 2, 7, 2], Cut::Stop(1)),
            (&[1, 2], Cut::Stop(0)),
            // Five repeats are text, six are a loop.
            (&[5, 7, 7, 7, 7, 7, 8], Cut::None),
            (&[5, 7, 7, 7, 7, 7, 7, 8], Cut::Loop(1)),
            (&[5, 7, 8, 7, 8, 7, 8, 7, 8, 7, 8, 9], Cut::None),
            (&[5, 7, 8, 7, 8, 7, 8, 7, 8, 7, 8, 7, 8], Cut::Loop(1)),
            // Patterns of three are not looked for.
            (&[7, 8, 9, 7, 8, 9, 7, 8, 9, 7, 8, 9, 7, 8, 9, 7, 8, 9], Cut::None),
            // What comes first decides; a run of stop tokens is a stop.
            (&[7, 7, 7, 7, 7, 7, 2], Cut::Loop(0)),
            (&[3, 2, 7, 7, 7, 7, 7, 7], Cut::Stop(1)),
            (&[3, 2, 2, 2, 2, 2, 2, 2], Cut::Stop(1)),
        ];
        for &(tokens, wanted) in cases {
            assert_eq!(cut(tokens, &[1, 2]), wanted, "{tokens:?}");
        }
    }
}
