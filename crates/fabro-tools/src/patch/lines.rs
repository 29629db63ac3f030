//! Hunks and the lines of a file.

use std::borrow::Cow;

use super::parse::{Hunk, Line};

/// How lines are normalized before they are compared, strictest first: models get whitespace wrong
/// first, then quotes and dashes that look alike.
const VIEWS: [fn(&str) -> Cow<'_, str>; 4] = [
    |line| Cow::Borrowed(line),
    |line| Cow::Borrowed(line.trim_end()),
    |line| Cow::Borrowed(line.trim()),
    |line| Cow::Owned(line.trim().chars().map(plain).collect()),
];

/// The text after the hunks, which are in its order.
///
/// Context lines stay as they are in the text; added lines get its kind of line end. A hunk applies at
/// the first match of its lines after the hunk before. The time is linear in the text for each hunk.
pub(super) fn patched(text: &str, hunks: &[Hunk]) -> Result<String, String> {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let end = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let mut views = Views::new(&lines);
    let mut done = String::with_capacity(text.len());
    let mut at = 0;
    for (index, hunk) in hunks.iter().enumerate() {
        let place =
            views.find(hunk, at).map_err(|problem| format!("hunk {}: {problem}", index + 1))?;
        lines[at..place].iter().for_each(|line| push(&mut done, line, end));
        at = place;
        for line in &hunk.lines {
            match line {
                Line::Context(_) => {
                    push(&mut done, lines[at], end);
                    at += 1;
                }
                Line::Remove(_) => at += 1,
                Line::Add(line) => {
                    push(&mut done, line, end);
                    done.push_str(end);
                }
            }
        }
    }
    let is_ended = text.is_empty() || text.ends_with('\n');
    lines[at..].iter().for_each(|line| push(&mut done, line, end));
    if !is_ended && done.ends_with('\n') {
        done.truncate(done.len() - end.len());
    }
    Ok(done)
}

/// Appends a line, after ending the one before it where the file had no end there.
fn push(done: &mut String, line: &str, end: &str) {
    if !done.is_empty() && !done.ends_with('\n') {
        done.push_str(end);
    }
    done.push_str(line);
}

/// The lines of a file in each of the [`VIEWS`], computed when needed.
struct Views<'a> {
    lines: &'a [&'a str],
    views: Vec<View>,
}

struct View {
    /// The lines, each after a line end, and a last line end.
    text: String,
    /// Where each line begins, after its line end.
    starts: Vec<usize>,
}

impl<'a> Views<'a> {
    fn new(lines: &'a [&'a str]) -> Self {
        Self { lines, views: Vec::new() }
    }

    /// The line at which a hunk begins, at or after `from`.
    fn find(&mut self, hunk: &Hunk, from: usize) -> Result<usize, String> {
        let mut from = from;
        for header in &hunk.headers {
            let Some(at) = self.find_lines(&[header], from) else {
                return Err(format!(
                    "no line is `{}`, as its @@ says{}: copy a whole line, or leave it out",
                    start(header),
                    behind(from)
                ));
            };
            from = at + 1;
        }
        let old: Vec<&str> = hunk.lines.iter().filter_map(old).collect();
        let end = self.lines.len();
        if old.is_empty() {
            // No line to match: after the header, else at the end.
            return Ok(if hunk.headers.is_empty() { end } else { from });
        }
        let found = if hunk.at_end {
            let last = end.checked_sub(old.len()).filter(|last| *last >= from);
            last.filter(|last| self.find_lines(&old, *last).is_some())
        } else {
            self.find_lines(&old, from)
        };
        found.ok_or_else(|| self.missing(&old, from, hunk.at_end))
    }

    /// Where these lines are, in the strictest view that has them anywhere.
    fn find_lines(&mut self, wanted: &[&str], from: usize) -> Option<usize> {
        (0..VIEWS.len()).find_map(|number| {
            let mut lines = "\n".to_owned();
            for line in wanted {
                lines.extend([&*VIEWS[number](line), "\n"]);
            }
            let View { text, starts } = self.view(number);
            let from = starts.get(from)? - 1;
            let found = from + text[from..].find(&lines)? + 1;
            starts.binary_search(&found).ok()
        })
    }

    fn view(&mut self, number: usize) -> &View {
        while self.views.len() <= number {
            let normalize = VIEWS[self.views.len()];
            let mut text = "\n".to_owned();
            let mut starts = Vec::with_capacity(self.lines.len());
            for line in self.lines {
                starts.push(text.len());
                text.extend([&*normalize(without_end(line)), "\n"]);
            }
            self.views.push(View { text, starts });
        }
        &self.views[number]
    }

    fn missing(&mut self, old: &[&str], from: usize, at_end: bool) -> String {
        let first = old.iter().copied().find(|line| !line.trim().is_empty()).unwrap_or_default();
        let place = if at_end { " at the end of the file".to_owned() } else { behind(from) };
        let near = self.find_lines(&[first], 0);
        let near = near.map(|at| format!(" (a line like its first is line {})", at + 1));
        format!(
            "its lines, from `{}` on, are not there{place}{}: read the file again, and copy the \
             lines exactly",
            start(first),
            near.unwrap_or_default()
        )
    }
}

