//! `cargo xtask book`: the pages of `docs`, the examples and the READMEs of crates as one folder of HTML that needs no server
//! and no network.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use walkdir::WalkDir;

use crate::{cargo, say};
use page::{Page, Target};
use summary::{Entry, Summary};

mod highlight;
pub(crate) mod page;
mod site;
mod summary;

#[derive(clap::Args, Default)]
pub(crate) struct Args {
    /// The folder to write; its contents are replaced
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Leave out the documentation of the public API, which takes minutes to build the first time
    #[arg(long)]
    no_api: bool,
}

/// The table of contents.
const SUMMARY: &str = "docs/SUMMARY.md";

/// Marks a folder as one that this command has written.
const MARKER: &str = ".fabro-book";

pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let book = Book::load(root, !args.no_api)?;
    let files = book.files()?;
    let out = args.out.clone().unwrap_or_else(|| cargo::target_dir(root).join("book"));
    clear(&out)?;
    for (name, content) in &files {
        write(&out.join(name), content)?;
    }
    if book.has_api {
        cargo::run(root, &["doc", "--workspace", "--no-deps", "--quiet"], &[])?;
        copy(&cargo::target_dir(root).join("doc"), &out.join("api"))?;
        book.check_api(&out)?;
    }
    say(&format!("{} pages: {}", book.pages.len(), out.join("index.html").display()));
    Ok(())
}

/// All pages in memory.
struct Book {
    root: PathBuf,
    summary: Summary,
    /// In the order of the table of contents.
    pages: Vec<Page>,
    /// Where each source is in `pages`.
    by_source: BTreeMap<String, usize>,
    has_api: bool,
}

impl Book {
    fn load(root: &Path, has_api: bool) -> Result<Self> {
        let read = |path: &str| {
            fs::read_to_string(root.join(path)).with_context(|| format!("read {path}"))
        };
        let summary = Summary::parse(&read(SUMMARY)?)?;
        let mut pages = Vec::new();
        let mut by_source = BTreeMap::new();
        for entry in summary.entries() {
            if by_source.insert(entry.source.clone(), pages.len()).is_some() {
                bail!("{SUMMARY} names {} twice", entry.source);
            }
            pages.push(Page::parse(&entry.source, &entry.title, &read(&entry.source)?));
        }
        Ok(Self { root: root.to_owned(), summary, pages, by_source, has_api })
    }

    /// The files of the book, by path.
    fn files(&self) -> Result<BTreeMap<String, Vec<u8>>> {
        let mut files = BTreeMap::new();
        let mut problems = Vec::new();
        for (at, page) in self.pages.iter().enumerate() {
            let html = page.render(|link| match self.resolve(page, link) {
                Ok(target) => {
                    if let Target::File(path) = &target {
                        files.insert(page::file_path(path), path.clone());
                    }
                    target
                }
                Err(problem) => {
                    problems.push(format!("{}: {problem}", page.source));
                    Target::None
                }
            });
            files.insert(page.path.clone(), String::new());
            let html = site::page(self, at, &html);
            files.insert(page.path.clone(), html);
        }
        if !problems.is_empty() {
            bail!("{} links lead nowhere:\n{}", problems.len(), problems.join("\n"));
        }
        let mut contents = BTreeMap::new();
        for (name, text) in files {
            let content = if name.starts_with(page::FILES) {
                fs::read(self.root.join(&text)).with_context(|| format!("read {text}"))?
            } else {
                text.into_bytes()
            };
            contents.insert(name, content);
        }
        contents.extend(site::assets(self)?);
        Ok(contents)
    }

