//! The sections of a summary.

/// A section that every summary has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Goal,
    Progress,
    KeyDecisions,
    FailedApproaches,
    OpenIssues,
    NextSteps,
    FileOperations,
}

impl Section {
    pub(crate) const ALL: [Self; 7] = [
        Self::Goal,
        Self::Progress,
        Self::KeyDecisions,
        Self::FailedApproaches,
        Self::OpenIssues,
        Self::NextSteps,
        Self::FileOperations,
    ];

    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Goal => "Goal",
            Self::Progress => "Progress",
            Self::KeyDecisions => "Key Decisions",
            Self::FailedApproaches => "Failed Approaches",
            Self::OpenIssues => "Open Issues",
            Self::NextSteps => "Next Steps",
            Self::FileOperations => "File Operations",
        }
    }
}

/// A stretch of a summary.
pub(crate) struct Part<'a> {
    /// What it is about; `None` before the first heading, and under one of the writer's own.
    pub(crate) section: Option<Section>,
    /// The whole of it, heading included.
    pub(crate) whole: &'a str,
    /// What is under the heading.
    pub(crate) body: &'a str,
}

/// Takes a summary apart at the headings of its sections: `## Goal`, or `**Goal:**` on a line of
/// its own. A heading of the writer's own ends a section only when it ranks as high. Lines in code
/// fences are no headings. The parts together are the text.
pub(crate) fn parts(text: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut section = None;
    let mut start = 0;
    let mut body = 0;
    let mut rank = 0;
    let mut fence = Fence::default();
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let next = at + line.len();
        if !fence.read(line)
            && let Some((found, new_rank)) = heading(line)
            && (found.is_some() || new_rank <= rank)
        {
            parts.push(Part { section, whole: &text[start..at], body: &text[body..at] });
            section = found;
            start = at;
            body = next;
            rank = new_rank;
        }
        at = next;
    }
    parts.push(Part { section, whole: &text[start..], body: &text[body..] });
    parts
}

/// The text, with an end for a code fence that it leaves open: what follows is not to be inside.
pub(crate) fn close_fence(mut text: String) -> String {
    let mut fence = Fence::default();
    for line in text.lines() {
        fence.read(line);
    }
    if let Some((mark, length)) = fence.open {
        text.push('\n');
        text.extend(std::iter::repeat_n(mark, length));
    }
    text
}

/// A foreign text as it can stand in a section: as a quotation if a heading or a code fence in it
/// would end the section.
pub(crate) fn quote(text: &str) -> String {
    let is_plain = |line: &str| heading(line).is_none() && fence_mark(line).is_none();
    if text.lines().all(is_plain) && !text.starts_with("> ") {
        return text.to_owned();
    }
    text.lines().map(|line| format!("> {line}")).collect::<Vec<_>>().join("\n")
}

/// What [`quote`] was given.
pub(crate) fn unquote(text: &str) -> String {
    let lines = text.lines().map(|line| line.strip_prefix('>'));
    let lines = lines.map(|line| line.map(|line| line.strip_prefix(' ').unwrap_or(line)));
    lines.collect::<Option<Vec<_>>>().map_or_else(|| text.to_owned(), |lines| lines.join("\n"))
}

/// Where in its code fences a text is.
#[derive(Default)]
struct Fence {
    /// The mark of the open fence and how long it is.
    open: Option<(char, usize)>,
}

impl Fence {
    /// Takes the next line; true when it is in a fence, or opens or closes one.
    fn read(&mut self, line: &str) -> bool {
        let mark = fence_mark(line);
        let was_open = self.open.is_some();
        self.open = match (self.open, mark) {
            (Some((mark, least)), Some((found, length))) if mark == found && length >= least => {
                let is_end = line.trim().chars().all(|c| c == mark);
                self.open.filter(|_| !is_end)
            }
            (None, mark) => mark,
            (open, _) => open,
        };
        was_open || mark.is_some()
    }
}

/// The mark that a line begins with, if it can open or close a code fence.
fn fence_mark(line: &str) -> Option<(char, usize)> {
    let line = line.trim_start();
    let mark = line.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let length = line.len() - line.trim_start_matches(mark).len();
    (length >= 3).then_some((mark, length))
}

/// The section that a line is the heading of, if it is one of ours, and its rank: 1 is highest.
fn heading(line: &str) -> Option<(Option<Section>, usize)> {
    let line = line.trim();
    let hashes = line.len() - line.trim_start_matches('#').len();
    let rest = &line[hashes..];
    let title = rest.trim_matches(|c: char| c.is_whitespace() || matches!(c, '*' | ':' | '#'));
    let is_ours = |section: &Section| section.title().eq_ignore_ascii_case(title);
    let section = Section::ALL.into_iter().find(is_ours);
    let is_bold = line.starts_with("**") && line.trim_end_matches(':').ends_with("**");
    match hashes {
        1..=6 if rest.starts_with(char::is_whitespace) => Some((section, hashes)),
        0 if is_bold && section.is_some() => Some((section, 6)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: &str) {
        let parts = parts(text);
        assert_eq!(parts.iter().map(|part| part.whole).collect::<String>(), text);
        let sections = parts.iter().filter(|part| !part.whole.is_empty()).map(|part| {
            let title = part.section.map_or("-", Section::title);
            format!("{title}={:?}", part.body.trim())
        });
        assert_eq!(sections.collect::<Vec<_>>().join(" "), expect);
    }

    #[test]
    fn summaries_are_taken_apart_at_their_headings() {
        check("", "");
        check("plain", "-=\"plain\"");
        check("## Goal\nx\n## progress:\ny", "Goal=\"x\" Progress=\"y\"");
        check("a\n**Goal:**\nx\n**Key Decisions**:\ny", "-=\"a\" Goal=\"x\" Key Decisions=\"y\"");
        check("## Goal\nx\n### Own\ny\n## Own\nz", "Goal=\"x\\n### Own\\ny\" -=\"z\"");
        check("## Goal\n```\n## Progress\n```\n", "Goal=\"```\\n## Progress\\n```\"");
        check("#Goal\nGoal\n", "-=\"#Goal\\nGoal\"");
    }

    #[test]
    fn what_follows_an_open_fence_is_outside_of_it() {
        for (text, expect) in [
            ("a", "a"),
            ("```\na", "```\na\n```"),
            ("```\na\n```", "```\na\n```"),
            ("````\n```", "````\n```\n````"),
            ("~~~\n```", "~~~\n```\n~~~"),
            ("```\n```rust", "```\n```rust\n```"),
        ] {
            assert_eq!(close_fence(text.to_owned()), expect);
        }
    }

    #[test]
    fn foreign_headings_are_quoted() {
        for (text, expect) in [
            ("a\nb", "a\nb"),
            ("a\n\n## Progress", "> a\n> \n> ## Progress"),
            ("```", "> ```"),
            ("> a", "> > a"),
        ] {
            assert_eq!(quote(text), expect);
            assert_eq!(unquote(expect), text);
            check(&format!("## Goal\n{expect}"), &format!("Goal={expect:?}"));
        }
    }
}
