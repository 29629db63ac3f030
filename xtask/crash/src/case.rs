//! One run in a directory and a store of its own, and its drivers.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tempfile::TempDir;

use crate::check::Snapshot;
use crate::model::Model;
use crate::work::Work;
use crate::{json, worktrees};

/// Where `fabro resume` finds what a dead driver left: scripts have the run's id in their
/// environment.
const MARKER: &str = "FABRO_RUN_ID=";

/// What [`Child::kill`] sends.
const SIGKILL: i32 = 9;

pub(crate) struct Case {
    dir: TempDir,
    fabro: PathBuf,
    store: PathBuf,
    work: Work,
    /// What must not change in the repository of the user.
    of_user: Option<Vec<String>>,
}

impl Case {
    pub(crate) fn new(work: Work, fabro: &Path, name: &str) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix(&format!("{name}-")).tempdir()?;
        for (file, text) in &work.files {
            fs::write(dir.path().join(file), text).with_context(|| format!("write {file}"))?;
        }
        let mut of_user = None;
        if work.is_repository {
            worktrees::make_repository(dir.path())?;
            of_user = Some(worktrees::of_user(dir.path())?);
        }
        let store = dir.path().join("store");
        Ok(Self { fabro: fabro.to_owned(), store, dir, work, of_user })
    }

    /// The same, with the store in another place.
    pub(crate) fn with_store(self, store: &Path) -> Self {
        Self { store: store.to_owned(), ..self }
    }

    /// The run's folder.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The store's directory.
    pub(crate) fn store(&self) -> &Path {
        &self.store
    }

    /// The model server; `None` for a model script.
    pub(crate) fn model(&self) -> Option<&Model> {
        self.work.model.as_ref()
    }

    /// Leaves the folder where it is.
    pub(crate) fn keep(&mut self) -> &Path {
        self.dir.disable_cleanup(true);
        self.dir.path()
    }

    pub(crate) fn start(&self) -> Result<Driver> {
        let mut command = Command::new(&self.fabro);
        self.drive(command.args(["run", self.work.workflow, "--json"]).args(self.work.args))
    }

    /// The same below another program, which writes into a file.
    pub(crate) fn start_under(&self, program: &[&str], file: &Path) -> Result<Driver> {
        let [name, arguments @ ..] = program else { bail!("no program") };
        let mut command = Command::new(name);
        command.args(arguments).arg(file).arg(&self.fabro);
        self.drive(command.args(["run", self.work.workflow, "--json"]).args(self.work.args))
    }

    pub(crate) fn resume(&self, run: &str) -> Result<Driver> {
        self.drive(Command::new(&self.fabro).args(["resume", run, "--json"]))
    }

    /// The same in a shell that runs `prepare` first.
    pub(crate) fn resume_after(&self, run: &str, prepare: &str) -> Result<Driver> {
        let script = format!("{prepare}; exec \"$0\" \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", &script]).arg(&self.fabro).args(["resume", run, "--json"]);
        self.drive(&mut command)
    }

    fn drive(&self, command: &mut Command) -> Result<Driver> {
        let errors = File::options().create(true).append(true).open(self.path("driver.err"))?;
        self.settle(command).stdout(Stdio::piped()).stderr(errors);
        Driver::start(command)
    }

    /// What drivers have written to stderr, the end of it.
    pub(crate) fn complaints(&self) -> String {
        let text = fs::read_to_string(self.path("driver.err")).unwrap_or_default();
        let lines: Vec<_> = text.trim_end().lines().collect();
        lines[lines.len().saturating_sub(8)..].join("\n  ")
    }

    /// The run, once there is one.
    pub(crate) fn run_id(&self) -> Result<Option<String>> {
        let mut runs = self.ids(&[])?;
        ensure!(runs.len() < 2, "there are {} runs in the store", runs.len());
        Ok(runs.pop())
    }

    /// Whether the run has succeeded.
    pub(crate) fn has_succeeded(&self, run: &str) -> Result<bool> {
        let text = self.ask(&["inspect", run, "--json"])?;
        Ok(json(&text, "fabro inspect")?["status"] == "succeeded")
    }

    /// The current state.
    pub(crate) fn snapshot(&self) -> Result<Snapshot> {
        Snapshot::new(self.events()?, self.effects()?)
    }

    /// What is wrong with the repository: with its objects, or with what is the user's in it.
    pub(crate) fn wrong_repository(&self) -> Result<Vec<String>> {
        let Some(before) = &self.of_user else { return Ok(Vec::new()) };
        worktrees::check_objects(self.dir())?;
        let now = worktrees::of_user(self.dir())?;
        let gone = before.iter().filter(|line| !now.contains(line));
        let new = now.iter().filter(|line| !before.contains(line));
        let gone = gone.map(|line| format!("the user's repository had `{line}`, and has not"));
        let new = new.map(|line| format!("the user's repository has `{line}`, and had not"));
        Ok(gone.chain(new).collect())
    }

    /// The files that stages left, by stage; empty without a repository.
    pub(crate) fn trees(&self) -> Result<BTreeMap<String, String>> {
        let run = self.run_id()?.filter(|_| self.of_user.is_some());
        let Some(run) = run else { return Ok(BTreeMap::new()) };
        worktrees::trees(self.dir(), &self.events()?, &run)
    }

    /// Forks the run from its third stage, which must have the files of that stage, and with `resumes` those of the
    /// whole run at its end: what is wrong.
    pub(crate) fn wrong_fork(
        &self,
        trees: &BTreeMap<String, String>,
        resumes: bool,
    ) -> Result<Vec<String>> {
        let Some(run) = self.run_id()?.filter(|_| self.of_user.is_some()) else {
            return Ok(Vec::new());
        };
        let (stage, name) = worktrees::third();
        let fork = self.ask(&["fork", &run, stage])?;
        let ids = self.ids(&[])?;
        let fork = ids.iter().find(|id| **id != run).with_context(|| format!("no fork: {fork}"))?;
        let mut wrong = Vec::new();
        let mut check = |expected: Option<&String>| -> Result<()> {
            let found = worktrees::tree_of_run(self.dir(), fork)?;
            if expected != Some(&found) {
                wrong.push(format!("a fork from {stage} has the files {found}, not {expected:?}"));
            }
            Ok(())
        };
        check(trees.get(&name))?;
        if resumes {
            self.ask(&["resume", fork])?;
            check(trees.get(worktrees::OF_RUN))?;
        }
        Ok(wrong)
    }

    /// The events of the run and of its sub-workflows, a line each, by run.
    fn events(&self) -> Result<BTreeMap<String, Vec<String>>> {
        let runs = self.ids(&["--all"])?.into_iter().map(|run| {
            let text = self.ask(&["events", &run, "--json"])?;
            Ok((run, text.lines().map(str::to_owned).collect()))
        });
        runs.collect()
    }

    /// The context of the run as it is now; what differs from run to run by its nature is replaced.
    pub(crate) fn context(&self) -> Result<BTreeMap<String, String>> {
        let mut text = self.ask(&["context", "latest", "--json"])?;
        for run in self.ids(&["--all"])? {
            text = text.replace(&run, "RUN");
        }
        text = text.replace(&self.dir.path().display().to_string(), "DIR");
        if self.of_user.is_some() {
            text = worktrees::without_commits(&text);
        }
        let context = json(&text, "fabro context")?;
        let keys = context.as_object().context("the context is no object")?;
        Ok(keys.iter().map(|(key, value)| (key.clone(), value.to_string())).collect())
    }

    /// How many lines each stage has left.
    pub(crate) fn effects(&self) -> Result<BTreeMap<String, usize>> {
        let mut counts = BTreeMap::new();
        for line in fs::read_to_string(self.path("effects.log"))?.lines() {
            *counts.entry(line.to_owned()).or_default() += 1;
        }
        Ok(counts)
    }

    /// Processes of the run that are still there: they say so, or work in its folder.
    pub(crate) fn leftovers(&self) -> Result<Vec<String>> {
        let runs: BTreeSet<_> = self.ids(&["--all"])?.into_iter().collect();
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let environ = fs::read(entry.path().join("environ")).unwrap_or_default();
            let environ = String::from_utf8_lossy(&environ).into_owned();
            let mut of = environ.split('\0').filter_map(|entry| entry.strip_prefix(MARKER));
            let place = fs::read_link(entry.path().join("cwd")).unwrap_or_default();
            if of.any(|run| runs.contains(run)) || place.starts_with(self.dir.path()) {
                found.push(format!("process {} was left behind", entry.file_name().display()));
            }
        }
        Ok(found)
    }

    fn ids(&self, more: &[&str]) -> Result<Vec<String>> {
        let runs = json(&self.ask(&[&["ps", "--json"], more].concat())?, "fabro ps")?;
        let runs = runs.as_array().context("`fabro ps` printed no array")?;
        Ok(runs.iter().filter_map(|run| run["id"].as_str().map(str::to_owned)).collect())
    }

    /// The output of a command that only reads.
    fn ask(&self, args: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.fabro);
        let output = self.settle(command.args(args)).output().context("start fabro")?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            bail!("`fabro {}`: {}: {}", args.join(" "), output.status, stderr.trim());
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// The settings of the user do not reach the run.
    fn settle<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        for (name, _) in env::vars_os() {
            let text = name.to_string_lossy();
            let is_setting = text.starts_with("FABRO_")
                || text.ends_with("_API_KEY")
                || text.ends_with("_BASE_URL");
            if is_setting {
                command.env_remove(name);
            }
        }
        if let Some(model) = &self.work.model {
            command.env("OPENAI_BASE_URL", model.url());
        }
        command.args([Path::new("--store"), &self.store]).current_dir(self.dir.path());
        command.env("HOME", self.dir.path()).env("EFFECTS", self.path("effects.log"));
        command.env_remove("XDG_CONFIG_HOME").stdin(Stdio::null())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

