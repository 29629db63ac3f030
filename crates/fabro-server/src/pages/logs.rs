//! What the stages of a run wrote: the last lines, which the script follows; those with a text; those around one.

use std::collections::VecDeque;
use std::io;
use std::pin::pin;
use std::process::Stdio;
use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use fabro_inspect::find_stage;
use fabro_page::Links;
use fabro_types::{RunStatus, one_line};
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::process::Command;

use super::{Frame, RunHead, Section, Tab, for_caller, query as query_of, render};
use crate::api::{Params, ShownLogs, log_command, logs_failed, too_many};
use crate::app::App;
use crate::auth::{Caller, Role};
use crate::problem::Problem;

/// How many lines are shown.
const LINES: usize = 500;

/// The longest line, in characters.
const LINE: usize = 4_000;

/// How much of what `fabro logs` reports is shown, in characters.
const REPORT: usize = 500;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Query {
    #[serde(default)]
    stage: String,
    /// Only lines with this text; upper and lower case of ASCII are the same.
    #[serde(default)]
    search: String,
    /// The stage of a line that is shown with those around it, as lines name it.
    #[serde(default)]
    at: String,
    /// The stream of that line.
    #[serde(default)]
    stream: String,
    /// Its number among the lines of its stage and stream.
    #[serde(default)]
    line: u64,
}

/// A line as `fabro logs --json` prints it.
#[derive(Deserialize)]
struct Line {
    stage: String,
    stream: String,
    #[serde(rename = "line")]
    number: u64,
    text: String,
}

/// A line of the page.
struct Row {
    line: Line,
    /// The text in pieces; those that are searched for are marked.
    pieces: Vec<(bool, String)>,
    /// The page of its stage.
    link: String,
    /// The page of this line.
    permalink: String,
    /// The line above is of the same stage: its link is the one that the keyboard comes to.
    continues: bool,
    is_target: bool,
}

#[derive(Template)]
#[template(path = "logs.html")]
struct Page<'a> {
    frame: Frame,
    head: RunHead,
    stage: &'a str,
    search: &'a str,
    /// Which lines these are.
    what: String,
    /// Where the last lines are, when these are others.
    back: Option<String>,
    /// Where the lines before the first, and after the last one, are.
    earlier: Option<String>,
    later: Option<String>,
    most: usize,
    /// Where the script finds the lines; `None` when none follow.
    stream: Option<String>,
    rows: Vec<Row>,
    /// All lines as JSON.
    download: String,
}

pub(super) async fn page(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Option<Caller>>,
    run: Result<Path<String>, PathRejection>,
    query: Result<Params<Query>, Problem>,
) -> Response {
    for_caller(caller, async |role| {
        let Path(run) = run?;
        html(&app, role, &run, &query?.0).await
    })
    .await
}

async fn html(app: &App, role: Role, run: &str, query: &Query) -> Result<String, Problem> {
    let id = app.actions.find(run).await?;
    let view = app.folds.view(id).await?;
    let stage = query.stage.trim();
    let chosen = (!stage.is_empty()).then_some(stage);
    if let Some(stage) = chosen {
        find_stage(&view.run.stages, stage)?;
    }
    let wanted = Wanted::of(query);
    let is_part = !matches!(wanted, Wanted::Last);
    let follows = view.run.status == RunStatus::Running && !is_part;
    let place = app.live.place().ok_or_else(too_many)?;
    let after = chosen.and_then(|stage| view.before(stage));
    let tail = (!is_part).then_some(LINES);
    let shown = ShownLogs { stage: chosen, after, tail, follows: false };
    let found = read(log_command(&app.actions, id, &shown), wanted).await?;
    drop(place);
    let what = found.what(follows);
    let path = format!("/runs/{id}/logs");
    let of_line = |line: &Line| {
        let number = line.number.to_string();
        let place = [("at", &*line.stage), ("stream", &line.stream), ("line", &number)];
        format!("{path}{}#line", query_of(&[&[("stage", stage)], &place[..]].concat()))
    };
    // Of the last lines it is not known whether they are all.
    let has_before = found.has_before || !is_part && found.lines.len() == LINES;
    let earlier = found.lines.front().filter(|_| has_before).map(of_line);
    let later = found.lines.back().filter(|_| found.has_after && query.line > 0).map(of_line);
    let links = Links::Server(format!("/runs/{id}"));
    let mut last = String::new();
    let rows = found.lines.into_iter().map(|line| {
        let continues = last == line.stage;
        last.clone_from(&line.stage);
        Row {
            pieces: marked(&line.text, query.search.trim()),
            link: links.stage(&line.stage),
            permalink: of_line(&line),
            continues,
            is_target: wanted.is_line(&line),
            line,
        }
    });
    let most = LINES.to_string();
    let pairs = [("follow", "true"), ("tail", &*most), ("stage", stage)];
    render(&Page {
        frame: Frame::new(&format!("Logs · {}", view.run.workflow), role, Section::Runs),
        head: RunHead::new(&view, Tab::Logs),
        stage,
        search: &query.search,
        what,
        back: is_part.then(|| format!("{path}{}", query_of(&[("stage", stage)]))),
        earlier,
        later,
        most: LINES,
        stream: follows.then(|| format!("/api/v1/runs/{id}/logs{}", query_of(&pairs))),
        rows: rows.collect(),
        download: format!("/api/v1/runs/{id}/logs{}", query_of(&[("stage", stage)])),
    })
}

