use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;

use crate::open::OpenCalls;
use crate::sections::{Section, parts, quote, unquote};
use crate::text::{cut_middle, one_line};
use crate::{Role, SUMMARY_TAG, Turn, is_summary};

/// Summarises messages without a model, in at most `max_chars` characters: the same for the same
/// messages.
///
/// The sections are those of every summary, File Operations aside. The goal is what was asked for
/// first, and later requests; progress is answers and calls that succeeded; decisions, next steps
/// and open issues are the lines with such words, failed calls, and calls without a result. An
/// earlier summary among the messages is included. Where there is too much, the newest stays.
pub fn deterministic_summary<T: Turn>(turns: &[T], max_chars: usize) -> String {
    let mut notes = Notes::default();
    let mut calls = Calls::default();
    for turn in turns {
        notes.read(turn);
        calls.read(turn, &mut notes);
    }
    calls.end(&mut notes);
    notes.write(max_chars)
}

/// What was asked for at the beginning: the goal of an earlier summary, or else the first message
/// of a user. Empty when there is neither.
pub(crate) fn goal_of<T: Turn>(turns: &[T], max_chars: usize) -> String {
    let of_summary = |turn: &T| {
        let text = turn.text();
        let parts = parts(&text);
        let goal = parts.iter().find(|part| part.section == Some(Section::Goal));
        goal.map(|goal| unquote(goal.body.trim())).filter(|goal| !goal.is_empty())
    };
    let goal = turns.iter().filter(|turn| is_summary(*turn)).find_map(of_summary);
    let first =
        || turns.iter().find(|turn| turn.role() == Role::User && !turn.text().trim().is_empty());
    let goal = goal.or_else(|| first().map(|turn| turn.text().trim().to_owned()));
    quoted(&goal.unwrap_or_default(), max_chars)
}

/// A foreign text as it can stand in a section, in at most `max_chars` characters.
fn quoted(text: &str, max_chars: usize) -> String {
    let whole = quote(&cut_middle(text, max_chars));
    if whole.chars().count() <= max_chars {
        return whole;
    }
    // A quotation adds two characters to each line, and there is a line end in each.
    quote(&cut_middle(text, max_chars / 3))
}

/// How long a line of a summary gets, in characters.
const LINE: usize = 240;
/// How long the arguments of a call get in a line, in characters.
const ARGUMENTS: usize = 120;
/// The most lines that a section collects before the oldest go.
const MOST_LINES: usize = 200;

/// The lines of a section, the newest ones.
#[derive(Default)]
struct Lines {
    lines: VecDeque<String>,
    omitted: usize,
}

impl Lines {
    fn push(&mut self, line: String) {
        if line.is_empty() || self.lines.back() == Some(&line) {
            return;
        }
        self.lines.push_back(line);
        if self.lines.len() > MOST_LINES {
            self.lines.pop_front();
            self.omitted = self.omitted.saturating_add(1);
        }
    }

    /// Takes over a section of an earlier summary.
    fn carry(&mut self, body: &str) {
        for line in body.lines() {
            let line = line.trim().trim_start_matches(['#', '`', '~']).trim_start();
            if line.is_empty() || line == NONE {
                continue;
            }
            match omitted(line) {
                Some(omitted) => self.omitted = self.omitted.saturating_add(omitted),
                None => self.push(one_line(line, LINE)),
            }
        }
    }

    /// How many characters the whole of it has.
    fn wants(&self) -> usize {
        let lines: usize = self.lines.iter().map(|line| line.chars().count() + 1).sum();
        let is_short = self.omitted > 0 || lines == 0;
        if is_short { lines + OMISSION } else { lines }
    }

    /// The last lines that have `max_chars` characters together. Where there is room for none, the
    /// last one is cut.
    fn write(&self, max_chars: usize, out: &mut String) {
        let is_whole = self.wants() <= max_chars;
        let mut room = if is_whole { max_chars } else { max_chars.saturating_sub(OMISSION) };
        let fits = |line: &&String| {
            let rest = room.checked_sub(line.chars().count() + 1);
            room = rest.unwrap_or(room);
            rest.is_some()
        };
        let count = self.lines.iter().rev().take_while(fits).count();
        let cut = self
            .lines
            .back()
            .filter(|_| count == 0 && room > 2)
            .map(|line| one_line(line, room - 2));
        let shown = count + usize::from(cut.is_some());
        let omitted = self.omitted.saturating_add(self.lines.len() - shown);
        match omitted {
            0 if shown == 0 => out.extend([NONE, "\n"]),
            0 => {}
            1 => out.extend(["(1", OMITTED_LINE, "\n"]),
            _ => out.extend([&format!("({omitted}"), OMITTED_LINES, "\n"]),
        }
        out.extend(cut.iter().flat_map(|line| [line, "\n"]));
        for line in self.lines.iter().skip(self.lines.len() - count) {
            out.extend([line, "\n"]);
        }
    }
}

