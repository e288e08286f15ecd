//! One file from the Hub: its headers say which bytes it is, then the bytes are fetched.

use crate::cache::Repo;
use crate::demo::DemoModel;
use crate::http::{Client, Header, Response, header, stream, success};
use crate::sink::{Expected, store};
use crate::{HubError, HubOptions, Progress, url};

/// Redirects of a renamed repository that are followed.
const MAX_MOVES: usize = 5;

/// Downloads a file as a blob; the commit that it belongs to.
pub(crate) fn download(
    client: &Client,
    repo: &Repo,
    model: &DemoModel,
    options: &HubOptions,
    progress: &mut dyn Progress,
) -> Result<String, HubError> {
    let endpoint = options.endpoint.trim_end_matches('/');
    let address = format!("{endpoint}/{}/resolve/main/{}", model.repo, model.file);
    let token = options.token.as_ref().map(|token| format!("Bearer {token}"));
    let headers: Vec<Header<'_>> =
        token.iter().map(|token| ("Authorization", token.as_str())).collect();
    let (address, answer) = find(client, address, &headers)?;
    let facts = Facts::read(&address, &answer)?;
    if facts.sha256 != model.sha256 {
        return Err(HubError::Checksum {
            what: format!("{} of the Hub", model.file),
            wanted: model.sha256.into(),
            got: facts.sha256,
        });
    }
    let response = client.get(&address, &headers)?;
    progress.start(facts.size, model.file);
    let expected = Expected { what: model.file, sha256: model.sha256, size: facts.size };
    let broken = |error: &std::io::Error| HubError::Transport {
        url: url::without_credentials(&address),
        message: error.to_string(),
    };
    let stored = store(repo, &expected, &mut stream(response), progress, &broken);
    progress.finish();
    stored?;
    Ok(facts.commit)
}

/// The file's headers, and the address where they were found.
fn find(
    client: &Client,
    mut address: String,
    headers: &[Header<'_>],
) -> Result<(String, Response), HubError> {
    for _ in 0..MAX_MOVES {
        let response = client.head(&address, headers)?;
        if !response.status().is_redirection() {
            success(&address, &response)?;
            return Ok((address, response));
        }
        // A large file's bytes are elsewhere, and the answer that says so has its headers; an
        // answer without them says that the repository has moved.
        let moved = header(&response, "location").and_then(|to| url::join(&address, to));
        match moved {
            Some(moved)
                if header(&response, "x-linked-etag").is_none()
                    && url::same_host(&moved, &address) =>
            {
                address = moved;
            }
            _ => return Ok((address, response)),
        }
    }
    Err(bad(&address, "is redirected too often"))
}

fn bad(address: &str, message: &str) -> HubError {
    HubError::BadAnswer { url: url::without_credentials(address), message: message.into() }
}

/// What the Hub says about a file.
struct Facts {
    commit: String,
    sha256: String,
    size: Option<u64>,
}

impl Facts {
    fn read(address: &str, response: &Response) -> Result<Self, HubError> {
        let is_hex = |text: &&str| text.bytes().all(|b| b.is_ascii_hexdigit());
        let etag = header(response, "x-linked-etag").or_else(|| header(response, "etag"));
        let sha256 = etag
            .map(|etag| etag.trim_start_matches("W/").trim_matches('"'))
            .filter(|etag| etag.len() == 64)
            .filter(is_hex)
            .ok_or_else(|| bad(address, "the answer states no sha256 of the file"))?;
        let commit = header(response, "x-repo-commit")
            .filter(|commit| !commit.is_empty())
            .filter(is_hex)
            .ok_or_else(|| bad(address, "the answer states no commit"))?;
        let linked = header(response, "x-linked-size");
        let own = response.status().is_success();
        let length = if own { header(response, "content-length") } else { None };
        Ok(Self {
            commit: commit.into(),
            sha256: sha256.to_ascii_lowercase(),
            size: linked.or(length).and_then(|size| size.parse().ok()),
        })
    }
}
