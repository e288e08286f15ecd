//! Rewrites a template's source where the engine needs other words for the same thing.
//!
//! - `{% generation %}` marks the assistant's tokens for training; it becomes `{% with %}`, which
//!   keeps its scope and its whitespace control.
//! - Python's lists and dicts can be changed in place, the engine's cannot. In templates that
//!   call a changing method, every list and dict literal is wrapped in a constructor of a value
//!   that can (see [`super::mutable`]); other templates are left as they are.

/// The constructor that wraps list literals.
pub(super) const LIST: &str = "__infr_list";
/// The constructor that wraps dict literals.
pub(super) const DICT: &str = "__infr_dict";

/// The check around what a namespace is given.
pub(super) const KEPT: &str = "__infr_kept";

const CHANGING: &[&str] = &[
    ".append(",
    ".extend(",
    ".insert(",
    ".pop(",
    ".remove(",
    ".clear(",
    ".update(",
    ".setdefault(",
    ".sort(",
    ".reverse(",
];

/// Words after which an expression starts; after any other word a bracket is a subscript.
const BEFORE_OPERAND: &[&str] =
    &["and", "do", "elif", "else", "if", "in", "is", "not", "or", "return", "set"];

/// The source to compile.
pub(super) fn prepare(source: &str) -> String {
    let wrap = CHANGING.iter().any(|method| source.contains(method));
    Rewriter { rest: source, out: String::with_capacity(source.len() + 64), wrap }.run()
}

struct Rewriter<'s> {
    rest: &'s str,
    out: String,
    wrap: bool,
}

impl Rewriter<'_> {
    fn run(mut self) -> String {
        while let Some(at) = self.rest.find('{') {
            self.take(at);
            match self.rest.as_bytes().get(1) {
                Some(b'#') => {
                    let end = self.rest.find("#}").map_or(self.rest.len(), |at| at + 2);
                    self.take(end);
                }
                Some(b'{') => {
                    self.take(2);
                    self.expression("}}", false);
                }
                Some(b'%') => self.statement(),
                _ => self.take(1),
            }
        }
        self.take(self.rest.len());
        self.out
    }

    fn take(&mut self, len: usize) {
        self.out.push_str(&self.rest[..len]);
        self.rest = &self.rest[len..];
    }

    fn statement(&mut self) {
        self.take(2);
        let marks = self.rest.len() - self.rest.trim_start_matches(['-', '+']).len();
        self.take(marks);
        let blank = self.rest.len() - self.rest.trim_start().len();
        self.take(blank);
        let word_len = word_len(self.rest);
        match &self.rest[..word_len] {
            "generation" => self.replace(word_len, "with"),
            "endgeneration" => self.replace(word_len, "endwith"),
            "raw" => {
                let end = end_of_raw(self.rest);
                self.take(end);
                return;
            }
            "set" => {
                if let Some(end) = field_target(self.rest) {
                    self.take(end);
                    self.out.push_str(KEPT);
                    self.out.push('(');
                    self.expression("%}", true);
                    return;
                }
            }
            _ => {}
        }
        self.expression("%}", false);
    }

    fn replace(&mut self, len: usize, by: &str) {
        self.out.push_str(by);
        self.rest = &self.rest[len..];
    }

    /// Copies up to and with the closing delimiter, wrapping literals on the way; `in_call`
    /// closes a parenthesis before it.
    fn expression(&mut self, close: &str, in_call: bool) {
        let mut open: Vec<bool> = Vec::new();
        let mut operand_ended = false;
        while let Some(first) = self.rest.chars().next() {
            let unmarked = self.rest.strip_prefix(['-', '+']).unwrap_or(self.rest);
            if open.is_empty() && unmarked.starts_with(close) {
                if in_call {
                    self.out.push(')');
                }
                self.take(self.rest.len() - unmarked.len() + close.len());
                return;
            }
            match first {
                '\'' | '"' => {
                    self.take(string_len(self.rest, first));
                    operand_ended = true;
                }
                '[' | '{' => {
                    let wrapped = self.wrap && !operand_ended;
                    if wrapped {
                        self.out.push_str(if first == '[' { LIST } else { DICT });
                        self.out.push('(');
                    }
                    open.push(wrapped);
                    self.take(1);
                    operand_ended = false;
                }
                '(' => {
                    open.push(false);
                    self.take(1);
                    operand_ended = false;
                }
                ')' | ']' | '}' => {
                    self.take(1);
                    if open.pop() == Some(true) {
                        self.out.push(')');
                    }
                    operand_ended = true;
                }
                _ if first.is_alphanumeric() || first == '_' => {
                    let len = word_len(self.rest);
                    operand_ended = !BEFORE_OPERAND.contains(&&self.rest[..len]);
                    self.take(len);
                }
                _ => {
                    operand_ended &= first.is_whitespace();
                    self.take(first.len_utf8());
                }
            }
        }
    }
}

fn word_len(text: &str) -> usize {
    text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len())
}

/// For a `set` whose target is a field: the length up to and with `=`.
fn field_target(text: &str) -> Option<usize> {
    let at = text.find(['=', '%'])?;
    (text[at..].starts_with('=') && text[..at].contains('.')).then_some(at + 1)
}

fn string_len(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

/// The length up to `endraw`, which the caller's loop then reads as a statement of its own.
fn end_of_raw(text: &str) -> usize {
    let mut from = 0;
    while let Some(at) = text[from..].find("{%") {
        let tag = from + at;
        let inner = text[tag + 2..].trim_start_matches(['-', '+']).trim_start();
        if inner.starts_with("endraw") {
            return tag;
        }
        from = tag + 2;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generation_tags_keep_their_whitespace_control() {
        let source = "{%- generation -%}a{%+ endgeneration %}{# {% generation %} #}";
        assert_eq!(prepare(source), "{%- with -%}a{%+ endwith %}{# {% generation %} #}");
    }

    #[test]
    fn literals_are_wrapped_only_where_something_changes_them() {
        let plain = "{% set a = [1] %}{{ a[0] }}";
        assert_eq!(prepare(plain), plain);
        let source = "{% set a = [1, [2]] %}{% set _ = a.append({'k]': a[0]}) %}{{ a[0][1] }}";
        assert_eq!(
            prepare(source),
            "{% set a = __infr_list([1, __infr_list([2])]) %}\
             {% set _ = a.append(__infr_dict({'k]': a[0]})) %}{{ a[0][1] }}"
        );
    }

    #[test]
    fn what_a_namespace_keeps_is_checked() {
        let source = "{%- set n.a = x if y else [1] -%}{% set n = x.y %}{% set a %}.={% endset %}";
        assert_eq!(
            prepare(source),
            "{%- set n.a =__infr_kept( x if y else [1] )-%}{% set n = x.y %}{% set a %}.={% endset %}"
        );
    }

    #[test]
    fn text_strings_and_raw_blocks_are_left_alone() {
        let source = "{ [x] {% raw %}{% generation %}{{ [1] }}{% endraw %}{{ '\\'[' ~ x.pop() }}é";
        assert_eq!(prepare(source), source);
        for broken in ["{{ [", "{% raw %}", "{%", "{{ 'a", "{#", "{% generation"] {
            prepare(broken);
        }
    }
}