/// The text of an empty section.
const NONE: &str = "(none)";
/// What follows the number of lines that were left out.
const OMITTED_LINES: &str = " earlier lines omitted)";
/// The same after a one.
const OMITTED_LINE: &str = " earlier line omitted)";
/// Room for such a line, in characters.
const OMISSION: usize = 45;

/// The number in `(3 earlier lines omitted)`.
fn omitted(line: &str) -> Option<usize> {
    let number = line.strip_prefix('(')?;
    number.strip_suffix(OMITTED_LINES).or(number.strip_suffix(OMITTED_LINE))?.parse().ok()
}

/// Divides `room` by weight. What one share does not need goes to the others.
fn shares<const N: usize>(mut room: usize, wants: [(usize, usize); N]) -> [usize; N] {
    let mut shares = [0; N];
    let mut open: Vec<usize> = (0..N).collect();
    loop {
        let weights: usize = open.iter().map(|at| wants[*at].1).sum();
        let share = |at: usize| room.saturating_mul(wants[at].1) / weights.max(1);
        let (content, wanting): (Vec<_>, Vec<_>) =
            open.iter().copied().partition(|at| wants[*at].0 <= share(*at));
        if content.is_empty() {
            for at in wanting {
                shares[at] = share(at);
            }
            return shares;
        }
        for at in content {
            shares[at] = wants[at].0;
            room -= wants[at].0;
        }
        open = wanting;
    }
}

/// What is written under the headings.
#[derive(Default)]
struct Notes {
    goal: String,
    requests: Lines,
    progress: Lines,
    decisions: Lines,
    failed: Lines,
    open: Lines,
    next: Lines,
    /// The last answer of the model: the next step where no line is recognised as one.
    last_answer: String,
    /// `next` has recognised steps.
    has_steps: bool,
}

impl Notes {
    fn read<T: Turn>(&mut self, turn: &T) {
        let text = turn.text();
        if is_summary(turn) {
            return self.carry(text.strip_prefix(SUMMARY_TAG).unwrap_or(&text));
        }
        if text.trim().is_empty() {
            return;
        }
        match turn.role() {
            Role::User if self.goal.is_empty() => text.trim().clone_into(&mut self.goal),
            Role::User => self.requests.push(format!("{LATER}{}", one_line(&text, LINE))),
            Role::System => self.progress.push(format!("- told: {}", one_line(&text, LINE))),
            Role::Assistant => self.read_answer(&text),
            Role::Tool => {
                self.progress.push(format!("- a tool gave: {}", one_line(&text, ARGUMENTS)));
            }
        }
    }

    fn read_answer(&mut self, text: &str) {
        let line = one_line(text, LINE);
        self.progress.push(format!("- said: {line}"));
        self.last_answer = line;
        let mut steps = Lines::default();
        for line in text.lines().take(MOST_LINES) {
            let item = format!("- {}", one_line(line.trim_start_matches(['-', '*', ' ']), LINE));
            let line: String = item.chars().take(LINE).collect::<String>().to_lowercase();
            let sounds_like = |marks: &[&str]| marks.iter().any(|mark| line.contains(mark));
            if sounds_like(&["decided", "decision", "instead of", "rather than", "i chose"]) {
                self.decisions.push(item);
            } else if sounds_like(&[
                "next step",
                "next, ",
                "next:",
                "todo",
                "still need",
                "remaining",
            ]) {
                steps.push(item);
            }
        }
        // Later next steps replace earlier ones.
        if !steps.lines.is_empty() {
            self.next = steps;
            self.has_steps = true;
        }
    }

    fn carry(&mut self, summary: &str) {
        let parts = parts(summary);
        for part in parts {
            match part.section {
                Some(Section::Goal) => self.carry_goal(part.body),
                Some(Section::Progress) => self.progress.carry(part.body),
                Some(Section::KeyDecisions) => self.decisions.carry(part.body),
                Some(Section::FailedApproaches) => self.failed.carry(part.body),
                Some(Section::OpenIssues) => self.open.carry(part.body),
                Some(Section::NextSteps) => self.next.carry(part.body),
                Some(Section::FileOperations) => {}
                None => self.progress.carry(part.whole),
            }
        }
    }

