//! A page: Markdown in, HTML, headings and sections for the search out.

use std::fmt::Write as _;

use pulldown_cmark::{
    BrokenLink, CodeBlockKind, CowStr, Event, HeadingLevel, LinkType, Options, Parser, Tag, TagEnd,
};

use super::highlight::{self, escape};

/// Where files that are no pages stand in the book.
pub(super) const FILES: &str = "files/";

/// Begins the address of an item of the page's own crate.
pub(super) const ITEM: &str = "item::";

pub(super) struct Page {
    /// The path of the Markdown from the root of the repository.
    pub(super) source: String,
    /// The path of the HTML from the root of the book.
    pub(super) path: String,
    pub(super) title: String,
    pub(super) headings: Vec<Heading>,
    pub(super) sections: Vec<Section>,
    text: String,
}

pub(super) struct Heading {
    pub(super) level: HeadingLevel,
    pub(super) text: String,
    pub(super) anchor: String,
}

/// What stands below a heading, as plain text.
pub(super) struct Section {
    /// Empty before the first heading.
    pub(super) anchor: String,
    pub(super) title: String,
    pub(super) text: String,
}

/// Where a link leads.
pub(super) enum Target {
    Page {
        path: String,
        anchor: String,
    },
    /// A file of the repository.
    File(String),
    /// The documentation of a crate.
    Api(String),
    /// The web.
    Elsewhere,
    /// Nowhere: the text stands without a link.
    None,
}

impl Page {
    pub(super) fn parse(source: &str, title: &str, text: &str) -> Self {
        let mut page = Self {
            source: source.to_owned(),
            path: html_path(source),
            title: title.to_owned(),
            headings: Vec::new(),
            sections: vec![Section {
                anchor: String::new(),
                title: title.to_owned(),
                text: String::new(),
            }],
            text: text.to_owned(),
        };
        let mut heading: Option<(HeadingLevel, String)> = None;
        for event in parser(text) {
            match event {
                Event::Start(Tag::Heading { level, .. }) => {
                    let level = shown(level, page.headings.is_empty());
                    heading = Some((level, String::new()));
                }
                Event::End(TagEnd::Heading(_)) => {
                    if let Some((level, text)) = heading.take() {
                        page.heading(level, text);
                    }
                }
                Event::Text(text) | Event::Code(text) => {
                    let section = page.sections.last_mut().map(|it| &mut it.text);
                    if let Some(to) = heading.as_mut().map(|it| &mut it.1).or(section) {
                        to.push_str(&text);
                    }
                }
                Event::End(_) | Event::SoftBreak | Event::HardBreak => {
                    // Words of different paragraphs and cells stay apart.
                    if let (None, Some(section)) = (&heading, page.sections.last_mut())
                        && !section.text.ends_with([' ', '\n'])
                    {
                        section.text.push(' ');
                    }
                }
                _ => {}
            }
        }
        page
    }

    fn heading(&mut self, level: HeadingLevel, text: String) {
        let slug = slug(&text);
        let mut anchor = slug.clone();
        let mut number = 0;
        while self.has_anchor(&anchor) {
            number += 1;
            anchor = format!("{slug}-{number}");
        }
        self.headings.push(Heading { level, text: text.clone(), anchor: anchor.clone() });
        self.sections.push(Section { anchor, title: text, text: String::new() });
    }

    pub(super) fn has_anchor(&self, anchor: &str) -> bool {
        self.headings.iter().any(|heading| heading.anchor == anchor)
    }

    /// A path that the page names, from the root of the repository.
    pub(super) fn beside(&self, path: &str) -> String {
        joined(folder(&self.source), path)
    }

    /// The name of the library whose README this is.
    pub(super) fn library(&self) -> Option<String> {
        let name = self.source.strip_prefix("crates/")?.strip_suffix("/README.md")?;
        // The command line is a program of another name.
        Some(if name == "fabro-cli" { "fabro".to_owned() } else { name.replace('-', "_") })
    }

    /// The path from this page to another file of the book.
    pub(super) fn link_to(&self, path: &str) -> String {
        let depth = self.path.matches('/').count();
        "../".repeat(depth) + path
    }