    /// Where a link of a page leads.
    fn resolve(&self, page: &Page, link: &str) -> Result<Target, String> {
        if link.contains("://") || link.starts_with("mailto:") {
            return Ok(Target::Elsewhere);
        }
        // A link to an item, which rustdoc resolves in the crate docs that a README is made of.
        if let Some((name, _)) = link.split_once("::") {
            let own = link.starts_with(page::ITEM).then(|| page.library());
            let library = own.unwrap_or_else(|| Some(name.to_owned()));
            return Ok(library.filter(|_| self.has_api).map_or(Target::None, Target::Api));
        }
        let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
        let source = if path.is_empty() { page.source.clone() } else { page.beside(path) };
        let readme = format!("{source}/README.md");
        let found = self.by_source.get(&source).or_else(|| self.by_source.get(&readme));
        if let Some(&at) = found {
            let target = &self.pages[at];
            if !anchor.is_empty() && !target.has_anchor(anchor) {
                return Err(format!("no heading of {} has the anchor `{anchor}`", target.source));
            }
            return Ok(Target::Page { path: target.path.clone(), anchor: anchor.to_owned() });
        }
        if Path::new(&source).extension().is_some_and(|it| it == "md") {
            return Err(format!("`{link}` is no page: add {source} to {SUMMARY}"));
        }
        if !self.root.join(&source).is_file() {
            return Err(format!("`{link}` does not exist"));
        }
        Ok(Target::File(source))
    }

    /// Each crate's page links to its documentation.
    fn check_api(&self, out: &Path) -> Result<()> {
        for name in self.pages.iter().filter_map(Page::library) {
            let path = out.join(page::api_path(&name));
            if !path.is_file() {
                bail!("there is no {}", path.display());
            }
        }
        Ok(())
    }
}

/// Empties the folder, unless something else is in it.
fn clear(out: &Path) -> Result<()> {
    let is_ours = out.join(MARKER).exists();
    let is_empty = fs::read_dir(out).map_or(true, |mut entries| entries.next().is_none());
    if !is_ours && !is_empty {
        bail!("{} has other files: name another folder", out.display());
    }
    if out.exists() {
        fs::remove_dir_all(out).with_context(|| format!("remove {}", out.display()))?;
    }
    write(&out.join(MARKER), b"")
}

fn write(path: &Path, content: &[u8]) -> Result<()> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
    }
    fs::write(path, content).with_context(|| format!("write {}", path.display()))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    for entry in WalkDir::new(from) {
        let entry = entry.with_context(|| format!("read {}", from.display()))?;
        let target = to.join(entry.path().strip_prefix(from)?);
        if entry.file_type().is_dir() {
            fs::create_dir_all(&target)?;
        } else if !entry.file_name().to_string_lossy().starts_with('.') {
            fs::copy(entry.path(), &target)
                .with_context(|| format!("copy {}", entry.path().display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn book() -> Book {
        Book::load(&crate::root(), false).unwrap()
    }

    #[test]
    fn every_link_of_the_book_leads_somewhere() {
        let files = book().files().unwrap();
        for name in ["index.html", "tutorial.html", "book.css", "book.js", "search.js"] {
            assert!(files.contains_key(name), "{name}");
        }
    }

    #[test]
    fn every_page_is_in_the_table_of_contents() {
        let root = crate::root();
        let known: BTreeSet<_> = book().by_source.into_keys().collect();
        let below = |folder: &str| {
            let walk = WalkDir::new(root.join(folder)).follow_links(false).into_iter();
            let paths = walk.map_while(Result::ok).map(walkdir::DirEntry::into_path);
            let pages = paths.filter(|path| {
                let name = path.file_name().unwrap_or_default();
                if folder == "docs" {
                    path.extension().is_some_and(|it| it == "md")
                } else {
                    name == "README.md"
                }
            });
            let names =
                pages.map(|path| path.strip_prefix(&root).unwrap().to_string_lossy().into_owned());
            names.filter(|name| name != SUMMARY).collect::<Vec<_>>()
        };
        for folder in ["docs", "examples", "crates"] {
            for name in below(folder) {
                assert!(known.contains(&name), "{SUMMARY} lacks {name}");
            }
        }
    }

    #[test]
    fn a_folder_with_other_files_is_not_emptied() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        clear(&out).unwrap();
        fs::write(out.join("index.html"), "").unwrap();
        clear(&out).unwrap();
        assert!(!out.join("index.html").exists());
        fs::write(dir.path().join("mine"), "").unwrap();
        assert!(clear(dir.path()).is_err());
        assert!(dir.path().join("mine").exists());
    }
}
