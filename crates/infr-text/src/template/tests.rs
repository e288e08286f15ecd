//! Tests of rendering that need no files from outside.

use jiff::{Timestamp, civil, tz::TimeZone};
use serde_json::json;

use super::*;
use crate::message::{Content, FunctionCall, ToolCall};
use crate::reasoning::ReasoningStyle;

fn clock() -> FixedClock {
    let date = civil::date(2026, 3, 7).at(9, 5, 0, 0);
    FixedClock(date.to_zoned_datetime(TimeZone::UTC).unwrap())
}

fn specials() -> SpecialTexts {
    SpecialTexts { bos: "<s>".into(), eos: "</s>".into() }
}

fn compile(source: &str) -> ChatTemplate {
    ChatTemplate::new(source, specials()).unwrap()
}

/// Renders an expression or template with `x` bound.
fn eval(source: &str, x: serde_json::Value) -> Result<String, TemplateError> {
    let context = json!({ "x": x, "messages": [] });
    let template = ChatTemplate::new(source, specials())?;
    template.render_context(context.as_object().unwrap(), &clock())
}

#[test]
fn chatml_renders_a_conversation() {
    let template = ChatTemplate::chatml(specials()).unwrap();
    let messages = [Message::text("system", "Be brief."), Message::text("user", "Hi")];
    let request = RenderRequest {
        messages: &messages,
        add_generation_prompt: true,
        ..RenderRequest::default()
    };
    assert_eq!(
        template.render(&request, &clock()).unwrap(),
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n\
         <|im_start|>assistant\n"
    );
    assert!(template.features().system_role);
    assert!(!template.features().tools);
    assert_eq!(template.features().thinking, ThinkingSupport::default());
}

#[test]
fn expressions_give_what_jinja2_gives() {
    let cases = [
        // Whitespace: trim_blocks and lstrip_blocks.
        ("a\n  {% if true %}\nb\n  {% endif %}\nc\n", "a\nb\nc"),
        ("{{ [1, 2.5, 'a', none, true] }}", "[1, 2.5, 'a', None, True]"),
        ("{{ {'k': 'it\\'s'} }}", "{'k': \"it's\"}"),
        ("{{ 7 // 2 }} {{ -7 // 2 }} {{ 2 ** 10 }} {{ 7 % 3 }}", "3 -4 1024 1"),
        ("{{ 'abc'[::-1] }} {{ [1, 2, 3][1:] }} {{ 'abc'[-1] }}", "cba [2, 3] c"),
        ("{{ 'a b  c'.split() }} {{ 'a,b,c'.rsplit(',', 1) }}", "['a', 'b', 'c'] ['a,b', 'c']"),
        ("{{ 'a,b,c'.split(',', maxsplit=1)[-1] }}", "b,c"),
        ("{{ ' a  b '.rsplit(none, 1) }}", "[' a', 'b']"),
        ("{{ '--x-'.strip('-') }}{{ '\\n y'.lstrip('\\n') }}", "x y"),
        ("{{ '{} is {}'.format('a', 1) }}", "a is 1"),
        ("{{ 'abc'.startswith(('x', 'a')) }}", "True"),
        ("{{ 'a-b'.partition('-') }}", "('a', '-', 'b')"),
        ("{{ x.items }}", "7"),
        ("{% for k, v in x.items() %}{{ k }}={{ v }};{% endfor %}", "items=7;n=None;"),
        ("{{ x.get('n', 1) }} {{ x.get('m', 1) }} {{ x.get('m') }}", "None 1 None"),
        ("{{ 'a' is sequence }} {{ x is sequence }} {{ x is mapping }}", "True True True"),
        ("{{ 1 is sequence }} {{ [] is iterable }} {{ 1 is iterable }}", "False True False"),
        ("{{ true is number }} {{ true is integer }} {{ y is defined }}", "True False False"),
        ("{% for i in range(9) %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}", "012"),
        (
            "{% set n = namespace(a=1) %}{% for i in [1, 2] %}{% set n.a = n.a + i %}{% endfor %}{{ n.a }}",
            "4",
        ),
        (
            "{% set l = [] %}{% set _ = l.append(x) %}{% set _ = l.append(2) %}{{ l.pop(0) }}{{ l }}",
            "{'items': 7, 'n': None}[2]",
        ),
        (
            "{% set l = [1] %}{% set _ = l.append(2) %}{{ l + [3] }}{{ l == [1, 2] }}{{ l[-1] }}{{ l|length }}{{ 2 in l }}",
            "[1, 2, 3]True22True",
        ),
        (
            "{% set d = {} %}{% set _ = d.update({'a': 1}) %}{{ d }}{{ d.a }}{{ 'a' in d }}{{ d|tojson }}",
            "{'a': 1}1True{\"a\": 1}",
        ),
        ("{{ [{'a': 1}, {'a': 2}]|selectattr('a', 'equalto', 2)|list }}", "[{'a': 2}]"),
        ("{{ [{'a': 1}, {'b': 2}]|rejectattr('a', 'defined')|list }}", "[{'b': 2}]"),
        ("{{ [{'a': 1}, {'a': 2}]|map(attribute='a')|join(',') }}", "1,2"),
        ("{{ {'b': 1, 'A': 2}|dictsort }}", "[('A', 2), ('b', 1)]"),
        ("{% generation %}g{% endgeneration %}", "g"),
        ("{{ strftime_now('%d %b %Y, %H:%M') }}", "07 Mar 2026, 09:05"),
        ("{{ y | default('d') }}{{ '' | default('e', true) }}{{ none | default('f') }}", "deNone"),
        ("{{ (1, 2) }} {{ 'a' ~ 1 ~ none }}", "(1, 2) a1None"),
        ("{% macro m(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(1, b=3) }}", "1213"),
        ("{{ 'x' if false }}|{{ '<b>' | safe }}{{ '<' }}", "|<b><"),
        ("{{ 'one\ntwo' | indent(2) }} {{ 'hello world' | title }}", "one\n  two Hello World"),
        (
            "{{ '{\n' | indent(4, first=true) }}|{{ 'a\n\nb' | indent('>', true, true) }}",
            "    {\n|>a\n>\n>b",
        ),
    ];
    for (source, want) in cases {
        let got = eval(source, json!({ "items": 7, "n": null }));
        assert_eq!(got.as_deref().unwrap_or_else(|e| panic!("{source}: {e}")), want, "{source}");
    }
}

