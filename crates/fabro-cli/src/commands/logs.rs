//! `fabro logs`.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap_complete::ArgValueCandidates;
use fabro_engine::{checkpoint, stage_dir};
use fabro_events::{Event, EventBody, ParentStage};
use fabro_inspect::{
    LogStream, ReportError, StageKey, StageSelection, copy_recorded_text, recorded_output, written,
};
use fabro_sandbox::artifacts::check_sum;
use fabro_store::{RunLog as _, Runs as _, SqliteStore, StoreError};
use fabro_terminal::{Paint, clean};
use fabro_types::{NodeKind, RunId};
use serde_json::json;

use super::follow::{Follow, News, is_end, no_driver};
use super::log_files::{GrowingFile, Lines, of_attempt};
use crate::complete;
use crate::error;
use crate::exit::Exit;
use crate::global::Global;
use crate::output;

/// Show what commands print and agents say
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro logs latest -f\n  fabro logs latest test\n  fabro logs latest test@2 --tail 20\n\nLines of standard error begin with `stderr | `, calls of tools with `→`, and what became of a stage with `!`."
)]
pub struct LogsArgs {
    /// The run: its id, the beginning of it, or `latest`
    #[arg(default_value = "latest", add = ArgValueCandidates::new(complete::runs))]
    pub run: String,

    /// Only this stage: NODE (its last visit), NODE@VISIT or BRANCH/NODE@VISIT
    #[arg(value_name = "[BRANCH/]NODE[@VISIT]", add = ArgValueCandidates::new(complete::stages))]
    pub stage: Option<String>,

    /// Follow the run until it ends or pauses
    #[arg(short, long)]
    pub follow: bool,

    /// Begin with the last N lines of what there is
    #[arg(long, value_name = "N")]
    pub tail: Option<usize>,

    /// Print JSON, one object per line
    #[arg(long)]
    pub json: bool,

    /// Read the log of the run after this event: the stage begins later
    #[arg(long, hide = true, value_name = "SEQ", requires = "stage", default_value_t = 0)]
    pub after: u64,
}

/// How much text is written at a time.
const BUFFER: usize = 64 << 10;

/// How many events are read at a time.
const PAGE: usize = 1_000;

/// Shows what the stages of a run wrote.
pub async fn logs(args: &LogsArgs, global: &Global) -> anyhow::Result<Exit> {
    let (store, run) = global.run_to_read(&args.run).await?;
    let mut follow = Follow::begin(&store, run).await?;
    let printer = Printer {
        paint: global.paint_stdout(),
        is_json: args.json,
        held: args.tail.map(|_| VecDeque::new()),
        most_held: args.tail.unwrap_or_default(),
        stage: None,
        numbers: BTreeMap::new(),
        text: String::new(),
    };
    let mut reader = Reader {
        store: &store,
        root: run,
        selection: None,
        members: vec![Member { last: args.after, ..Member::new(run) }],
        read_already: BTreeMap::new(),
        stages: BTreeMap::new(),
        printer,
        has_ended: false,
    };
    reader.begin(args).await?;
    while args.follow && !reader.has_ended {
        match follow.next().await? {
            News::Changed => reader.catch_up().await?,
            News::Nothing => reader.read_files()?,
            News::NoDriver => {
                no_driver(run, global);
                break;
            }
        }
    }
    reader.finish()?;
    match reader.selection {
        Some(Selection { run: None, .. }) => {
            let name = clean(args.stage.as_deref().unwrap_or_default().trim()).into_owned();
            let stages = global.command(&format!("inspect {run}"));
            let message = format!("the run has no stage `{name}`, also not at its end");
            Err(error::usage(message, format!("see its stages with `{stages}`")))
        }
        _ => Ok(Exit::SUCCEEDED),
    }
}

/// A run, or the run of a sub-workflow, as far as it was read.
struct Member {
    run: RunId,
    /// The name of the stage that it is the sub-workflow of, and whether that is shown; `None` too where
    /// a rewind took that stage back.
    above: Option<(Arc<str>, bool)>,
    /// The last event that was read.
    last: u64,
    /// When that was; it never goes back.
    time: i64,
}

impl Member {
    fn new(run: RunId) -> Self {
        Self { run, above: None, last: 0, time: i64::MIN }
    }
}