    fn carry_goal(&mut self, body: &str) {
        let (later, goal): (Vec<_>, Vec<_>) =
            body.lines().partition(|line| line.starts_with(LATER) || omitted(line).is_some());
        let goal = unquote(goal.join("\n").trim());
        if self.goal.is_empty() && goal != NONE {
            self.goal = goal;
        }
        self.requests.carry(&later.join("\n"));
    }

    fn write(mut self, max_chars: usize) -> String {
        if !self.has_steps && !self.last_answer.is_empty() {
            self.next.lines.retain(|line| !line.starts_with(CONTINUE_FROM));
            self.next.push(format!("{CONTINUE_FROM}{}", self.last_answer));
        }
        let headings: usize = Section::ALL.iter().map(|section| section.title().len() + 5).sum();
        let goal = if self.goal.is_empty() { NONE } else { &self.goal };
        let requests = if self.requests.lines.is_empty() { 0 } else { self.requests.wants() };
        let sections = [
            (Section::Progress, &self.progress),
            (Section::KeyDecisions, &self.decisions),
            (Section::FailedApproaches, &self.failed),
            (Section::OpenIssues, &self.open),
            (Section::NextSteps, &self.next),
        ];
        let [progress, decisions, failed, open, next] = sections.map(|(_, lines)| lines.wants());
        let [for_goal, for_requests, rest @ ..] = shares(
            max_chars.saturating_sub(headings),
            [
                (quote(goal).chars().count(), 20),
                (requests, 10),
                (progress, 30),
                (decisions, 10),
                (failed, 12),
                (open, 10),
                (next, 8),
            ],
        );
        let mut out = format!("## {}\n{}\n", Section::Goal.title(), quoted(goal, for_goal));
        if requests > 0 {
            self.requests.write(for_requests, &mut out);
        }
        for ((section, lines), room) in sections.into_iter().zip(rest) {
            let _ = writeln!(out, "\n## {}", section.title());
            lines.write(room, &mut out);
        }
        cut_middle(out.trim_end(), max_chars)
    }
}

/// How a request after the first one begins.
const LATER: &str = "- later: ";
/// How a next step begins that is only the last answer.
const CONTINUE_FROM: &str = "- go on from: ";
/// How a call that did not succeed begins among the open issues.
const FAILS: &str = "- fails: ";

/// The calls of the messages, and how they ended.
#[derive(Default)]
struct Calls<'a> {
    /// In order.
    all: Vec<Call>,
    /// Those without a result.
    running: OpenCalls<'a>,
    /// Whether the last call with the same tool and arguments succeeded.
    last: HashMap<String, bool>,
}

struct Call {
    what: String,
    end: End,
}

enum End {
    Running,
    Succeeded,
    Failed(String),
}

impl<'a> Calls<'a> {
    fn read<T: Turn>(&mut self, turn: &'a T, notes: &mut Notes) {
        for result in turn.results() {
            let call = self.running.answer(result.id);
            let what = call.map_or("a tool", |call| self.all[call].what.as_str()).to_owned();
            let end = if result.is_error {
                let why = one_line(&result.text, LINE);
                notes.failed.push(format!("- {what}: {why}"));
                End::Failed(why)
            } else {
                notes.progress.push(format!("- did: {what}"));
                End::Succeeded
            };
            self.last.insert(what, !result.is_error);
            if let Some(call) = call {
                self.all[call].end = end;
            }
        }
        for call in turn.calls() {
            let arguments = one_line(&call.arguments.text(), ARGUMENTS);
            self.running.push(call.id);
            self.all.push(Call { what: format!("{} {arguments}", call.name), end: End::Running });
        }
    }

    /// What failed and did not succeed later, and what did not end, is open; so are the issues of
    /// an earlier summary that are not settled.
    fn end(self, notes: &mut Notes) {
        notes.open.lines.retain(|line| {
            let issue = line.strip_prefix(FAILS).unwrap_or_default();
            let mut ends = issue.match_indices(": ").map(|(end, _)| end);
            !ends.any(|end| self.last.get(&issue[..end]) == Some(&true))
        });
        for Call { what, end } in self.all {
            match end {
                End::Failed(why) if self.last.get(&what) == Some(&false) => {
                    notes.open.push(format!("{FAILS}{what}: {why}"));
                }
                End::Running => notes.open.push(format!("- no result: {what}")),
                End::Failed(_) | End::Succeeded => {}
            }
        }
    }
}
