//! The layout of a question in a terminal of a given size.

use std::fmt::Write as _;
use std::ops::Range;
use std::time::Duration;

use fabro_events::GateOption;
use fabro_gate::{GateAnswer, Question, default_option};
use unicode_width::UnicodeWidthChar;

use super::prompt::{Input, OptionList, Prompt};

/// The most options that are shown at once.
const PAGE: usize = 10;

/// How many columns of an answer stay beside its question.
const ANSWER_COLUMNS: usize = 200;

/// Lines of text, and where the cursor stands.
#[derive(Debug, Default)]
pub(super) struct Frame {
    pub(super) lines: Vec<Line>,
    /// Row and column from 0; `None` hides it.
    pub(super) cursor: Option<(usize, usize)>,
}

/// A line that fits the terminal.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) text: String,
    pub(super) tone: Tone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Strong,
    Dim,
}

/// Lays out an unanswered question in `columns` and `rows`.
pub(super) fn frame(prompt: &Prompt, columns: usize, rows: usize) -> Frame {
    // The last column stays free: what a terminal does after it differs.
    let width = columns.saturating_sub(1).max(1);
    let mut frame = Frame::default();
    let mut limit = match prompt.time_left {
        Some(left) => wrap(&format!("  {}", at_the_limit(&prompt.question, left)), width),
        None => Vec::new(),
    };
    limit.truncate((rows / 4).max(1));
    let room = rows.saturating_sub(4 + limit.len()).max(1);
    let mut text = wrap(&format!("? {}", prompt.question.text), width);
    if text.len() > room {
        text.truncate(room);
        text.push("…".to_owned());
    }
    frame.add(text, Tone::Strong);
    let mut hint = prompt.note.as_ref().map_or_else(|| hint(prompt), |note| format!("! {note}"));
    match prompt.queued {
        0 => {}
        1 => hint.push_str(" · 1 more question waits"),
        count => {
            let _ = write!(hint, " · {count} more questions wait");
        }
    }
    let mut hint = wrap(&hint, width.saturating_sub(2).max(1));
    hint.truncate((room / 2).max(1));
    let left = rows.saturating_sub(frame.lines.len() + limit.len() + hint.len()).max(1);
    match &prompt.input {
        Input::Text { chars, at, is_for_edge } => {
            let edge = prompt.question.text_option.as_ref().filter(|_| *is_for_edge);
            frame.text(&prompt.question, edge, (chars, *at), (width, left));
        }
        Input::List(list) => frame.list(&prompt.question, list, width, left),
    }
    frame.add(limit.iter().map(|line| cut(line, width)).collect(), Tone::Plain);
    frame.add(hint.iter().map(|line| cut(&format!("  {line}"), width)).collect(), Tone::Dim);
    frame
}

/// What happens at the timeout, and when that is.
fn at_the_limit(question: &Question, left: Duration) -> String {
    let Question { options, text_option, default_choice, .. } = question;
    let default = default_option(options, text_option.as_ref(), default_choice.as_deref());
    let left = clock(left);
    match default {
        Some(option) if option.unavailable.is_some() => {
            format!("fails in {left}: its default cannot be chosen")
        }
        Some(option) if option.key.is_empty() => format!("goes to {} in {left}", option.to),
        Some(option) => format!("answers {} in {left}", named(option)),
        None => format!("fails in {left} without an answer"),
    }
}

/// Hours, minutes and seconds; a second that has begun counts.
fn clock(left: Duration) -> String {
    let seconds = left.as_secs() + u64::from(left.subsec_nanos() > 0);
    let minutes = seconds / 60;
    match minutes / 60 {
        0 => format!("{minutes}:{:02}", seconds % 60),
        hours if hours < 48 => format!("{hours}:{:02}:{:02}", minutes % 60, seconds % 60),
        hours => format!("{} days {} hours", hours / 24, hours % 24),
    }
}

fn named(option: &GateOption) -> String {
    format!("[{}] {}", option.key, option.label.replace(['\n', '\t'], " "))
}

fn hint(prompt: &Prompt) -> String {
    let OptionList { at, marked, .. } = match &prompt.input {
        Input::List(list) => list,
        Input::Text { chars, is_for_edge, .. } => {
            let text: String = chars.iter().collect();
            return text_hint(&prompt.question, &text, *is_for_edge);
        }
    };
    let count = prompt.question.options.len();
    let position = if count > PAGE { format!("{} of {count} · ", at + 1) } else { String::new() };
    let space = if marked.is_some() { "space marks, " } else { "" };
    format!("{position}↑↓ or a key, {space}Enter answers, Esc leaves it for later")
}