/// Which lines are shown.
#[derive(Clone, Copy)]
enum Wanted<'a> {
    /// The last ones: the command prints no others.
    Last,
    /// The first ones with a text.
    With(&'a str),
    /// Those around a line of a stage and a stream.
    Around { stage: &'a str, stream: &'a str, line: u64 },
}

impl<'a> Wanted<'a> {
    fn of(query: &'a Query) -> Self {
        match (query.line, query.search.trim()) {
            (0, "") => Self::Last,
            (0, text) => Self::With(text),
            (line, _) => Self::Around { stage: &query.at, stream: &query.stream, line },
        }
    }

    fn is_line(self, of: &Line) -> bool {
        match self {
            Self::Around { stage, stream, line } => {
                line == of.number && stage == of.stage && stream == of.stream
            }
            Self::Last | Self::With(_) => false,
        }
    }
}

/// The lines that are shown, as they are chosen from all.
struct Found<'a> {
    wanted: Wanted<'a>,
    lines: VecDeque<Line>,
    /// There are lines before the first, and after the last one.
    has_before: bool,
    has_after: bool,
    /// How many more lines are taken; `None` before the one that is looked for.
    left: Option<usize>,
}

impl<'a> Found<'a> {
    fn new(wanted: Wanted<'a>) -> Self {
        let left = match wanted {
            Wanted::Last | Wanted::With(_) => Some(LINES),
            Wanted::Around { .. } => None,
        };
        Self { wanted, lines: VecDeque::new(), has_before: false, has_after: false, left }
    }

    /// Takes the next line; false when no more are wanted.
    fn take(&mut self, line: Line) -> bool {
        if let Wanted::With(text) = self.wanted
            && place_in(&line.text, text).is_none()
        {
            return true;
        }
        match &mut self.left {
            Some(0) => {
                self.has_after = true;
                return false;
            }
            Some(left) => *left -= 1,
            None if self.wanted.is_line(&line) => self.left = Some(LINES / 2),
            None if self.lines.len() >= LINES / 2 => {
                self.lines.pop_front();
                self.has_before = true;
            }
            None => {}
        }
        self.lines.push_back(cut(line));
        true
    }

    /// For people: which lines these are.
    fn what(&self, follows: bool) -> String {
        match self.wanted {
            Wanted::Last if follows => format!("the last {LINES} lines, and what is written now"),
            Wanted::Last => format!("the last {LINES} lines"),
            Wanted::With(_) if self.has_after => format!("the first {LINES} lines with this text"),
            Wanted::With(_) => match self.lines.len() {
                1 => "1 line with this text".to_owned(),
                count => format!("{count} lines with this text"),
            },
            Wanted::Around { .. } => "the lines around the one that is marked".to_owned(),
        }
    }
}

fn cut(mut line: Line) -> Line {
    if let Some((end, _)) = line.text.char_indices().nth(LINE) {
        line.text.truncate(end);
        line.text.push('…');
        line.text.shrink_to_fit();
    }
    line
}

/// Where a text is in a line, in bytes; upper and lower case of ASCII are the same.
fn place_in(line: &str, text: &str) -> Option<usize> {
    let text = text.as_bytes();
    line.as_bytes().windows(text.len()).position(|part| part.eq_ignore_ascii_case(text))
}

/// A line in pieces, those that are this text marked.
fn marked(line: &str, text: &str) -> Vec<(bool, String)> {
    let mut pieces = Vec::new();
    let mut rest = line;
    while let Some(at) = (!text.is_empty()).then(|| place_in(rest, text)).flatten() {
        let (before, found) = rest.split_at(at);
        let (found, after) = found.split_at(text.len());
        pieces.extend([(false, before), (true, found)].map(|(is, it)| (is, it.to_owned())));
        rest = after;
    }
    pieces.push((false, rest.to_owned()));
    pieces.retain(|(_, piece)| !piece.is_empty());
    pieces
}

