//! What is taken from the cache, and why not more.

#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

mod common;

use common::{Outcome, Rig, finish, options, plain, text};
use infr_engine::{Engine, EngineOptions, Request, ReuseStop, Shutdown};
use infr_graph::Reach;

fn ask(engine: &Engine, prompt: &[u32], max_tokens: u32) -> Outcome {
    finish(engine.submit(Request::new(prompt.to_vec(), max_tokens)))
}

/// Asks and checks against a cold engine.
fn checked(rig: &Rig, engine: &Engine, prompt: &[u32]) -> Outcome {
    let warm = ask(engine, prompt, 9);
    assert_eq!(warm.tokens, rig.alone(Request::new(prompt.to_vec(), 9)).tokens);
    warm
}

fn join(parts: &[&[u32]]) -> Vec<u32> {
    parts.concat()
}

#[test]
fn the_next_turn_computes_only_its_new_tokens() {
    for depth in 1..=2 {
        let mut rig = plain();
        rig.options.steps_in_flight = depth;
        let engine = rig.start();
        let first = checked(&rig, &engine, &text(1, 13));
        assert_eq!((first.cached, first.reuse), (0, ReuseStop::CacheEnded));
        let next = join(&[&text(1, 13), &first.tokens, &[1, 2, 3]]);
        let second = checked(&rig, &engine, &next);
        // The last token of the answer was drawn and not computed.
        assert_eq!((second.cached, second.reuse), (13 + 9 - 1, ReuseStop::CacheEnded));
        assert_eq!(second.usage.cached, 21);
    }
}

#[test]
fn the_same_prompt_again_computes_one_token() {
    let rig = plain();
    let engine = rig.start();
    checked(&rig, &engine, &text(1, 16));
    let again = checked(&rig, &engine, &text(1, 16));
    assert_eq!((again.cached, again.reuse), (15, ReuseStop::WholePrompt));
}

#[test]
fn reuse_stops_at_an_edit_to_the_token() {
    let rig = plain();
    let engine = rig.start();
    checked(&rig, &engine, &text(1, 30));
    for at in [29, 17, 16, 15, 1, 0] {
        let mut edited = text(1, 30);
        let old = edited[at];
        edited[at] = (old + 1) % common::VOCAB;
        let outcome = checked(&rig, &engine, &edited);
        let at = at as u32;
        assert_eq!(outcome.cached, at);
        let wanted = match at {
            29 => ReuseStop::WholePrompt,
            _ => ReuseStop::Diverged { at, cached: old, prompt: edited[at as usize] },
        };
        assert_eq!(outcome.reuse, wanted);
    }
}

#[test]
fn equal_pages_after_another_beginning_are_other_pages() {
    let rig = plain();
    let engine = rig.start();
    checked(&rig, &engine, &join(&[&[1; 4], &[2; 4], &[3; 4]]));
    let outcome = checked(&rig, &engine, &join(&[&[9; 4], &[2; 4], &[3; 4]]));
    assert_eq!(outcome.cached, 0);
}

#[test]
fn salts_share_nothing() {
    let rig = plain();
    let engine = rig.start();
    let salted = |cache_salt| Request { cache_salt, ..Request::new(text(1, 20), 2) };
    assert_eq!(finish(engine.submit(salted(1))).cached, 0);
    assert_eq!(finish(engine.submit(salted(2))).cached, 0);
    assert_eq!(finish(engine.submit(salted(1))).cached, 19);
}

#[test]
fn running_sequences_share_their_prefix() {
    let mut rig = plain();
    rig.options.cache_rows = Some(4 * 256);
    let engine = rig.start();
    let system = text(1, 100);
    ask(&engine, &system, 1);
    let prompts: Vec<_> = (0..4).map(|i| join(&[&system, &text(i + 5, 9)])).collect();
    let streams: Vec<_> =
        prompts.iter().map(|p| engine.submit(Request::new(p.clone(), 40))).collect();
    for (stream, prompt) in streams.into_iter().zip(&prompts) {
        let outcome = finish(stream);
        assert!(outcome.cached >= 100);
        assert_eq!(outcome.tokens, rig.alone(Request::new(prompt.clone(), 40)).tokens);
    }
}