/// A stage that has started.
struct StageLog {
    /// How it is called, after the stages whose sub-workflows it is part of.
    name: Arc<str>,
    dir: PathBuf,
    kind: NodeKind,
    stdout: GrowingFile,
    stderr: GrowingFile,
    /// The answer that arrives, and its lines that were shown already.
    live: GrowingFile,
    live_lines: Vec<String>,
    /// A model has answered.
    has_text: bool,
    is_shown: bool,
    is_open: bool,
}

struct Selection {
    /// The run that has them; `None` while none of them has started.
    run: Option<RunId>,
    stages: StageSelection,
}

struct Reader<'s> {
    store: &'s SqliteStore,
    root: RunId,
    /// The stages that are shown, if not all are.
    selection: Option<Selection>,
    members: Vec<Member>,
    /// Events that were read to find the selected stages and are not shown yet.
    read_already: BTreeMap<RunId, Vec<Event>>,
    stages: BTreeMap<(RunId, StageKey), StageLog>,
    printer: Printer,
    /// The run has ended or is paused.
    has_ended: bool,
}

impl Reader<'_> {
    /// Shows what there is.
    async fn begin(&mut self, args: &LogsArgs) -> anyhow::Result<()> {
        if let Some(stage) = &args.stage {
            self.selection = Some(self.select(stage, args.follow).await?);
        }
        self.catch_up().await?;
        self.printer.release();
        self.printer.flush()
    }

    /// The stages that a name means: those of the run, else of one of its sub-workflows, else those
    /// that may still come.
    async fn select(&mut self, stage: &str, may_come: bool) -> anyhow::Result<Selection> {
        let mut missing = None;
        for run in self.store.family(self.root).await? {
            let member = self.members.iter().find(|member| member.run == run);
            let events = read_after(self.store, run, member.map_or(0, |it| it.last)).await?;
            match StageSelection::new(&events, stage) {
                Ok(stages) => {
                    self.read_already.insert(run, events);
                    return Ok(Selection { run: Some(run), stages });
                }
                Err(none @ ReportError::NoStage { .. }) => {
                    let has_ended = events.iter().fold(false, |before, it| is_end(it, before));
                    missing.get_or_insert((none, has_ended));
                }
                Err(error) => return Err(error.into()),
            }
        }
        match missing {
            Some((error, has_ended)) if has_ended || !may_come => Err(error.into()),
            _ => {
                output::stderr(&format!("`{}` has not started\n", clean(stage.trim())));
                Ok(Selection { run: None, stages: StageSelection::coming(stage) })
            }
        }
    }

    /// Shows every event that was not shown yet, and what was added to files.
    async fn catch_up(&mut self) -> anyhow::Result<()> {
        // The run before its sub-workflows: once it has ended, they have too.
        let mut batch = Vec::new();
        self.read(0, &mut batch).await?;
        for run in self.store.family(self.root).await? {
            if !self.members.iter().any(|member| member.run == run) {
                self.members.push(Member::new(run));
            }
        }
        for at in 1..self.members.len() {
            if self.members[at].last > 0 || self.is_parent_known(at, &batch).await? {
                self.read(at, &mut batch).await?;
            }
        }
        batch.sort_by_key(|(time, at, event)| (*time, *at, event.seq));
        for (_, at, event) in &batch {
            self.event(*at, event)?;
        }
        self.read_files()
    }

    /// Whether the stage is known whose sub-workflow a member is. One that has started since the events of its run
    /// were read is known the next time: without it, the stages of the member would have no name.
    async fn is_parent_known(
        &self,
        at: usize,
        batch: &[(i64, usize, Event)],
    ) -> Result<bool, StoreError> {
        let first = self.store.read(self.members[at].run, 0, 1).await?.into_iter().next();
        let Some(EventBody::RunCreated(created)) = first.map(|event| event.entry.body) else {
            return Ok(true);
        };
        let Some(parent) = &created.parent else { return Ok(true) };
        let is_start = |event: &Event| {
            event.run_id == parent.run_id
                && matches!(event.entry.body, EventBody::StageStarted { .. })
                && StageKey::of(event)
                    .is_some_and(|key| parent.is(key.branch.as_deref(), &key.node, key.visit))
        };
        Ok(self.above(parent).is_some() || batch.iter().any(|(.., event)| is_start(event)))
    }

    /// Reads the new events of a member that count, with the times by which they are sorted.
    async fn read(
        &mut self,
        at: usize,
        batch: &mut Vec<(i64, usize, Event)>,
    ) -> anyhow::Result<()> {
        let member = &mut self.members[at];
        let mut events = self.read_already.remove(&member.run).unwrap_or_default();
        let last = events.last().map_or(member.last, |event| event.seq);
        events.extend(read_after(self.store, member.run, last).await?);
        member.last = events.last().map_or(member.last, |event| event.seq);
        for event in checkpoint::effective(&events) {
            member.time = member.time.max(event.ts_ms);
            batch.push((member.time, at, event.clone()));
        }
        Ok(())
    }

    fn event(&mut self, at: usize, event: &Event) -> anyhow::Result<()> {
        if event.run_id == self.root {
            self.has_ended = is_end(event, self.has_ended);
        }
        match &event.entry.body {
            EventBody::RunCreated(created) => {
                self.members[at].above = created.parent.as_ref().and_then(|it| self.above(it));
            }
            EventBody::StageStarted { rank, handler, .. } => {
                self.start(at, event, *rank, *handler);
            }
            EventBody::BranchCompleted { canceled: true, .. } => self.cancel(event)?,
            _ => {}
        }
        let Some(key) = StageKey::of(event) else { return Ok(()) };
        let Some(stage) = self.stages.get_mut(&(event.run_id, key.clone())) else { return Ok(()) };
        if !stage.is_shown {
            return Ok(());
        }
        match &event.entry.body {
            EventBody::StageRetrying { attempt, .. } => {
                let dir = stage.dir.clone();
                let path = |name: &str| of_attempt(&dir, *attempt, name);
                if stage.kind == NodeKind::Command {
                    check_attempt(&path("stdout.log"))?;
                }
                check_attempt(&path("stderr.log"))?;
                stage.read_files(path, true, &mut self.printer)?;
                stage.stdout = GrowingFile::default();
                stage.stderr = GrowingFile::default();
                stage.live = GrowingFile::default();
                stage.live_lines.clear();
            }
            EventBody::StageCompleted(_) | EventBody::StageFailed(_) => {
                stage.end(event, &key, self.store, &mut self.printer)?;
            }
            _ => {}
        }
        if let Some(written) = written(event, self.store)? {
            let is_answer = written.stream == LogStream::Text;
            stage.has_text |= is_answer;
            let text = if is_answer { stage.rest_of(&written.text) } else { &written.text };
            self.printer.text(&stage.name, written.stream, text)?;
        }
        Ok(())
    }

    fn above(&self, parent: &ParentStage) -> Option<(Arc<str>, bool)> {
        let stage = self.stages.iter().rfind(|((run, key), _)| {
            *run == parent.run_id && parent.is(key.branch.as_deref(), &key.node, key.visit)
        });
        stage.map(|(_, stage)| (Arc::clone(&stage.name), stage.is_shown))
    }

    fn start(&mut self, at: usize, event: &Event, rank: u32, kind: NodeKind) {
        let Some(key) = StageKey::of(event) else { return };
        let run = event.run_id;
        let mut name = key.full_name();
        let mut is_shown = self.selection.is_none();
        if run != self.root {
            let Some((above, is_above_shown)) = &self.members[at].above else { return };
            name = format!("{above} › {name}");
            is_shown = *is_above_shown;
        }
        if let Some(selection) = &mut self.selection
            && selection.run.is_none_or(|selected| selected == run)
        {
            selection.stages.started(event);
            if selection.stages.has(&key) {
                selection.run = Some(run);
                is_shown = true;
            }
        }
        let dir = self.store.runs_dir().join(run.to_string());
        let stage = StageLog {
            name: name.into(),
            dir: stage_dir(&dir, rank, &key.node, key.visit),
            kind,
            stdout: GrowingFile::default(),
            stderr: GrowingFile::default(),
            live: GrowingFile::default(),
            live_lines: Vec::new(),
            has_text: false,
            is_shown,
            is_open: true,
        };
        self.stages.insert((run, key), stage);
    }

    /// Ends the stages of a branch that a join does not wait for.
    fn cancel(&mut self, event: &Event) -> anyhow::Result<()> {
        let Some(canceled) = event.entry.branch.as_deref() else { return Ok(()) };
        for ((run, key), stage) in &mut self.stages {
            let branch = key.branch.as_deref().unwrap_or_default();
            let rest = branch.strip_prefix(canceled);
            let is_inside = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
            if *run == event.run_id && is_inside && stage.is_open {
                stage.is_open = false;
                stage.read_to_end(&mut self.printer)?;
            }
        }
        Ok(())
    }

    /// Shows what was added to the files of running stages.
    fn read_files(&mut self) -> anyhow::Result<()> {
        for stage in self.stages.values_mut().filter(|stage| stage.is_open) {
            let dir = stage.dir.clone();
            stage.read_files(|name| dir.join(name), false, &mut self.printer)?;
            if stage.is_shown && stage.kind != NodeKind::Command {
                stage.read_live(&dir.join("live.log"), &mut self.printer)?;
            }
        }
        self.printer.flush()
    }

    /// Shows the last lines of files that no line end ends.
    fn finish(&mut self) -> anyhow::Result<()> {
        for stage in self.stages.values_mut().filter(|stage| stage.is_open) {
            stage.read_to_end(&mut self.printer)?;
        }
        self.printer.flush()
    }
}