/// The wanted lines of what a command prints. It ends with the future.
async fn read(mut command: Command, wanted: Wanted<'_>) -> Result<Found<'_>, Problem> {
    let failed = |error: io::Error| logs_failed(error.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(failed)?;
    let Some(output) = child.stdout.take() else {
        return Err(logs_failed("the process has no output".to_owned()));
    };
    let mut found = Found::new(wanted);
    let mut ending = pin!(child.wait_with_output());
    let mut ended = None;
    let is_enough = {
        let mut taking = pin!(take_lines(output, &mut found));
        loop {
            tokio::select! {
                taken = &mut taking => break taken.map_err(failed)?,
                end = &mut ending, if ended.is_none() => ended = Some(end.map_err(failed)?),
            }
        }
    };
    if is_enough {
        return Ok(found);
    }
    let ended = match ended {
        Some(ended) => ended,
        None => ending.await.map_err(failed)?,
    };
    if !ended.status.success() {
        let report = one_line(&String::from_utf8_lossy(&ended.stderr), REPORT);
        return Err(logs_failed(format!("`fabro logs` failed ({}): {report}", ended.status)));
    }
    match wanted {
        Wanted::Around { stage, stream, line } if found.left.is_none() => {
            let detail = format!("`{stage}` has no line {line} of `{stream}`");
            Err(Problem::not_found("not_found", detail, "see all lines of the stage"))
        }
        _ => Ok(found),
    }
}

/// Takes the lines of a stream; true when the rest of it is not wanted. One at a time is held as a whole.
async fn take_lines(output: impl AsyncRead + Unpin, found: &mut Found<'_>) -> io::Result<bool> {
    let mut output = BufReader::new(output).lines();
    while let Some(json) = output.next_line().await? {
        if !found.take(serde_json::from_str(&json)?) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    /// How long the texts are that a script prints, or why there are none.
    async fn check(script: &str) -> String {
        let shown = |found: &Found<'_>| {
            format!(
                "{:?}",
                found.lines.iter().map(|it| it.text.chars().count()).collect::<Vec<_>>()
            )
        };
        of(script, Wanted::Last, shown).await
    }

    async fn of(script: &str, wanted: Wanted<'_>, shown: impl Fn(&Found<'_>) -> String) -> String {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        match read(command, wanted).await {
            Ok(found) => shown(&found),
            Err(problem) => format!("{}: {}", problem.code, problem.detail),
        }
    }

    #[tokio::test]
    async fn a_failure_is_not_an_empty_log_and_long_lines_are_cut() {
        let line = r#"printf '{"stage":"a@1","stream":"stdout","line":1,"text":"%0*d"}\n'"#;
        assert_snapshot!(check(&format!("{line} 4 0; {line} 4000 0; {line} 9000 0")).await, @"[4, 4000, 4001]");
        assert_snapshot!(check("true").await, @"[]");
        assert_snapshot!(check("echo 'no store is here' >&2; exit 3").await, @"logs_failed: `fabro logs` failed (exit status: 3): no store is here");
    }

    #[tokio::test]
    async fn lines_are_found_by_their_text_and_by_their_number() {
        let script = r#"i=0; while [ $i -lt 2000 ]; do i=$((i+1)); printf '{"stage":"a@1","stream":"stdout","line":%d,"text":"No. %d"}\n' $i $i; done"#;
        let shown = |found: &Found<'_>| {
            let numbers: Vec<u64> = found.lines.iter().map(|it| it.number).collect();
            let [first, last] = [numbers.first(), numbers.last()];
            let (before, after) = (found.has_before, found.has_after);
            format!("{} from {first:?} to {last:?}, {before} {after}", numbers.len())
        };
        let around = |line| Wanted::Around { stage: "a@1", stream: "stdout", line };
        assert_snapshot!(of(script, Wanted::With("no. 1999"), shown).await, @"1 from Some(1999) to Some(1999), false false");
        // It does not wait for the rest of what the command prints.
        assert_snapshot!(of(&format!("{script}; sleep 60"), Wanted::With("NO"), shown).await, @"500 from Some(1) to Some(500), false true");
        assert_snapshot!(of(&format!("{script}; sleep 60"), around(1_000), shown).await, @"501 from Some(750) to Some(1250), true true");
        assert_snapshot!(of(script, around(1), shown).await, @"251 from Some(1) to Some(251), false true");
        assert_snapshot!(of(script, around(1_990), shown).await, @"261 from Some(1740) to Some(2000), true false");
        assert_snapshot!(of(script, around(2_001), shown).await, @"not_found: `a@1` has no line 2001 of `stdout`");
    }

    #[test]
    fn what_is_searched_for_is_marked() {
        let check = |line, text, expect: &str| {
            let shown = marked(line, text).into_iter();
            let shown: String =
                shown.map(|(is, it)| if is { format!("[{it}]") } else { it }).collect();
            assert_eq!(shown, expect);
        };
        check("a Bad b and bad", "BAD", "a [Bad] b and [bad]");
        check("ärgert", "ä", "[ä]rgert");
        check("none", "", "none");
        check("aaa", "aa", "[aa]a");
    }
}