    /// The page's HTML; `resolve` says where each link leads.
    pub(super) fn render(&self, mut resolve: impl FnMut(&str) -> Target) -> String {
        let mut headings = self.headings.iter();
        let mut open_heading = HeadingLevel::H1;
        let mut events: Vec<Event<'_>> = Vec::new();
        let mut code: Option<(String, String)> = None;
        // Whether each open link has a target.
        let mut links: Vec<bool> = Vec::new();
        for event in parser(&self.text) {
            match event {
                Event::Start(Tag::CodeBlock(kind)) => {
                    let info = match kind {
                        CodeBlockKind::Fenced(info) => info.to_string(),
                        CodeBlockKind::Indented => String::new(),
                    };
                    code = Some((info, String::new()));
                }
                Event::End(TagEnd::CodeBlock) => {
                    if let Some((info, text)) = code.take() {
                        events.push(Event::Html(code_block(&info, &text).into()));
                    }
                }
                Event::Text(text) if code.is_some() => {
                    if let Some((_, code)) = &mut code {
                        code.push_str(&text);
                    }
                }
                Event::Start(Tag::Heading { .. }) => {
                    let Some(Heading { level, anchor, .. }) = headings.next() else { continue };
                    open_heading = *level;
                    events.push(Event::Html(format!("<{level} id=\"{anchor}\">").into()));
                    events.push(Event::Html(
                        format!("<a class=\"anchor\" href=\"#{anchor}\" aria-label=\"Link to this heading\">#</a>").into(),
                    ));
                }
                Event::End(TagEnd::Heading(_)) => {
                    events.push(Event::Html(format!("</{open_heading}>\n").into()));
                }
                Event::Start(Tag::Table(alignments)) => {
                    events.push(Event::Html("<div class=\"table\">".into()));
                    events.push(Event::Start(Tag::Table(alignments)));
                }
                Event::End(TagEnd::Table) => {
                    events.push(Event::End(TagEnd::Table));
                    events.push(Event::Html("</div>".into()));
                }
                Event::Start(Tag::Link { link_type, dest_url, title, id }) => {
                    let href = if link_type == LinkType::Email {
                        Some(format!("mailto:{dest_url}"))
                    } else {
                        self.href(&dest_url, resolve(&dest_url))
                    };
                    links.push(href.is_some());
                    if let Some(href) = href {
                        let dest_url = href.into();
                        events.push(Event::Start(Tag::Link {
                            link_type: LinkType::Inline,
                            dest_url,
                            title,
                            id,
                        }));
                    }
                }
                Event::End(TagEnd::Link) => {
                    if links.pop() == Some(true) {
                        events.push(Event::End(TagEnd::Link));
                    }
                }
                Event::Start(Tag::Image { link_type, dest_url, title, id }) => {
                    let href = self.href(&dest_url, resolve(&dest_url));
                    let dest_url = href.map_or(dest_url, CowStr::from);
                    events.push(Event::Start(Tag::Image { link_type, dest_url, title, id }));
                }
                event => events.push(event),
            }
        }
        let mut html = String::new();
        pulldown_cmark::html::push_html(&mut html, events.into_iter());
        html
    }

    fn href(&self, link: &str, target: Target) -> Option<String> {
        match target {
            Target::Page { path, anchor } if path == self.path && !anchor.is_empty() => {
                Some(format!("#{anchor}"))
            }
            Target::Page { path, anchor } => {
                let hash = if anchor.is_empty() { "" } else { "#" };
                Some(format!("{}{hash}{anchor}", self.link_to(&path)))
            }
            Target::File(path) => Some(self.link_to(&file_path(&path))),
            Target::Api(name) => Some(self.link_to(&api_path(&name))),
            Target::Elsewhere => Some(link.to_owned()),
            Target::None => None,
        }
    }
}

/// A page has one title; the sections of crate docs have its level, too.
fn shown(level: HeadingLevel, is_first: bool) -> HeadingLevel {
    if level == HeadingLevel::H1 && !is_first { HeadingLevel::H2 } else { level }
}

fn parser(text: &str) -> impl Iterator<Item = Event<'_>> {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH;
    Parser::new_with_broken_link_callback(text, options, Some(item))
}

/// In crate docs, ``[`Name`]`` is a link to an item.
#[expect(clippy::needless_pass_by_value, reason = "the parser wants it so")]
fn item(link: BrokenLink<'_>) -> Option<(CowStr<'_>, CowStr<'_>)> {
    let name = link.reference.strip_prefix('`')?.strip_suffix('`')?;
    Some((format!("{ITEM}{name}").into(), "".into()))
}

fn code_block(info: &str, text: &str) -> String {
    let mut words = info.split([' ', ',']);
    let language = words.next().unwrap_or_default();
    let file = words.find_map(|word| word.strip_prefix("file="));
    let mut html = String::from("<figure class=\"code\">");
    if let Some(file) = file {
        let _ = write!(html, "<figcaption>{}</figcaption>", escape(file));
    }
    let _ = writeln!(html, "<pre><code>{}</code></pre></figure>", highlight::html(language, text));
    html
}