/// The events of a run after one.
async fn read_after(
    store: &SqliteStore,
    run: RunId,
    mut after: u64,
) -> Result<Vec<Event>, StoreError> {
    let mut events = Vec::new();
    loop {
        let page = store.read(run, after, PAGE).await?;
        let is_last = page.len() < PAGE;
        after = page.last().map_or(after, |event| event.seq);
        events.extend(page);
        if is_last {
            return Ok(events);
        }
    }
}

impl StageLog {
    /// Shows what was added to the files; `to_end` also a last line that no line end ends.
    fn read_files(
        &mut self,
        path: impl Fn(&str) -> PathBuf,
        to_end: bool,
        printer: &mut Printer,
    ) -> anyhow::Result<()> {
        if !self.is_shown {
            return Ok(());
        }
        for (stream, file, file_name) in [
            (LogStream::Stdout, &mut self.stdout, "stdout.log"),
            (LogStream::Stderr, &mut self.stderr, "stderr.log"),
        ] {
            // What an agent's program prints is a protocol; what the agent says is in the events.
            if self.kind != NodeKind::Command && stream == LogStream::Stdout {
                continue;
            }
            file.read(&path(file_name), |line| printer.line(&self.name, stream, line))?;
            if to_end && let Some(line) = file.finish() {
                printer.line(&self.name, stream, &line)?;
            }
        }
        Ok(())
    }

