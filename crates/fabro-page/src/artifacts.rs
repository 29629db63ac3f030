//! The files that stages left.

use askama::Template;
use fabro_inspect::ArtifactRow;

use crate::Links;
use crate::texts::{render, size};

struct File<'a> {
    path: &'a str,
    /// Where its bytes are, on a server.
    address: Option<String>,
    stage: Option<(&'a str, Option<String>)>,
    size: String,
    media_type: &'a str,
    sha256: &'a str,
}

#[derive(Template)]
#[template(path = "artifacts.html")]
struct Artifacts<'a> {
    files: Vec<File<'a>>,
    with_stage: bool,
}

/// A list of artifacts, with the stage of each if `with_stage`.
pub fn artifacts(list: &[&ArtifactRow], with_stage: bool, links: &Links) -> String {
    let file = |row: &&'_ ArtifactRow| {
        // The stage of a sub-workflow has no page below this run.
        let link = row.above.is_none().then(|| links.stage(&row.stage));
        (with_stage.then_some(link), links.artifact(&row.sha256))
    };
    let files = list.iter().map(|row| {
        let (link, address) = file(row);
        File {
            path: &row.path,
            address,
            stage: link.map(|link| (row.stage.as_str(), link)),
            size: size(usize::try_from(row.size).unwrap_or(usize::MAX)),
            media_type: &row.media_type,
            sha256: &row.sha256,
        }
    });
    render(&Artifacts { files: files.collect(), with_stage })
}
