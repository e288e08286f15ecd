//! Stop strings over a stream of text: what might be the start of one is held back.

/// Watches a stream for the first of several texts.
#[derive(Debug, Clone, Default)]
pub struct StopMatcher {
    stops: Vec<String>,
    held: String,
    found: bool,
}

impl StopMatcher {
    /// A matcher for these texts; empty ones are ignored.
    pub fn new(stops: &[String]) -> StopMatcher {
        let stops = stops.iter().filter(|s| !s.is_empty()).cloned().collect();
        StopMatcher { stops, ..StopMatcher::default() }
    }

    /// Whether a stop text was found; nothing passes after it.
    pub fn found(&self) -> bool {
        self.found
    }

    /// Takes the next piece and gives what surely stands before any stop text.
    pub fn push(&mut self, text: &str) -> String {
        if self.found {
            return String::new();
        }
        self.held.push_str(text);
        if let Some(at) = self.stops.iter().filter_map(|s| self.held.find(s.as_str())).min() {
            self.found = true;
            self.held.truncate(at);
            return std::mem::take(&mut self.held);
        }
        let keep = self.stops.iter().map(|s| overlap(&self.held, s)).max().unwrap_or(0);
        self.held.drain(..self.held.len() - keep).collect()
    }

    /// Ends the stream and gives what was held.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

/// Bytes of the longest end of `text` that a longer text could complete to `stop`.
fn overlap(text: &str, stop: &str) -> usize {
    let longest = text.len().min(stop.len() - 1);
    (1..=longest)
        .rev()
        .find(|&n| stop.is_char_boundary(n) && text.ends_with(&stop[..n]))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(stops: &[&str], pieces: &[&str]) -> (String, bool) {
        let stops: Vec<String> = stops.iter().map(|s| (*s).to_string()).collect();
        let mut matcher = StopMatcher::new(&stops);
        let mut out: String = pieces.iter().map(|p| matcher.push(p)).collect();
        if !matcher.found() {
            out += &matcher.finish();
        }
        (out, matcher.found())
    }

    #[test]
    fn stops_across_pieces() {
        assert_eq!(run(&["END"], &["abc E", "N", "D def"]), ("abc ".into(), true));
        assert_eq!(run(&["END"], &["abc E", "N", "X"]), ("abc ENX".into(), false));
        assert_eq!(run(&["b", "ab"], &["xab"]), ("x".into(), true));
        assert_eq!(run(&[], &["a", "b"]), ("ab".into(), false));
        assert_eq!(run(&["é!"], &["é", "é", "!"]), ("é".into(), true));
    }

    #[test]
    fn cutting_does_not_matter() {
        let text = "one\ntwo\n\nthree";
        let whole = run(&["\n\n", "wo\n\nX"], &[text]);
        let cuts: Vec<String> = text.chars().map(String::from).collect();
        let cuts: Vec<&str> = cuts.iter().map(String::as_str).collect();
        assert_eq!(run(&["\n\n", "wo\n\nX"], &cuts), whole);
        assert_eq!(whole, ("one\ntwo".into(), true));
    }
}