    /// Shows the whole lines of an answer that arrives.
    fn read_live(&mut self, path: &Path, printer: &mut Printer) -> anyhow::Result<()> {
        self.live.read(path, |line| {
            self.live_lines.push(String::from_utf8_lossy(line).trim_end_matches('\n').to_owned());
            printer.line(&self.name, LogStream::Text, line)
        })
    }

    /// What of a recorded answer was not shown while it arrived. All of it, when what arrived was
    /// discarded.
    fn rest_of<'t>(&mut self, text: &'t str) -> &'t str {
        let mut rest = text;
        self.live = GrowingFile::default();
        for line in std::mem::take(&mut self.live_lines) {
            let Some(after) = rest.strip_prefix(&line) else { return text };
            rest = after.strip_prefix('\n').unwrap_or(after);
        }
        rest
    }

    fn read_to_end(&mut self, printer: &mut Printer) -> anyhow::Result<()> {
        let dir = self.dir.clone();
        self.read_files(|name| dir.join(name), true, printer)
    }

    /// Shows what is recorded of a stage that has ended. What was read of its files is continued there.
    fn end(
        &mut self,
        event: &Event,
        key: &StageKey,
        store: &SqliteStore,
        printer: &mut Printer,
    ) -> anyhow::Result<()> {
        self.is_open = false;
        let dir = self.dir.clone();
        let name = &self.name;
        for stream in [LogStream::Stdout, LogStream::Stderr] {
            let (file, file_name) = match stream {
                LogStream::Stdout => (&mut self.stdout, "stdout.log"),
                _ => (&mut self.stderr, "stderr.log"),
            };
            let path = dir.join(file_name);
            let value = recorded_output(event, stream);
            let is_command = self.kind == NodeKind::Command;
            match value.filter(|_| is_command && prefers_record(file, &path)) {
                Some(value) => {
                    let skip = file.offset();
                    let line = file.finish().unwrap_or_default();
                    print_recorded((line, skip), &value, key, store, |line| {
                        printer.line(name, stream, line)
                    })?;
                }
                None if is_command || stream == LogStream::Stderr => {
                    file.read(&path, |line| printer.line(name, stream, line))?;
                    if let Some(line) = file.finish() {
                        printer.line(name, stream, &line)?;
                    }
                }
                None => {}
            }
        }
        let asks = matches!(self.kind, NodeKind::Agent | NodeKind::Prompt) && !self.has_text;
        match recorded_output(event, LogStream::Text) {
            Some(value) if asks => {
                let line = |line: &[u8]| printer.line(name, LogStream::Text, line);
                print_recorded((Vec::new(), 0), &value, key, store, line)
            }
            _ => Ok(()),
        }
    }
}