#[test]
fn a_window_behind_the_reused_prefix_suffices() {
    let rig = Rig::new(&[Reach::Full, Reach::Window(6)], false, options());
    let engine = rig.start();
    let first = checked(&rig, &engine, &text(1, 90));
    let next = join(&[&text(1, 90), &first.tokens, &[5, 6]]);
    assert_eq!(checked(&rig, &engine, &next).cached, 98);
    let stats = engine.stats();
    assert!(stats.pages[1].total < stats.pages[0].total / 2, "{stats:?}");
}

#[test]
fn a_lost_window_is_named() {
    // The window group has so few pages that another answer takes them all.
    let options = EngineOptions { parallel: 1, ubatch: 4, ..options() };
    let rig = Rig::new(&[Reach::Full, Reach::Window(4)], false, options);
    let engine = rig.start();
    checked(&rig, &engine, &text(1, 60));
    checked(&rig, &engine, &text(2, 60));
    let outcome = checked(&rig, &engine, &text(1, 60));
    assert!(outcome.cached < 59, "{}", outcome.cached);
    assert!(matches!(outcome.reuse, ReuseStop::Evicted { .. }), "{:?}", outcome.reuse);
}

#[test]
fn the_page_used_longest_ago_goes_first_and_the_tail_before_the_head() {
    let options =
        EngineOptions { context: Some(64), parallel: 1, cache_rows: Some(64), ..options() };
    let rig = Rig::new(&[Reach::Full], false, options);
    let engine = rig.start();
    checked(&rig, &engine, &text(1, 32));
    checked(&rig, &engine, &text(2, 20));
    let third = checked(&rig, &engine, &text(1, 32));
    assert!((8..32).contains(&third.cached), "{}", third.cached);
}

#[test]
fn recurrent_models_go_on_from_snapshots() {
    for reaches in [vec![], vec![Reach::Full], vec![Reach::Window(5), Reach::Full]] {
        let rig = Rig::new(&reaches, true, options());
        let engine = rig.start();
        let prompt = text(1, 30);
        let first = checked(&rig, &engine, &prompt);
        let answered = join(&[&prompt, &first.tokens]);
        // From the end of the answer.
        let next = checked(&rig, &engine, &join(&[&answered, &[1, 2, 3, 4, 5]]));
        assert!(next.cached >= 38, "{}", next.cached);
        // From the end of the prompt, with another answer.
        let other = checked(&rig, &engine, &join(&[&prompt, &[60, 61, 62]]));
        assert_eq!(other.cached, 30);
        // No snapshot lies before an early edit.
        let edited = checked(&rig, &engine, &join(&[&prompt[..20], &[60, 61]]));
        assert_eq!((edited.cached, edited.reuse), (0, ReuseStop::NoSnapshot { matched: 20 }));
    }
}

#[test]
fn marks_are_where_recurrent_models_can_go_on() {
    let rig = Rig::new(&[Reach::Full], true, options());
    let engine = rig.start();
    let request = Request { marks: vec![7, 20], ..Request::new(text(1, 30), 4) };
    finish(engine.submit(request));
    for (keep, cached) in [(25, 20), (19, 7), (7, 7)] {
        let prompt = join(&[&text(1, 30)[..keep], &[63, 62]]);
        assert_eq!(checked(&rig, &engine, &prompt).cached, cached);
    }
}

#[test]
fn snapshots_stay_in_their_budget() {
    let options = EngineOptions { snapshot_bytes: Some(3 * 16), ..options() };
    let rig = Rig::new(&[Reach::Full], true, options);
    let engine = rig.start();
    for seed in 0..10 {
        checked(&rig, &engine, &text(seed, 30));
    }
    let stats = engine.shutdown(Shutdown::Drain);
    assert_eq!((stats.snapshots, stats.snapshot_bytes), (3, 48));
}

#[test]
fn without_the_cache_nothing_is_kept() {
    let mut rig = plain();
    rig.options.prefix_cache = false;
    let engine = rig.start();
    checked(&rig, &engine, &text(1, 20));
    let again = checked(&rig, &engine, &text(1, 20));
    assert_eq!((again.cached, again.reuse), (0, ReuseStop::NotUsed));
    let stats = engine.shutdown(Shutdown::Drain);
    assert_eq!(stats.pages[0].free, stats.pages[0].total);
}