fn old(line: &Line) -> Option<&str> {
    match line {
        Line::Context(line) | Line::Remove(line) => Some(line),
        Line::Add(_) => None,
    }
}

fn behind(from: usize) -> String {
    if from == 0 { String::new() } else { format!(" behind line {from}") }
}

fn start(line: &str) -> String {
    let cut: String = line.trim().chars().take(80).collect();
    if cut.len() < line.trim().len() { cut + "…" } else { cut }
}

fn without_end(line: &str) -> &str {
    let line = line.strip_suffix('\n').unwrap_or(line);
    line.strip_suffix('\r').unwrap_or(line)
}

fn plain(c: char) -> char {
    match c {
        '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
        '\u{2018}'..='\u{201b}' => '\'',
        '\u{201c}'..='\u{201f}' => '"',
        '\u{a0}' | '\u{2002}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => ' ',
        c => c,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::patch::{Change, Patch};

    #[track_caller]
    fn check(text: &str, hunks: &str, expected: &str) {
        let patch = format!("*** Begin Patch\n*** Update File: f\n{hunks}\n*** End Patch");
        let patch = Patch::parse(&patch).unwrap();
        let [Change::Update { hunks, .. }] = &patch.changes[..] else { panic!("{patch:?}") };
        let patched = patched(text, hunks).unwrap_or_else(|problem| problem);
        assert_eq!(patched, expected);
    }

    #[test]
    fn lines_come_and_go() {
        check("a\nb\nc\n", "@@\n a\n-b\n+B\n c", "a\nB\nc\n");
        check("a\nb\nc\n", " a\n+x\n b", "a\nx\nb\nc\n");
        check("a\nb\nc\nb\n", "@@ c\n-b\n+B", "a\nb\nc\nB\n");
        check("a\nb\nc\nb\n", "-b\n+B\n@@\n-b\n+D", "a\nB\nc\nD\n");
        check("a\nb\n", "@@ -1,2 +1,2 @@\n-a\n+A", "A\nb\n");
        check("f(\n a\nf(\n b\n", "@@ f(\n@@ f(\n- b\n+ c", "f(\n a\nf(\n c\n");
        check("a\n", "-a", "");
        check("", "+a\n+b", "a\nb\n");
        check("a\n", "+b", "a\nb\n");
        check("a\nb\n", "@@ a\n+x", "a\nx\nb\n");
        check("x\ny\nx\ny\n", "@@\n-x\n+X\n y\n*** End of File", "x\ny\nX\ny\n");
        check("a\n\nb\n", " a\n\n-b\n+c", "a\n\nc\n");
    }

    #[test]
    fn slips_are_forgiven_and_what_stays_is_not_touched() {
        check("\ta  \n  b\n", " a\n-b\n+c", "\ta  \nc\n");
        check("it’s – a\nb\n", " it's - a\n-b\n+c", "it’s – a\nc\n");
        check("  a\na\n", "-a\n+b", "  a\nb\n");
    }

    #[test]
    fn line_ends_stay() {
        check("a\r\nb\r\n", " a\n-b\n+c\n+d", "a\r\nc\r\nd\r\n");
        check("a\nb", " a\n-b\n+c", "a\nc");
        check("a\nb", " b\n+c", "a\nb\nc");
        check("a\nb", "-b", "a");
        check("a", "-a\n+b", "b");
    }

    #[test]
    fn what_is_not_there_is_told() {
        check(
            "a\n",
            "-b",
            "hunk 1: its lines, from `b` on, are not there: read the file again, and copy the lines exactly",
        );
        check(
            "a\nb\nc\n",
            " a\n-c",
            "hunk 1: its lines, from `a` on, are not there (a line like its first is line 1): read the file again, and copy the lines exactly",
        );
        check(
            "a\nb\n",
            "-b\n@@\n-a",
            "hunk 2: its lines, from `a` on, are not there behind line 2 (a line like its first is line 1): read the file again, and copy the lines exactly",
        );
        check(
            "a\n",
            "@@ fn x\n-a",
            "hunk 1: no line is `fn x`, as its @@ says: copy a whole line, or leave it out",
        );
        check(
            "a\nb\n",
            "-a\n*** End of File",
            "hunk 1: its lines, from `a` on, are not there at the end of the file (a line like its first is line 1): read the file again, and copy the lines exactly",
        );
    }

    #[test]
    fn a_hunk_that_nearly_fits_everywhere_takes_no_time() {
        let text = "x\n".repeat(300_000);
        let hunk = "-x\n".repeat(150_000) + "-y";
        let patch = format!("*** Begin Patch\n*** Update File: f\n{hunk}\n*** End Patch");
        let Change::Update { hunks, .. } = Patch::parse(&patch).unwrap().changes.remove(0) else {
            panic!("it is an update")
        };
        assert!(patched(&text, &hunks).is_err());
    }

    /// Lines that are alike often enough to be mistaken for each other.
    fn some_lines() -> impl Strategy<Value = Vec<String>> {
        prop::collection::vec("[ab ]{0,2}", 0..12)
    }

    fn any_patch() -> impl Strategy<Value = String> {
        let pieces = prop::sample::select(vec![
            "*** Begin Patch",
            "*** End Patch",
            "*** Update File: f",
            "*** Move to: g",
            "@@",
            "@@ a",
            "*** Add File: f",
            "*** Delete File: f",
            "*** End of File",
            " a",
            "-a",
            "+b",
            "",
            "\r",
            "@@ -1 +1 @@",
            "é",
        ]);
        prop::collection::vec(pieces, 0..14).prop_map(|lines| lines.join("\n"))
    }

    proptest! {
        #[test]
        fn a_hunk_of_the_whole_file_makes_any_other(
            old in some_lines(),
            new in some_lines(),
            kept in some_lines(),
        ) {
            prop_assume!(!old.is_empty() || !kept.is_empty());
            let all = |lines: &[String]| lines.iter().map(|line| line.clone() + "\n").collect::<String>();
            let lines = kept.iter().cloned().map(Line::Context);
            let lines = lines.chain(old.iter().cloned().map(Line::Remove));
            let lines = lines.chain(new.iter().cloned().map(Line::Add)).collect();
            let hunk = Hunk { lines, ..Hunk::default() };
            let patched = patched(&(all(&kept) + &all(&old)), &[hunk]);
            prop_assert_eq!(patched, Ok(all(&kept) + &all(&new)));
        }

        #[test]
        fn any_text_is_a_patch_or_a_refusal(patch in any_patch(), text in "[ab \r\n]{0,20}") {
            let Ok(patch) = Patch::parse(&patch) else { return Ok(()) };
            for change in patch.changes {
                if let Change::Update { hunks, .. } = change {
                    // Whether it fits is another matter.
                    let _ = patched(&text, &hunks);
                }
            }
        }
    }
}