#[test]
fn tojson_is_transformers_tojson() {
    let value = json!({ "b": [1, 2.0, "ü<>&'\"\n"], "a": {}, "c": [], "d": null, "e": true });
    let compact = r#"{"b": [1, 2.0, "ü<>&'\"\n"], "a": {}, "c": [], "d": null, "e": true}"#;
    assert_eq!(eval("{{ x | tojson }}", value.clone()).unwrap(), compact);
    let ascii = eval("{{ x.b[2] | tojson(ensure_ascii=True) }}", value.clone()).unwrap();
    assert_eq!(ascii, r#""\u00fc<>&'\"\n""#);
    let indented = eval("{{ x | tojson(indent=2) }}", value).unwrap();
    let want = "{\n  \"b\": [\n    1,\n    2.0,\n    \"ü<>&'\\\"\\n\"\n  ],\n  \"a\": {},\n  \
                \"c\": [],\n  \"d\": null,\n  \"e\": true\n}";
    assert_eq!(indented, want);
    let sorted =
        eval("{{ x | tojson(separators=(',', ':'), sort_keys=true) }}", json!({"b":1,"a":2}));
    assert_eq!(sorted.unwrap(), r#"{"a":2,"b":1}"#);
}

#[test]
fn raising_is_an_error_of_its_own() {
    let source = "{% macro m() %}{{ raise_exception('no ' ~ 'system') }}{% endmacro %}{{ m() }}";
    match eval(source, json!(0)) {
        Err(TemplateError::Raised(message)) => assert_eq!(message, "no system"),
        other => panic!("{other:?}"),
    }
    match eval("\n{{ 1 + {} }}", json!(0)) {
        Err(TemplateError::Render { line, .. }) => assert_eq!(line, 2),
        other => panic!("{other:?}"),
    }
    match ChatTemplate::new("{% if %}", specials()) {
        Err(TemplateError::Syntax { line, .. }) => assert_eq!(line, 1),
        other => panic!("{other:?}"),
    }
}

#[test]
fn hostile_templates_end_with_an_error() {
    let loops = "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}";
    let growth = "{% set n = namespace(s='xxxxxxxxxxxxxxxx') %}{% for i in range(64) %}\
                  {% set n.s = n.s ~ n.s %}{% endfor %}{{ n.s }}";
    let repeat = "{{ 'x' * 10000000000 }}";
    let list = "{% set l = [] %}{% for i in range(100000) %}{% set _ = l.extend(l) %}\
                {% set _ = l.append(1) %}{% endfor %}";
    for source in [loops, growth, repeat, list] {
        assert!(matches!(eval(source, json!(0)), Err(TemplateError::TooMuchWork)), "{source}");
    }
    let recursion = "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}";
    assert!(matches!(eval(recursion, json!(0)), Err(TemplateError::Render { .. })));
    let long = "{% for i in range(40) %}{{ 'x' * 1000000 }}{% endfor %}";
    assert!(matches!(eval(long, json!(0)), Err(TemplateError::TooLong { .. })));
    let deep = format!("{{{{ {}1{} }}}}", "(".repeat(5000), ")".repeat(5000));
    assert!(matches!(ChatTemplate::new(&deep, specials()), Err(TemplateError::Syntax { .. })));
}

#[test]
fn values_can_neither_hold_themselves_nor_grow_deep() {
    let nest = "{% set n = namespace(a=[]) %}{% for i in range(20000) %}{% set n.a = [n.a] %}\
                {% endfor %}{{ n.a }}";
    let cycle = "{% set n = namespace() %}{% set n.n = n %}{{ n }}";
    let hidden = "{% set n = namespace() %}{% set n.n = [{'a': n}] %}{{ n }}";
    let pair = "{% set n = namespace() %}{% set n.a, n.b = [1], n %}{{ n }}";
    let mutable = "{% set n = namespace() %}{% set l = [n] %}{% set n.l = l %}{{ l.pop() }}";
    for source in [nest, cycle, hidden, pair, mutable] {
        let got = eval(source, json!(0));
        assert!(matches!(got, Err(TemplateError::Render { .. })), "{source}: {got:?}");
    }
    let list = "{% set l = [] %}{% set _ = l.append(l) %}{% set _ = l.append(l) %}{{ l }}";
    assert_eq!(eval(list, json!(0)).unwrap(), "[[], [[]]]");
    let namespace = "{% set n = namespace() %}{% set l = [] %}{% set n.l = l %}\
                     {% set _ = l.append(n) %}{{ l }}";
    assert_eq!(eval(namespace, json!(0)).unwrap(), "[{'l': []}]");
}

fn call_conversation() -> Vec<Message> {
    let call = ToolCall {
        id: Some("call00001".into()),
        kind: "function".into(),
        function: FunctionCall { name: "f".into(), arguments: json!("{\"b\": 1, \"a\": \"x\"}") },
    };
    vec![
        Message::text("user", "u"),
        Message { role: "assistant".into(), tool_calls: vec![call], ..Message::default() },
    ]
}

#[test]
fn arguments_come_in_the_form_that_the_template_takes() {
    let loop_calls = |body: &str| {
        format!(
            "{{% for m in messages %}}{{{{ m.content }}}}{{% for c in m.tool_calls or [] %}}\
             [{{{{ c.function.name }}}} {body}]{{% endfor %}}{{% endfor %}}"
        )
    };
    let cases = [
        ("{{ c.function.arguments | tojson }}", r#"u[f {"b": 1, "a": "x"}]"#),
        ("{{ c.function.arguments }}", r#"u[f {"b": 1, "a": "x"}]"#),
        ("{{ '' + c.function.arguments }}", r#"u[f {"b": 1, "a": "x"}]"#),
        (
            "{% for k, v in c.function.arguments.items() %}{{ k }}:{{ v }} {% endfor %}",
            "u[f b:1 a:x ]",
        ),
    ];
    let messages = call_conversation();
    let request = RenderRequest { messages: &messages, ..RenderRequest::default() };
    for (body, want) in cases {
        let template = compile(&loop_calls(body));
        assert_eq!(template.render(&request, &clock()).unwrap(), want, "{body}");
        assert!(!template.features().tools);
    }
}

#[test]
fn absent_content_is_null_only_where_the_template_asks_for_that() {
    let source = "{% for m in messages %}{% if m.content is none %}\
                  {{ m.tool_calls[0].function.name }}{{ m.tool_calls[0].function.arguments | tojson }}\
                  {% else %}{{ m.content }};{% endif %}{% endfor %}";
    let messages = call_conversation();
    let request = RenderRequest { messages: &messages, ..RenderRequest::default() };
    let got = compile(source).render(&request, &clock()).unwrap();
    assert_eq!(got, r#"u;f{"b": 1, "a": "x"}"#);
    let plain = compile("{% for m in messages %}{{ m.content }};{% endfor %}");
    assert_eq!(plain.render(&request, &clock()).unwrap(), "u;;");
}

#[test]
fn content_comes_as_text_or_as_parts() {
    let parts: Content = serde_json::from_value(
        json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]),
    )
    .unwrap();
    let messages = [Message { role: "user".into(), content: Some(parts), ..Message::default() }];
    let request = RenderRequest { messages: &messages, ..RenderRequest::default() };
    let text = compile("{{ messages[0].content + '!' }}");
    assert_eq!(text.render(&request, &clock()).unwrap(), "a\nb!");
    let typed = compile("{% for p in messages[0].content %}<{{ p.text }}>{% endfor %}");
    assert_eq!(typed.render(&request, &clock()).unwrap(), "<a\nb>");
}

#[test]
fn features_are_what_the_template_does() {
    let source = "{% for m in messages %}{% if m.role == 'system' %}\
                  {{ raise_exception('System role not supported') }}{% endif %}{{ m.content }}\
                  {% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}\
                  {% if not enable_thinking | default(true) %}<think></think>{% endif %}";
    let features = compile(source).features().clone();
    assert!(features.tools && !features.tool_calls && !features.system_role);
    assert!(features.thinking.switchable);
    assert!(
        matches!(features.thinking.style, Some(ReasoningStyle::Tags(t)) if t.open == "<think>")
    );
}

#[test]
fn extra_variables_cannot_replace_the_conversation() {
    let template = compile("{{ messages[0].content }}{{ reasoning_effort }}{{ tools is defined }}");
    let messages = [Message::text("user", "u")];
    let extra = json!({ "messages": [], "tools": [], "reasoning_effort": "high" });
    let request = RenderRequest {
        messages: &messages,
        extra: extra.as_object().unwrap().clone(),
        ..RenderRequest::default()
    };
    assert_eq!(template.render(&request, &clock()).unwrap(), "uhighFalse");
}

#[test]
fn a_leading_bos_is_removed_where_the_tokenizer_adds_it() {
    assert_eq!(strip_leading_bos("<s>a<s>", "<s>", true), "a<s>");
    assert_eq!(strip_leading_bos("<s>a", "<s>", false), "<s>a");
    assert_eq!(strip_leading_bos("a", "", true), "a");
}

#[test]
fn the_system_clock_tells_this_century() {
    assert!(SystemClock.now().timestamp() > Timestamp::from_second(1_700_000_000).unwrap());
}

#[test]
fn a_files_own_template_is_chosen() {
    let choose = |pairs: &[(&str, &str)], has_tools: bool| {
        let mut writer = infr_gguf::Writer::new();
        writer.set("llama.block_count", 40_u32);
        for (key, value) in pairs {
            writer.set(key, *value);
        }
        let bytes = writer.begin(Vec::new()).unwrap().finish().unwrap();
        let file = infr_gguf::Gguf::from_bytes("x", bytes).unwrap();
        let template = ChatTemplate::from_metadata(file.metadata(), has_tools, specials());
        template.unwrap().source().to_owned()
    };
    let arch = ("general.architecture", "llama");
    let plain = ("tokenizer.chat_template", "plain");
    let tools = ("tokenizer.chat_template.tool_use", "tools");
    assert_eq!(choose(&[arch, plain, tools], false), "plain");
    assert_eq!(choose(&[arch, plain, tools], true), "tools");
    assert_eq!(choose(&[arch, plain], true), "plain");
    assert_eq!(choose(&[arch], false), builtin::CHATML);
    let tekken = ("tokenizer.ggml.pre", "tekken");
    assert_eq!(choose(&[arch, tekken], false), builtin::MISTRAL_V7_TEKKEN);
    assert_eq!(choose(&[arch, tekken, plain], false), "plain");
}

#[test]
fn mistrals_built_in_format() {
    let messages =
        [Message::text("system", "s"), Message::text("user", "u"), Message::text("assistant", "a")];
    let request = RenderRequest { messages: &messages, ..RenderRequest::default() };
    let text = compile(builtin::MISTRAL_V7_TEKKEN).render(&request, &clock()).unwrap();
    assert_eq!(text, "<s>[SYSTEM_PROMPT]s[/SYSTEM_PROMPT][INST]u[/INST]a</s>");
}