/// The anchor that a heading has on the pages of code hosts, too.
pub(crate) fn slug(title: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    title
        .trim()
        .to_lowercase()
        .chars()
        .filter(kept)
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

/// Where the HTML of a page stands. Pages of `docs` are at the top; files of the root, but for the README, are in a folder
/// of their own, for `SECURITY.md` and `docs/security.md` are one name on some file systems.
fn html_path(source: &str) -> String {
    let stem = source.strip_suffix(".md").unwrap_or(source);
    let stem = match stem.strip_prefix("docs/") {
        Some(stem) => stem.to_owned(),
        None if stem.contains('/') || stem == "README" => stem.to_owned(),
        None => format!("project/{stem}"),
    };
    match stem.strip_suffix("README") {
        Some(folder) => format!("{folder}index.html"),
        None => format!("{stem}.html"),
    }
}

pub(super) fn file_path(path: &str) -> String {
    format!("{FILES}{path}")
}

pub(super) fn api_path(library: &str) -> String {
    format!("api/{library}/index.html")
}

fn folder(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// A path from a folder, from the root.
pub(crate) fn joined(folder: &str, file: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in file.split('/') {
        match part {
            ".." => {
                parts.pop();
            }
            "." | "" => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    fn page(text: &str) -> Page {
        Page::parse("docs/a.md", "A", text)
    }

    #[test]
    fn pages_have_paths_that_do_not_collide() {
        let check = |source: &str, path: &str| assert_eq!(html_path(source), path);
        check("README.md", "index.html");
        check("SECURITY.md", "project/SECURITY.html");
        check("docs/security.md", "security.html");
        check("docs/editors/README.md", "editors/index.html");
        check("crates/fabro-graph/README.md", "crates/fabro-graph/index.html");
    }

    #[test]
    fn headings_get_anchors_and_sections() {
        let page = page("# A\nintro `x`\n## The `run` file\none\n\ntwo\n# The run file\n");
        let anchors: Vec<_> = page.headings.iter().map(|it| it.anchor.as_str()).collect();
        assert_eq!(anchors, ["a", "the-run-file", "the-run-file-1"]);
        let levels = page.headings.iter().map(|it| it.level.to_string());
        assert_eq!(levels.collect::<Vec<_>>(), ["h1", "h2", "h2"]);
        let texts: Vec<_> = page.sections.iter().map(|it| it.text.trim()).collect();
        assert_eq!(texts, ["", "intro x", "one two", ""]);
    }

    #[test]
    fn markdown_becomes_html() {
        let page = page(
            "## A `b`\n[there](b.md#c) [here](#a-b) [file](../x.svg) [it](crate_a::B) [`C`] [web](https://a.b)\n\n\
             ```toml file=run.toml\na = 1 # <b>\n```\n\n| x |\n| --- |\n| 1 |\n",
        );
        let html = page.render(|link| match link {
            "b.md#c" => Target::Page { path: "b/c.html".to_owned(), anchor: "c".to_owned() },
            "#a-b" => Target::Page { path: "a.html".to_owned(), anchor: "a-b".to_owned() },
            "../x.svg" => Target::File("x.svg".to_owned()),
            "crate_a::B" | "item::C" => Target::None,
            _ => Target::Elsewhere,
        });
        assert_snapshot!(html, @r##"
        <h2 id="a-b"><a class="anchor" href="#a-b" aria-label="Link to this heading">#</a>A <code>b</code></h2>
        <p><a href="b/c.html#c">there</a> <a href="#a-b">here</a> <a href="files/x.svg">file</a> it <code>C</code> <a href="https://a.b">web</a></p>
        <figure class="code"><figcaption>run.toml</figcaption><pre><code><span class="k">a</span> = <span class="n">1</span> <span class="c"># &lt;b&gt;</span>
        </code></pre></figure>
        <div class="table"><table><thead><tr><th>x</th></tr></thead><tbody>
        <tr><td>1</td></tr>
        </tbody></table>
        </div>
        "##);
    }

    #[test]
    fn links_go_up_to_the_root_of_the_book() {
        let page = Page::parse("crates/a/README.md", "a", "[up](../../README.md)");
        assert_eq!(page.beside("../../docs/x.md"), "docs/x.md");
        assert_eq!(page.link_to("index.html"), "../../index.html");
        assert_eq!(page.library().as_deref(), Some("a"));
    }
}