/// A process that drives a run, and the events that it reports.
pub(crate) struct Driver {
    child: Child,
    lines: Receiver<String>,
    reported: Vec<String>,
}

impl Driver {
    fn start(command: &mut Command) -> Result<Self> {
        let mut child = command.spawn().context("start fabro")?;
        let stdout = child.stdout.take().context("no stdout")?;
        let (send, lines) = channel();
        thread::spawn(move || {
            let mut reader = BufReader::new(stdout);
            let mut line = String::new();
            while reader.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
                // A line without its end was cut off by the kill.
                if !line.ends_with('\n') || send.send(std::mem::take(&mut line)).is_err() {
                    break;
                }
            }
        });
        Ok(Self { child, lines, reported: Vec::new() })
    }

    /// Waits for the end of the driver; fails when it does not come.
    pub(crate) fn end(&mut self, timeout: Duration) -> Result<ExitStatus> {
        match self.kill_unless(timeout, u64::MAX)? {
            Some(status) => Ok(status),
            None => bail!("the driver did not end within {} s", timeout.as_secs()),
        }
    }

    /// Kills the driver after some time; the status when it ended before that.
    pub(crate) fn kill_after(&mut self, time: Duration) -> Result<Option<ExitStatus>> {
        self.kill_unless(time, u64::MAX)
    }

    /// Kills the driver as soon as it has reported so many events; the status when it ended before.
    pub(crate) fn kill_after_events(
        &mut self,
        events: u64,
        timeout: Duration,
    ) -> Result<Option<ExitStatus>> {
        let deadline = Instant::now() + timeout;
        let status = self.kill_unless(timeout, events)?;
        ensure!(Instant::now() < deadline, "the driver did not end and reported nothing");
        Ok(status)
    }

    /// Waits until the driver has reported so many events, or has ended.
    pub(crate) fn wait_for_events(&mut self, events: u64, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        while (self.reported.len() as u64) < events {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else { break };
            self.reported.push(line);
        }
    }

    fn kill_unless(&mut self, time: Duration, events: u64) -> Result<Option<ExitStatus>> {
        let deadline = Instant::now() + time;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.reported.len() as u64 >= events {
                break;
            }
            match self.lines.recv_timeout(left) {
                Ok(line) => self.reported.push(line),
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => match self.child.try_wait()? {
                    Some(status) => return Ok(Some(status)),
                    None => thread::sleep(Duration::from_millis(1)),
                },
            }
        }
        // A driver that has just ended is no error here; how it ended is seen by its status.
        self.child.kill()?;
        let status = self.child.wait()?;
        Ok((status.signal() != Some(SIGKILL)).then_some(status))
    }

    /// The ids of all events that the driver reported, once it is gone.
    pub(crate) fn reported(mut self) -> Result<Vec<String>> {
        self.reported.extend(self.lines.iter());
        let ids = self.reported.iter().map(|line| {
            let event: Value = json(line, "fabro run --json")?;
            event["id"].as_str().map(str::to_owned).context("an event has no id")
        });
        ids.collect()
    }
}