/// Prints a recorded text, line by line: what follows the first `skip` bytes, after the beginning of a line.
fn print_recorded(
    (line, skip): (Vec<u8>, u64),
    value: &serde_json::Value,
    key: &StageKey,
    store: &SqliteStore,
    print: impl FnMut(&[u8]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut lines = Lines::new(line, skip, print);
    let copied = copy_recorded_text(key, value, store, &mut lines);
    // An error of the terminal is one of the copy too.
    lines.end()?;
    Ok(copied?)
}

/// Whether the record of an output is shown instead of its file: nothing of the file was shown, or it is
/// gone. The record has a hash, and a damaged one is an error.
fn prefers_record(file: &GrowingFile, path: &Path) -> bool {
    file.offset() == 0 || !path.exists()
}

/// Checks a file that an attempt left, which no record has.
fn check_attempt(path: &Path) -> anyhow::Result<()> {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name().and_then(|it| it.to_str()))
    else {
        return Ok(());
    };
    let next = "the rest of the run is not affected: remove the file to see the logs without it";
    check_sum(dir, name).map_err(|error| error::store(error.to_string(), next))
}

/// A line of the log.
struct LogLine {
    stage: Arc<str>,
    stream: LogStream,
    /// Which line of this stream of the stage it is, from 1: the same while the stage runs and after its end.
    number: u64,
    text: String,
}

/// Prints lines, with a header where the stage is another one than before.
struct Printer {
    paint: Paint,
    is_json: bool,
    /// With `--tail`: the last lines of what there is at first.
    held: Option<VecDeque<LogLine>>,
    most_held: usize,
    /// The stage of the last line.
    stage: Option<Arc<str>>,
    /// How many lines each stream of each stage has had.
    numbers: BTreeMap<Arc<str>, [u64; LogStream::ALL.len()]>,
    /// What is not written yet.
    text: String,
}

impl Printer {
    fn text(&mut self, stage: &Arc<str>, stream: LogStream, text: &str) -> anyhow::Result<()> {
        text.lines().try_for_each(|line| self.line(stage, stream, line.as_bytes()))
    }

    fn line(&mut self, stage: &Arc<str>, stream: LogStream, line: &[u8]) -> anyhow::Result<()> {
        let text = String::from_utf8_lossy(line);
        let text = text.strip_suffix('\n').unwrap_or(&text);
        let text = text.strip_suffix('\r').unwrap_or(text).to_owned();
        let numbers = self.numbers.entry(Arc::clone(stage)).or_default();
        let number = &mut numbers[stream as usize];
        *number += 1;
        let line = LogLine { stage: Arc::clone(stage), stream, number: *number, text };
        if let Some(held) = &mut self.held {
            held.push_back(line);
            if held.len() > self.most_held {
                held.pop_front();
            }
            return Ok(());
        }
        self.add(&line);
        if self.text.len() > BUFFER { self.flush() } else { Ok(()) }
    }

    /// What was held back is printed, and what comes now at once.
    fn release(&mut self) {
        for line in self.held.take().unwrap_or_default() {
            self.add(&line);
        }
    }

    fn add(&mut self, line: &LogLine) {
        if self.is_json {
            let LogLine { stage, stream, number, text } = line;
            let object = json!({"stage": &**stage, "stream": stream, "line": number, "text": text});
            let _ = writeln!(self.text, "{object}");
            return;
        }
        if self.stage.as_ref() != Some(&line.stage) {
            let before = if self.stage.is_some() { "\n" } else { "" };
            let header = self.paint.bold(&format!("── {}", clean(&line.stage)));
            let _ = writeln!(self.text, "{before}{header}");
            self.stage = Some(Arc::clone(&line.stage));
        }
        // What a line overwrites on a terminal is left out.
        let shown = line.text.rsplit('\r').find(|it| !it.is_empty()).unwrap_or_default();
        let shown = clean(shown);
        let paint = self.paint;
        let text = match line.stream {
            LogStream::Stdout | LogStream::Text => shown.into_owned(),
            LogStream::Stderr => format!("{} {shown}", paint.bad("stderr |")),
            LogStream::Tool => paint.dim(&format!("→ {shown}")),
            LogStream::Note => paint.odd(&format!("! {shown}")),
        };
        self.text.push_str(&text);
        self.text.push('\n');
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        if self.text.is_empty() {
            return Ok(());
        }
        let text = std::mem::take(&mut self.text);
        if self.is_json { output::json_text(text) } else { output::text(&text) }
    }
}

