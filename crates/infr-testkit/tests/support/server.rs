//! llama.cpp's server as an oracle for log-probabilities.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The program.
pub(crate) struct LlamaServer {
    program: PathBuf,
}

impl LlamaServer {
    /// The program in the folder that `INFR_PEERS` names.
    pub(crate) fn find() -> Option<LlamaServer> {
        let program = std::env::var_os("INFR_PEERS").map(PathBuf::from);
        let program = program.map(|p| p.join("llama/bin/llama-server")).filter(|p| p.exists());
        if program.is_none() {
            println!("skipped: INFR_PEERS names no folder with llama/bin/llama-server");
        }
        program.map(|program| LlamaServer { program })
    }

    /// The most likely tokens after a prompt, with log-probabilities.
    pub(crate) fn last_row(&self, gguf: &[u8], tokens: &[u32], top: usize) -> Vec<(u32, f32)> {
        let file = std::env::temp_dir().join(format!("infr-golden-{}.gguf", std::process::id()));
        std::fs::write(&file, gguf).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut child = Command::new(&self.program)
            .arg("-m")
            .arg(&file)
            .args(["--port", &port.to_string(), "-c", "256", "-np", "1", "-t", "1"])
            .args(["-fa", "off", "-ctk", "f32", "-ctv", "f32", "--no-warmup"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let answer = ask(port, tokens, top);
        let _ = child.kill();
        let _ = child.wait();
        let _ = std::fs::remove_file(&file);
        parse(&answer)
    }
}

fn ask(port: u16, tokens: &[u32], top: usize) -> String {
    let deadline = Instant::now() + Duration::from_secs(120);
    // Answers leave out tokens that end inside a character, so one that is a word is asked for; the
    // probabilities are those of the unchanged logits.
    let body = format!(
        "{{\"prompt\":{tokens:?},\"n_predict\":1,\"temperature\":0,\"n_probs\":{top},\
         \"cache_prompt\":false,\"logit_bias\":[[300,1000.0]]}}"
    );
    while Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(50));
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { continue };
        let request = format!(
            "POST /completion HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut answer = String::new();
        let sent = stream.write_all(request.as_bytes());
        if sent.and_then(|()| stream.read_to_string(&mut answer)).is_err() {
            continue;
        }
        if answer.contains("completion_probabilities") {
            return answer;
        }
        assert!(answer.contains(" 503 "), "{answer}");
    }
    panic!("llama-server gave no answer");
}

/// Ids and log-probabilities in `top_logprobs`.
fn parse(answer: &str) -> Vec<(u32, f32)> {
    let at = answer.find("top_logprobs").unwrap();
    let number = |text: &str| text.split([',', '}']).next().unwrap().trim().to_owned();
    let list = answer[at..].split(']').collect::<Vec<_>>();
    let mut out = Vec::new();
    for item in list {
        let (Some(id), Some(_)) = (item.split("\"id\":").nth(1), item.split("\"bytes\"").nth(1))
        else {
            if !out.is_empty() && !item.contains("logprob\":") {
                break;
            }
            continue;
        };
        out.push((number(id).parse().unwrap(), 0.0));
    }
    let probs = answer[at..].split("\"logprob\":").skip(1);
    for (pair, text) in out.iter_mut().zip(probs) {
        pair.1 = number(text).parse().unwrap();
    }
    out
}