/// What Enter does with a text. As short as possible: a terminal that becomes narrower breaks the lines below the cursor
/// anew, which moves the question away from where it is erased.
fn text_hint(question: &Question, text: &str, is_for_edge: bool) -> String {
    let esc = if is_for_edge { "Esc goes back to the options" } else { "Esc leaves it for later" };
    let option = |at: usize| question.options.get(at).map(named).unwrap_or_default();
    let own = question.text_option.as_ref().filter(|option| !option.key.is_empty()).map(named);
    let enter = match question.read(text) {
        _ if text.trim().is_empty() => {
            let has_options = !is_for_edge && !question.options.is_empty();
            let what = if has_options { "a key or text" } else { "a text" };
            return format!("Enter needs {what}, {esc}");
        }
        _ if is_for_edge => format!("Enter sends {}", counted(text)),
        Ok(GateAnswer::Option(at)) => format!("Enter chooses {}", option(at)),
        Ok(GateAnswer::Options(all)) => {
            format!("Enter chooses {}", all.into_iter().map(option).collect::<Vec<_>>().join(", "))
        }
        Ok(GateAnswer::Text(own_text)) if own_text.is_empty() => {
            format!("Enter asks for the text of {}", own.unwrap_or_default())
        }
        Ok(GateAnswer::Text(_)) => match own {
            Some(own) => format!("Enter sends {} to {own}", counted(text)),
            None => format!("Enter sends {}", counted(text)),
        },
        Err(_) => "Enter refuses this: it is no option".to_owned(),
    };
    format!("{enter}, {esc}")
}

fn counted(text: &str) -> String {
    match text.trim().lines().count() {
        1 => "this text".to_owned(),
        count => format!("these {count} lines"),
    }
}

/// The lines that stay after a question was answered.
pub(super) fn answered(question: &Question, answer: &str, columns: usize) -> Vec<String> {
    let answer: String = answer.chars().map(visible).collect();
    let text = format!("? {}  {}", question.text, cut(&answer, ANSWER_COLUMNS));
    wrap(&text, columns.saturating_sub(1).max(1))
}

impl Frame {
    fn add(&mut self, lines: Vec<String>, tone: Tone) {
        self.lines.extend(lines.into_iter().map(|text| Line { text, tone }));
    }

    fn list(&mut self, question: &Question, list: &OptionList, width: usize, left: usize) {
        let options = &question.options;
        let shown = window(options.len(), list.at, left.min(PAGE));
        let texts: Vec<Vec<String>> =
            shown.clone().map(|index| option_lines(&options[index], index, list, width)).collect();
        let fit = texts.iter().map(Vec::len).sum::<usize>() <= left;
        let room = left.saturating_sub(shown.len() - 1).max(1);
        for (index, mut lines) in shown.zip(texts) {
            let is_here = index == list.at && !list.is_lost;
            // Where not all options fit, only the highlighted one has several lines.
            let most = if is_here { room } else { 1 };
            if !fit && lines.len() > most {
                lines.truncate(most);
                if let Some(last) = lines.last_mut() {
                    *last = cut(&format!("{last}…"), width);
                }
            }
            let tone = match (&options[index].unavailable, is_here) {
                (Some(_), _) => Tone::Dim,
                (None, true) => Tone::Strong,
                (None, false) => Tone::Plain,
            };
            self.add(lines, tone);
        }
    }

    /// A text field, below what can be written in it. `edge` is the edge that the text is for.
    fn text(
        &mut self,
        question: &Question,
        edge: Option<&GateOption>,
        (chars, at): (&[char], usize),
        (width, left): (usize, usize),
    ) {
        let mut help = if edge.is_none() { text_help(question, width) } else { Vec::new() };
        help.truncate((left / 2).max(1));
        let left = left.saturating_sub(help.len()).max(1);
        self.add(help, Tone::Plain);
        let start = edge.map_or_else(|| "> ".to_owned(), |edge| format!("{} > ", named(edge)));
        let shown: String = chars.iter().map(|&c| visible(c)).collect();
        let mut lines = fill(&format!("{start}{shown}"), width);
        let (row, column) = position(&lines, at + start.chars().count(), width);
        if row == lines.len() {
            lines.push(String::new());
        }
        let rows = window(lines.len(), row, left);
        self.cursor = Some((self.lines.len() + row - rows.start, column));
        self.add(lines.drain(rows).collect(), Tone::Plain);
    }
}

