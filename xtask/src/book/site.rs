//! What is around a page: navigation, contents, next and previous page, search.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, Result};
use pulldown_cmark::HeadingLevel;
use serde_json::json;

use super::highlight::escape;
use super::page::{Page, api_path};
use super::{Book, Entry};

const FRAME: &str = include_str!("page.html");
const STYLE: &str = include_str!("book.css");
const SCRIPT: &str = include_str!("book.js");

/// A whole page, from the HTML of its text.
pub(super) fn page(book: &Book, at: usize, html: &str) -> String {
    let page = &book.pages[at];
    let title = if page.path == "index.html" { "Fabro" } else { &page.title };
    let before = at.checked_sub(1).and_then(|at| book.pages.get(at));
    let after = book.pages.get(at + 1);
    let parts = [
        ("{title}", escape(title)),
        ("{root}", page.link_to("")),
        ("{navigation}", navigation(book, page)),
        ("{contents}", contents(page)),
        ("{api}", api(book, page)),
        ("{before}", step(page, before, "before", "Previous")),
        ("{after}", step(page, after, "after", "Next")),
        ("{source}", escape(&page.source)),
        // Last: its text may contain the words above.
        ("{text}", html.to_owned()),
    ];
    parts.iter().fold(FRAME.to_owned(), |frame, (name, value)| frame.replace(name, value))
}

/// Style, script, and the texts for the search, as a script: pages from a disk may not fetch files.
pub(super) fn assets(book: &Book) -> Result<BTreeMap<String, Vec<u8>>> {
    let sections = book.pages.iter().flat_map(|page| {
        let sections = page.sections.iter().filter(|it| !it.text.trim().is_empty());
        sections.map(|section| {
            let hash = if section.anchor.is_empty() { "" } else { "#" };
            let text = section.text.split_whitespace().collect::<Vec<_>>().join(" ");
            json!([
                format!("{}{hash}{}", page.path, section.anchor),
                page.title,
                section.title,
                text
            ])
        })
    });
    let sections = serde_json::to_string(&sections.collect::<Vec<_>>())
        .context("write the texts for the search")?;
    Ok(BTreeMap::from([
        ("book.css".to_owned(), STYLE.into()),
        ("book.js".to_owned(), SCRIPT.into()),
        ("search.js".to_owned(), format!("window.SECTIONS = {sections};\n").into_bytes()),
    ]))
}

fn navigation(book: &Book, page: &Page) -> String {
    let mut html = String::new();
    for part in &book.summary.parts {
        if !part.title.is_empty() {
            let _ = write!(html, "<h2>{}</h2>", escape(&part.title));
        }
        html.push_str(&entries(book, page, &part.entries));
    }
    html
}

fn entries(book: &Book, page: &Page, list: &[Entry]) -> String {
    let mut html = String::from("<ul>");
    for entry in list {
        let Some(target) = book.by_source.get(&entry.source).map(|&at| &book.pages[at]) else {
            continue;
        };
        let current = if target.path == page.path { " aria-current=\"page\"" } else { "" };
        let link = page.link_to(&target.path);
        let link = format!("<a href=\"{link}\"{current}>{}</a>", escape(&entry.title));
        let is_open =
            std::iter::once(entry).chain(&entry.children).any(|it| it.source == page.source);
        if entry.children.is_empty() {
            let _ = write!(html, "<li>{link}</li>");
        } else {
            let open = if is_open { " open" } else { "" };
            let children = entries(book, page, &entry.children);
            let _ = write!(
                html,
                "<li><details{open}><summary>{link}</summary>{children}</details></li>"
            );
        }
    }
    html + "</ul>"
}

/// The headings of the page.
fn contents(page: &Page) -> String {
    let headings =
        page.headings.iter().filter(|it| matches!(it.level, HeadingLevel::H2 | HeadingLevel::H3));
    let links = headings.map(|heading| {
        format!(
            "<li class=\"{}\"><a href=\"#{}\">{}</a></li>",
            heading.level,
            heading.anchor,
            escape(&heading.text)
        )
    });
    let links: String = links.collect();
    if links.is_empty() { String::new() } else { format!("<h2>On this page</h2><ul>{links}</ul>") }
}

/// The link of a crate's page to its documentation.
fn api(book: &Book, page: &Page) -> String {
    let Some(library) = page.library().filter(|_| book.has_api) else { return String::new() };
    let link = page.link_to(&api_path(&library));
    format!("<p class=\"api\"><a href=\"{link}\">Documentation of its public items</a></p>")
}

fn step(page: &Page, other: Option<&Page>, class: &str, word: &str) -> String {
    let Some(other) = other else { return String::new() };
    let link = page.link_to(&other.path);
    let title = escape(&other.title);
    format!(
        "<a class=\"{class}\" rel=\"{}\" href=\"{link}\"><small>{word}</small>{title}</a>",
        if class == "before" { "prev" } else { "next" }
    )
}
