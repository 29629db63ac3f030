//! The table of contents: parts (`# Part`) with links in lists of two levels.

use anyhow::{Context, Result, bail};

use super::{SUMMARY, page};

pub(super) struct Summary {
    pub(super) parts: Vec<Part>,
}

pub(super) struct Part {
    /// Empty before the first heading.
    pub(super) title: String,
    pub(super) entries: Vec<Entry>,
}

pub(super) struct Entry {
    pub(super) title: String,
    /// The page's path from the root of the repository.
    pub(super) source: String,
    pub(super) children: Vec<Entry>,
}

impl Summary {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let mut parts = vec![Part { title: String::new(), entries: Vec::new() }];
        for (line, number) in text.lines().zip(1..) {
            let here = || format!("{SUMMARY}:{number}");
            let Some(part) = parts.last_mut() else { bail!("{}: no part", here()) };
            if let Some(title) = line.strip_prefix("# ") {
                parts.push(Part { title: title.to_owned(), entries: Vec::new() });
            } else if let Some(link) = line.trim_start().strip_prefix("- ") {
                let entry = entry(link).with_context(here)?;
                let siblings = match (line.starts_with(' '), part.entries.last_mut()) {
                    (true, Some(parent)) => &mut parent.children,
                    (true, None) => bail!("{}: nothing stands above this entry", here()),
                    (false, _) => &mut part.entries,
                };
                siblings.push(entry);
            } else if !line.trim().is_empty() {
                bail!("{}: write `# Part` or `- [Title](page.md)`", here());
            }
        }
        parts.retain(|part| !part.entries.is_empty());
        Ok(Self { parts })
    }

    /// All entries, in the order of reading.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        let entries = self.parts.iter().flat_map(|part| &part.entries);
        entries.flat_map(|entry| std::iter::once(entry).chain(&entry.children))
    }
}

fn entry(link: &str) -> Result<Entry> {
    let parts = link.strip_prefix('[').and_then(|rest| rest.strip_suffix(')')?.split_once("]("));
    let (title, path) = parts.context("write [Title](page.md)")?;
    let source = page::joined("docs", path);
    Ok(Entry { title: title.to_owned(), source, children: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_two_levels_are_read() {
        let text = "- [Start](../README.md)\n\n# Learn\n\n- [A](a.md)\n  - [B](b/README.md)\n- [C](c.md)\n";
        let summary = Summary::parse(text).unwrap();
        let titles: Vec<_> = summary.parts.iter().map(|part| part.title.as_str()).collect();
        assert_eq!(titles, ["", "Learn"]);
        let sources: Vec<_> = summary.entries().map(|entry| entry.source.as_str()).collect();
        assert_eq!(sources, ["README.md", "docs/a.md", "docs/b/README.md", "docs/c.md"]);
        assert_eq!(summary.parts[1].entries[0].children.len(), 1);
    }

    #[test]
    fn other_lines_are_refused_with_their_place() {
        let check = |text: &str| format!("{:#}", Summary::parse(text).err().unwrap());
        assert_eq!(
            check("# A\ntext\n"),
            "docs/SUMMARY.md:2: write `# Part` or `- [Title](page.md)`"
        );
        assert_eq!(check("- a.md\n"), "docs/SUMMARY.md:1: write [Title](page.md)");
        assert_eq!(check("  - [A](a.md)\n"), "docs/SUMMARY.md:1: nothing stands above this entry");
    }
}
