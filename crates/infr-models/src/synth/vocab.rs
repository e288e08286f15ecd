//! A generated vocabulary: byte-level BPE whose text decodes, and a ChatML template.

use infr_gguf::{StringArray, Writer};

/// Control tokens in front of the bytes.
const CONTROL: [&str; 4] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|fim_pad|>"];

/// The chat template of Qwen and many others, in its plainest form.
const CHATML: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + \
    message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}\
    {{ '<|im_start|>assistant\\n' }}{% endif %}";

/// The character that stands for a byte in byte-level BPE (the GPT-2 mapping).
fn byte_char(byte: u8) -> char {
    let printable = |b: u8| matches!(b, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    if printable(byte) {
        return char::from(byte);
    }
    let place = (0..byte).filter(|&b| !printable(b)).count() as u32;
    char::from_u32(256 + place).unwrap_or(' ')
}

/// Sets the tokenizer's keys for `size` tokens.
///
/// Behind control tokens and bytes stand words of one more lower-case letter each, shortest first, so
/// that every word follows from a merge of two earlier tokens.
pub(crate) fn write(writer: &mut Writer, size: u32) {
    let size = size as usize;
    let mut tokens: Vec<String> = CONTROL.iter().map(|&t| t.to_owned()).collect();
    let mut kinds: Vec<i32> = vec![3; CONTROL.len()];
    tokens.extend((0..=255u8).map(|b| byte_char(b).to_string()));
    let mut merges = StringArray::new();
    let space = CONTROL.len() + usize::from(b' ');
    let mut starts: Vec<usize> = (b'a'..=b'z').map(|b| CONTROL.len() + usize::from(b)).collect();
    starts.insert(0, space);
    let mut next = tokens.len();
    'words: loop {
        for start in std::mem::take(&mut starts) {
            for letter in 'a'..='z' {
                if tokens.len() >= size {
                    break 'words;
                }
                merges.push(format!("{} {letter}", tokens[start]).as_bytes());
                let word = format!("{}{letter}", tokens[start]);
                tokens.push(word);
            }
        }
        starts = (next..tokens.len()).collect();
        next = tokens.len();
    }
    tokens.truncate(size);
    kinds.resize(tokens.len(), 1);
    writer.set("tokenizer.ggml.model", "gpt2");
    writer.set("tokenizer.ggml.pre", "qwen2");
    writer.set("tokenizer.ggml.tokens", tokens.iter().collect::<StringArray>());
    writer.set("tokenizer.ggml.token_type", kinds);
    writer.set("tokenizer.ggml.merges", merges);
    writer.set("tokenizer.ggml.bos_token_id", 0u32);
    writer.set("tokenizer.ggml.eos_token_id", 2u32);
    writer.set("tokenizer.ggml.padding_token_id", 0u32);
    writer.set("tokenizer.ggml.add_bos_token", false);
    writer.set("tokenizer.chat_template", CHATML);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_map_as_in_gpt2() {
        assert_eq!(byte_char(b'A'), 'A');
        assert_eq!(byte_char(b' '), 'Ġ');
        assert_eq!(byte_char(b'\n'), 'Ċ');
        let mut all: Vec<char> = (0..=255).map(byte_char).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 256);
    }
}
