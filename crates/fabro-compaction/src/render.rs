use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write as _;

use crate::sections::{Section, parts};
use crate::text::{cut_end, cut_middle};
use crate::{Role, SUMMARY_TAG, Turn, is_summary};

/// What is shown of the arguments of a call, and of a result, in characters.
pub const CUT_CHARS: usize = 500;

/// Renders messages as text for the summary request. Arguments and results are cut at
/// [`CUT_CHARS`] characters each; an earlier summary comes without its list of files.
///
/// The whole has at most `max_chars` characters. To get there the longest texts are cut first, in
/// their middle; where that is not enough, messages are omitted, with their number: the first
/// messages and the last ones stay.
pub fn render_old<T: Turn>(turns: &[T], max_chars: usize) -> String {
    let mut names = HashMap::new();
    let mut blocks: Vec<Block<'_>> = turns.iter().map(|turn| Block::of(turn, &mut names)).collect();
    let frames: usize = blocks.iter().map(Block::frame_chars).sum();
    let texts: usize = blocks.iter().map(|block| block.text_chars).sum();
    if frames + texts > max_chars {
        let cap = cap(&blocks, max_chars.saturating_sub(frames)).max(LEAST_TEXT);
        for block in blocks.iter_mut().filter(|block| block.text_chars > cap) {
            block.text = Cow::Owned(cut_middle(&block.text, cap));
            block.text_chars = cap;
        }
    }
    join(&blocks, max_chars)
}

/// What is left of a long text before messages are left out, in characters.
const LEAST_TEXT: usize = 200;

/// A message as text.
struct Block<'a> {
    head: String,
    text: Cow<'a, str>,
    text_chars: usize,
    tail: String,
}

impl<'a> Block<'a> {
    fn of<T: Turn>(turn: &'a T, names: &mut HashMap<&'a str, &'a str>) -> Self {
        let mut text = turn.text();
        let head = if is_summary(turn) {
            text = Cow::Owned(without_files(&text));
            "[summary of what came before]\n"
        } else {
            match turn.role() {
                Role::System => "[system]\n",
                Role::User => "[user]\n",
                Role::Assistant => "[assistant]\n",
                Role::Tool => "[tool]\n",
            }
        };
        let mut tail = String::new();
        for result in turn.results() {
            let name = names.get(result.id).copied().unwrap_or("a tool");
            let failed = if result.is_error { " failed" } else { "" };
            let _ = writeln!(tail, "<- {name}{failed}: {}", cut_end(&result.text, CUT_CHARS));
        }
        for call in turn.calls() {
            names.insert(call.id, call.name);
            let arguments = call.arguments.text();
            let _ = writeln!(tail, "-> {} {}", call.name, cut_end(&arguments, CUT_CHARS));
        }
        // A tool's message without declared results is one result.
        if turn.role() == Role::Tool && tail.is_empty() {
            text = Cow::Owned(cut_end(&text, CUT_CHARS));
        }
        let text_chars = text.chars().count();
        Self { head: head.to_owned(), text, text_chars, tail }
    }

    fn frame_chars(&self) -> usize {
        // A line end after the text, and a blank line after the message.
        self.head.len() + self.tail.chars().count() + 2
    }

    fn chars(&self) -> usize {
        self.frame_chars() + self.text_chars
    }

    fn write(&self, out: &mut String) {
        out.push_str(&self.head);
        if !self.text.is_empty() {
            out.push_str(&self.text);
            out.push('\n');
        }
        out.push_str(&self.tail);
        out.push('\n');
    }
}

/// An earlier summary without its tag and the list of files, which is carried on apart.
fn without_files(summary: &str) -> String {
    let text = summary.strip_prefix(SUMMARY_TAG).unwrap_or(summary);
    let parts = parts(text);
    let others = parts.iter().filter(|part| part.section != Some(Section::FileOperations));
    others.map(|part| part.whole).collect::<String>().trim().to_owned()
}

/// The length that texts have to be cut at so that all of them together have `room` characters.
fn cap(blocks: &[Block<'_>], mut room: usize) -> usize {
    let mut lengths: Vec<_> = blocks.iter().map(|block| block.text_chars).collect();
    lengths.sort_unstable();
    for (at, length) in lengths.iter().enumerate() {
        let share = room / (lengths.len() - at);
        if *length > share {
            return share;
        }
        room -= length;
    }
    usize::MAX
}

/// The messages in order; where they have too many characters, a quarter of the room goes to the
/// first ones and the rest to the last ones.
fn join(blocks: &[Block<'_>], max_chars: usize) -> String {
    let mut out = String::new();
    let total: usize = blocks.iter().map(Block::chars).sum();
    if total <= max_chars {
        write_all(blocks, &mut out);
    } else {
        let room = max_chars.saturating_sub(64);
        let (first, taken) = fitting(blocks.iter(), room / 4);
        let (last, _) = fitting(blocks[first..].iter().rev(), room - taken);
        write_all(&blocks[..first], &mut out);
        let _ = writeln!(out, "({} messages omitted)\n", blocks.len() - first - last);
        write_all(&blocks[blocks.len() - last..], &mut out);
    }
    cut_middle(out.trim_end(), max_chars)
}

fn write_all(blocks: &[Block<'_>], out: &mut String) {
    for block in blocks {
        block.write(out);
    }
}

/// How many messages there is room for, and how much they take.
fn fitting<'a>(blocks: impl Iterator<Item = &'a Block<'a>>, room: usize) -> (usize, usize) {
    let mut taken = 0;
    let mut count = 0;
    for block in blocks {
        if taken + block.chars() > room {
            break;
        }
        taken += block.chars();
        count += 1;
    }
    (count, taken)
}