#[cfg(test)]
mod tests {
    use fabro_events::{CreatedRun, Entry};
    use fabro_store::Batch;
    use fabro_types::{BlobRef, ContextPatch, Fidelity};

    use super::*;

    #[test]
    fn what_was_shown_of_an_answer_is_not_shown_again() {
        let check = |shown: &[&str], answer: &str, expect: &str| {
            let mut stage = StageLog {
                name: "work@1".into(),
                dir: PathBuf::new(),
                kind: NodeKind::Agent,
                stdout: GrowingFile::default(),
                stderr: GrowingFile::default(),
                live: GrowingFile::default(),
                live_lines: shown.iter().map(|&line| line.to_owned()).collect(),
                has_text: false,
                is_shown: true,
                is_open: true,
            };
            assert_eq!(stage.rest_of(answer), expect, "{shown:?}");
            assert!(stage.live_lines.is_empty());
        };
        check(&[], "one\ntwo", "one\ntwo");
        check(&["one"], "one\ntwo", "two");
        check(&["one", "two"], "one\ntwo", "");
        check(&["", "one"], "\none\ntwo", "two");
        // Another answer came after a retry.
        check(&["other"], "one\ntwo", "one\ntwo");
    }

    async fn append(
        store: &SqliteStore,
        run: RunId,
        seq: u64,
        stage: Option<&str>,
        body: EventBody,
    ) {
        let entry =
            Entry { node_id: stage.map(Into::into), visit: stage.map(|_| 1), ..Entry::new(body) };
        let events = [Event { run_id: run, seq, ts_ms: 1_000, entry }];
        store.append(run, seq - 1, &Batch::of(&events)).await.unwrap();
    }

    fn created(parent: Option<RunId>) -> EventBody {
        let parent = parent.map(|run_id| ParentStage {
            run_id,
            node_id: "sub".into(),
            visit: 1,
            branch: None,
            attempt: 1,
        });
        let created = CreatedRun {
            workflow: "w".into(),
            goal: String::new(),
            inputs: serde_json::Map::new(),
            seed: 1,
            work_dir: "/w".into(),
            bundle: BlobRef::of(b"bundle"),
            context: ContextPatch::new(),
            max_cost: None,
            parent,
            dry_run: false,
            worktree: None,
            rules: 0,
        };
        EventBody::RunCreated(created.into())
    }

    fn started(handler: NodeKind) -> EventBody {
        EventBody::StageStarted { rank: 1, handler, fidelity: Fidelity::Compact, thread_id: None }
    }

    /// The log of a run is read before those of its sub-workflows: the stage of one may start in between.
    #[test]
    fn a_sub_workflow_is_read_once_its_stage_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&dir.path().join("store")).unwrap();
        let [root, child] = [1, 2].map(|at| RunId::from_parts(at, 7));
        let work = async {
            append(&store, root, 1, None, created(None)).await;
            append(&store, child, 1, None, created(Some(root))).await;
            append(&store, child, 2, Some("inner"), started(NodeKind::Agent)).await;
            let warning = EventBody::AgentWarning {
                kind: "test".into(),
                message: "here".into(),
                window: None,
            };
            append(&store, child, 3, Some("inner"), warning).await;
            let printer = Printer {
                paint: Paint::new(false),
                is_json: false,
                held: Some(VecDeque::new()),
                most_held: 9,
                stage: None,
                numbers: BTreeMap::new(),
                text: String::new(),
            };
            let mut reader = Reader {
                store: &store,
                root,
                selection: None,
                members: vec![Member::new(root)],
                read_already: BTreeMap::new(),
                stages: BTreeMap::new(),
                printer,
                has_ended: false,
            };
            reader.catch_up().await?;
            assert_eq!(reader.printer.held.as_ref().unwrap().len(), 0);
            append(&store, root, 2, Some("sub"), started(NodeKind::ManagerLoop)).await;
            reader.catch_up().await?;
            reader.catch_up().await?;
            let lines = reader.printer.held.unwrap();
            let lines: Vec<_> = lines.iter().map(|it| (&*it.stage, it.number, &*it.text)).collect();
            assert_eq!(lines, [("sub@1 › inner@1", 1, "warning: here")]);
            Ok(())
        };
        crate::global::block_on(work).unwrap();
    }
}