/// The options that a text may choose instead.
fn text_help(question: &Question, width: usize) -> Vec<String> {
    let mut items: Vec<_> = question.options.iter().map(with_reason).collect();
    let own = question.text_option.as_ref().filter(|option| !option.key.is_empty());
    match own {
        Some(option) => items.push(format!("{} (your own words)", named(option))),
        None if items.is_empty() => items.push("your own words".to_owned()),
        None => items.push("or your own words".to_owned()),
    }
    wrap(&format!("  {}; a paste keeps its lines", items.join("  ")), width)
}

/// An option of a list in lines of this width.
fn option_lines(option: &GateOption, index: usize, list: &OptionList, width: usize) -> Vec<String> {
    let mark = match &list.marked {
        Some(marked) if marked.contains(&index) => "● ",
        Some(_) => "○ ",
        None => "",
    };
    let here = if index == list.at && !list.is_lost { '>' } else { ' ' };
    let start = format!("{here} {mark}");
    let indent = columns(&start).min(width / 2);
    let lines = wrap(&with_reason(option), width.saturating_sub(indent).max(1));
    let first = |index| if index == 0 { start.clone() } else { " ".repeat(indent) };
    lines.iter().enumerate().map(|(index, line)| cut(&(first(index) + line), width)).collect()
}

/// The option with why it cannot be chosen.
fn with_reason(option: &GateOption) -> String {
    let reason = option.unavailable.as_ref();
    named(option) + &reason.map(|reason| format!(" (not now: {reason})")).unwrap_or_default()
}

/// The range of `count` items to show in `room` rows, with `at` among them.
fn window(count: usize, at: usize, room: usize) -> Range<usize> {
    let start = at.saturating_sub(room / 2).min(count.saturating_sub(room));
    start..count.min(start + room)
}

/// A character as the text field shows it.
fn visible(c: char) -> char {
    match c {
        '\n' => '⏎',
        '\t' => ' ',
        c => c,
    }
}

fn columns_of(c: char) -> usize {
    c.width().unwrap_or_default()
}

/// How many columns a text takes.
pub(super) fn columns(text: &str) -> usize {
    text.chars().map(columns_of).sum()
}

/// Row and column of the character with this index in filled lines, or the position after the last.
fn position(lines: &[String], number: usize, width: usize) -> (usize, usize) {
    let mut left = number;
    for (row, line) in lines.iter().enumerate() {
        let count = line.chars().count();
        if left < count {
            return (row, line.chars().take(left).map(columns_of).sum());
        }
        left -= count;
    }
    let last = lines.last().map_or(0, |line| columns(line));
    if last < width { (lines.len().saturating_sub(1), last) } else { (lines.len(), 0) }
}

/// The text in lines of this width, with every character.
fn fill(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for c in text.chars() {
        let needed = columns_of(c);
        if used > 0 && used + needed > width {
            lines.push(String::new());
            used = 0;
        }
        if let Some(line) = lines.last_mut() {
            line.push(c);
        }
        used += needed;
    }
    lines
}

/// The text in lines of this width, broken between words where that is possible.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for paragraph in text.lines() {
        let mut line = String::new();
        let mut used = 0;
        for word in paragraph.replace('\t', "    ").split_inclusive(' ') {
            let needed = columns(word.trim_end());
            if used > 0 && used + needed > width {
                lines.push(std::mem::take(&mut line));
                used = 0;
            }
            if needed > width {
                let mut parts = fill(word, width);
                line = parts.pop().unwrap_or_default();
                lines.append(&mut parts);
                used = columns(&line);
            } else {
                line.push_str(word);
                used += columns(word);
            }
        }
        lines.push(line);
    }
    for line in &mut lines {
        line.truncate(line.trim_end().len());
    }
    lines
}

/// As much of the text as fits into this width.
fn cut(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let mut used = 1;
    let fits = |c: &char| {
        used += columns_of(*c);
        used <= width
    };
    text.chars().take_while(fits).chain(['…']).collect()
}
