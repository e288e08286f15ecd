//! Tests of the splitter: every cut of a text gives the same parts.

use super::*;

const THINK: &ReasoningTags = &TAGS[6];

fn whole(mut splitter: ReasoningSplitter, pieces: &[&str]) -> ReasoningDelta {
    let mut all = ReasoningDelta::default();
    for piece in pieces {
        add(&mut all, splitter.push(piece));
    }
    add(&mut all, splitter.finish());
    all
}

fn add(all: &mut ReasoningDelta, delta: ReasoningDelta) {
    all.reasoning.push_str(&delta.reasoning);
    all.content.push_str(&delta.content);
    all.calls.push_str(&delta.calls);
}

fn parts(delta: &ReasoningDelta) -> (&str, &str, &str) {
    (&delta.reasoning, &delta.content, &delta.calls)
}

struct Case {
    style: ReasoningStyle,
    prompt: &'static str,
    answer: &'static str,
    reasoning: &'static str,
    content: &'static str,
    calls: &'static str,
}

fn cases() -> Vec<Case> {
    let think = ReasoningStyle::Tags(THINK);
    let gemma = ReasoningStyle::Tags(&TAGS[0]);
    let harmony = ReasoningStyle::Harmony;
    let case = |style, prompt, answer, reasoning, content| Case {
        style,
        prompt,
        answer,
        reasoning,
        content,
        calls: "",
    };
    let call = |answer, reasoning, calls| Case {
        style: harmony,
        prompt: "<|start|>assistant",
        answer,
        reasoning,
        content: "",
        calls,
    };
    vec![
        case(think, "", "<think>\nwhy é not\n</think>\n\nyes", "why é not", "yes"),
        case(think, "", "\n <think>a", "a", ""),
        case(think, "", "  plain <think> text", "", "  plain <think> text"),
        case(think, "", "<thin", "", "<thin"),
        case(think, "", "<think></think>x </think> y", "", "x </think> y"),
        case(think, "", "<think>a</think>b<think>c</think>", "a", "b<think>c</think>"),
        case(think, "q<think>\n", "so < 3 </thin\n\n</think>\nok\n", "so < 3 </thin", "ok\n"),
        case(think, "q<think>\n", "<think>\nagain</think>ok", "again", "ok"),
        case(think, "q<think>", "never ends \n", "never ends", ""),
        case(think, "q<think>\n\n</think>\n\n", "straight", "", "straight"),
        case(gemma, "", "<|channel>thought\nhm\n<channel|>ok", "hm", "ok"),
        case(gemma, "", "<|channel>thought\n<channel|>ok", "", "ok"),
        case(
            gemma,
            "",
            "a<|channel>thought\nb<channel|>c<|channel>thought\nd<channel|>e",
            "bd",
            "ace",
        ),
        case(
            harmony,
            "<|start|>assistant",
            "<|channel|>analysis<|message|>hm <|x|> \n<|end|><|start|>assistant<|channel|>final\
             <|message|>Hi **you**<|return|>",
            "hm <|x|>",
            "Hi **you**",
        ),
        case(harmony, "", "<|channel|>commentary<|message|>first, <|end|>", "", "first, "),
        case(harmony, "", "no markup at all", "", "no markup at all"),
        case(harmony, "", "<|channel|>final", "", ""),
        call(
            "<|channel|>analysis<|message|>need it<|end|><|start|>assistant<|channel|>commentary \
             to=functions.get <|constrain|>json<|message|>{\"a\": 1}<|call|>",
            "need it",
            "<|start|>assistant<|channel|>commentary to=functions.get <|constrain|>json\
             <|message|>{\"a\": 1}<|call|>",
        ),
        call(
            " to=functions.get<|channel|>commentary<|message|>{}",
            "",
            " to=functions.get<|channel|>commentary<|message|>{}",
        ),
    ]
}

#[test]
fn every_style_is_split() {
    for case in cases() {
        let splitter = ReasoningSplitter::after(case.style, case.prompt);
        let got = whole(splitter, &[case.answer]);
        assert_eq!(parts(&got), (case.reasoning, case.content, case.calls), "{}", case.answer);
    }
}

#[test]
fn cutting_the_text_never_changes_the_result() {
    let mut seed = 1_u64;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(seed >> 33).unwrap() % below
    };
    for case in cases() {
        let chars: Vec<(usize, char)> = case.answer.char_indices().collect();
        for round in 0..300 {
            let longest = if round == 0 { 1 } else { 1 + random(12) };
            let mut pieces = Vec::new();
            let mut at = 0;
            while at < chars.len() {
                let next = (at + 1 + random(longest)).min(chars.len());
                let end = chars.get(next).map_or(case.answer.len(), |c| c.0);
                pieces.push(&case.answer[chars[at].0..end]);
                at = next;
            }
            let splitter = ReasoningSplitter::after(case.style, case.prompt);
            let got = whole(splitter, &pieces);
            let want = (case.reasoning, case.content, case.calls);
            assert_eq!(parts(&got), want, "{pieces:?}");
        }
    }
}

#[test]
fn random_soups_of_marks_split_the_same_in_any_pieces() {
    let words = [
        "<think>",
        "</think>",
        "<|channel>thought",
        "<channel|>",
        "<|channel|>",
        "analysis",
        "final",
        "<|message|>",
        "<|end|>",
        "<|start|>",
        "assistant",
        "<|call|>",
        " to=f",
        "a",
        " ",
        "\n",
        "<",
        "<|",
        "é",
    ];
    let mut seed = 7_u64;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(seed >> 33).unwrap() % below
    };
    let styles =
        [ReasoningStyle::Tags(THINK), ReasoningStyle::Tags(&TAGS[0]), ReasoningStyle::Harmony];
    for round in 0..6000 {
        let style = styles[round % styles.len()];
        let prompt = ["", "<think>", "<|channel>thought"][random(3)];
        let text: String = (0..random(14)).map(|_| words[random(words.len())]).collect();
        let letters: Vec<String> = text.chars().map(String::from).collect();
        let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
        let once = whole(ReasoningSplitter::after(style, prompt), &[&text]);
        let apart = whole(ReasoningSplitter::after(style, prompt), &letters);
        assert_eq!(once, apart, "{style:?} {prompt:?} {text:?}");
    }
}

#[test]
fn nothing_is_held_that_is_decided() {
    let mut splitter = ReasoningSplitter::new(ReasoningStyle::Tags(THINK));
    assert_eq!(
        splitter.push("<think>one two"),
        ReasoningDelta { reasoning: "one two".into(), ..ReasoningDelta::default() }
    );
    assert_eq!(splitter.push(" </thi").reasoning, "");
    assert_eq!(splitter.push("ng").reasoning, " </thing");
    assert_eq!(splitter.push("</think>a").content, "a");
    assert_eq!(splitter.push(" b ").content, " b ");
}

#[test]
fn styles_are_detected() {
    let detect = ReasoningStyle::detect;
    assert_eq!(detect("<|channel|>analysis<|message|>"), Some(ReasoningStyle::Harmony));
    assert_eq!(detect("x.split('</think>')"), Some(ReasoningStyle::Tags(THINK)));
    assert_eq!(detect("'<|channel>' in part"), Some(ReasoningStyle::Tags(&TAGS[0])));
    assert_eq!(detect("<|im_start|>"), None);
}
