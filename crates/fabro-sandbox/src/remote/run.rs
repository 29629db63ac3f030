//! A script on the other side, from its start to its end.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt as _;
use tokio::net::unix::pipe::Receiver;
use tokio::process::{Child, Command};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::call::{CallResult, Feed, call, send, up_to};
use super::program::{self, Script, encoded, quote};
use super::sync::list::LIST_BYTES;
use super::sync::pack::pack_files;
use super::{Engine, Remote, Root, ssh_dir};
use crate::captured_outputs::CapturedOutputs;
use crate::ends::Ends;
use crate::group::{GRACE, Group};
use crate::guard::ControlGuard;
use crate::log::{Log, OutputChannel, OutputSink};
use crate::script::LAST_OUTPUT;
use crate::{Environment, ExecError, Exit, Finished, Keep, Request, SandboxError};

/// How long the end of a script that was killed may take to arrive.
const KILL_WAIT: Duration = Duration::from_secs(10);

/// A container that was used within this time is taken to be still there.
const RECENT: Duration = Duration::from_secs(1);

/// How much a program of ours may print.
const SMALL: u64 = 64 << 10;

/// The exit code of a program of ours that could not do what it was for.
pub(super) const FAILED: i32 = 125;

/// Variables of scripts that name directories of this machine.
const LOCAL_ONLY: [&str; 2] = ["FABRO_RUN_DIR", "FABRO_STAGE_DIR"];

/// How a client ended.
enum Ended {
    Status(std::process::ExitStatus),
    Canceled,
}

impl Remote {
    /// Starts the container, or the connection, and copies the working directory. What an earlier driver has left
    /// running there is killed.
    pub(crate) async fn start(self: &Arc<Self>) -> Result<(), SandboxError> {
        let remote = Arc::clone(self);
        let started = blocking(move || match &remote.engine {
            Engine::Docker(docker) => remote.start_container(docker),
            Engine::Ssh(ssh) => ssh.connect(),
        });
        started.await?;
        let remote = self.make_root().await?;
        self.set_up(remote);
        let unusable = |error: ExecError| SandboxError::Unusable {
            message: error.to_string(),
            fix: "check that it can be reached, and what its disk has free".to_owned(),
        };
        self.call_registered(program::KILL_ALL, None).await.map_err(unusable)?;
        self.is_there();
        if self.copies()
            && let Some(root) = self.root(&self.work_dir)
        {
            self.push(&root).await.map_err(unusable)?;
        }
        Ok(())
    }

    /// Makes the directory of the run there, and returns its path.
    async fn make_root(self: &Arc<Self>) -> Result<String, SandboxError> {
        let local = self.work_dir.to_string_lossy().into_owned();
        let dir = match &self.engine {
            Engine::Docker(docker) if !docker.settings().copy => return Ok(local),
            Engine::Docker(_) => {
                let (remote, dir) = (Arc::clone(self), local.clone());
                let made = blocking(move || match &remote.engine {
                    Engine::Docker(docker) => docker.make_directory(&dir),
                    Engine::Ssh(_) => Ok(()),
                });
                made.await?;
                local
            }
            Engine::Ssh(ssh) => ssh_dir(ssh, &self.run),
        };
        let unusable = |message: String| SandboxError::Unusable {
            message: format!("{dir} cannot be made in {}: {message}", self.describe()),
            fix: "choose a directory that the user there may write".to_owned(),
        };
        // Of another machine the directory of the run, in which the copy is.
        let [work, last] = match &self.engine {
            Engine::Docker(_) => [".", ""],
            Engine::Ssh(_) => ["work", "/work"],
        };
        let text = format!(
            "umask 077; mkdir -p {0} && cd {0} && mkdir -p {work} && [ -w {work} ] && pwd -P",
            quote(&dir)
        );
        let called = call(self.shell(), text.as_bytes(), None, up_to(SMALL)).await;
        let called = called.map_err(|error| unusable(error.to_string()))?;
        let path = String::from_utf8_lossy(&called.output).trim_end_matches('\n').to_owned();
        if called.status.success() && path.starts_with('/') {
            Ok(path + last)
        } else {
            Err(unusable(called.message))
        }
    }

    /// Runs a program that others know of, and returns what it printed.
    async fn call_registered(&self, body: &str, feed: Option<Feed>) -> Result<Vec<u8>, ExecError> {
        let [head, tail] = self.around(&self.new_id())?;
        let text = [&head, body, &tail].concat();
        let called = call(self.shell(), text.as_bytes(), feed, up_to(LIST_BYTES)).await;
        self.done(called)
    }

    /// What stands before a program and behind it.
    pub(super) fn around(&self, id: &str) -> Result<[String; 2], ExecError> {
        let Some(place) = self.place.get() else { return Err(self.lost("it was not started")) };
        let [mut head, tail] = place.around(id);
        let done = std::mem::take(&mut *self.succeeded());
        head.push_str(&program::forget(&done));
        Ok([head, tail])
    }

    fn succeeded(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.succeeded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn done<T>(&self, called: io::Result<CallResult<T>>) -> Result<T, ExecError> {
        let called = called.map_err(|error| self.lost(&error.to_string()))?;
        if called.status.success() {
            return Ok(called.output);
        }
        let last = called.message.lines().next_back().map(str::to_owned);
        let message = last.unwrap_or_else(|| called.status.to_string());
        if called.status.code() == Some(FAILED) {
            return Err(self.failed(&message));
        }
        Err(self.lost(&message))
    }

    /// The other side is there, and cannot do it.
    pub(super) fn failed(&self, message: &str) -> ExecError {
        ExecError::Lost { place: self.describe(), message: message.to_owned() }
    }

    /// The other side does not do what it is asked: it has to be started again.
    fn lost(&self, message: &str) -> ExecError {
        self.is_down.store(true, Ordering::Relaxed);
        self.failed(message)
    }

    /// Starts the other side again after it was lost, and ends what still runs there. Scripts that can still be reached
    /// continue, unless no program can be started beside them.
    async fn recover(self: &Arc<Self>) -> Result<(), ExecError> {
        let _one = self.recovery.lock().await;
        if self.is_down.load(Ordering::Relaxed) {
            let remote = Arc::clone(self);
            let restarted = blocking(move || match &remote.engine {
                Engine::Docker(docker) if docker.runs() && docker.starts_programs() => Ok(false),
                Engine::Docker(docker) => remote.start_container(docker).map(|()| true),
                Engine::Ssh(ssh) if ssh.is_connected() => Ok(false),
                Engine::Ssh(ssh) => ssh.connect().map(|()| false),
            });
            let restarted = restarted.await.map_err(|error| self.lost(&error.to_string()))?;
            self.make_root().await.map_err(|error| self.lost(&error.to_string()))?;
            if restarted {
                self.forget_copies().await;
            }
            self.is_down.store(false, Ordering::Relaxed);
        }
        let lost: Vec<String> = self.lost_scripts().iter().cloned().collect();
        for id in lost {
            let killed = self.call_registered(&program::kill(&id), None).await;
            if killed.is_err() && matches!(self.engine, Engine::Docker(_)) {
                // What it has left may have all processes that the container may have.
                let remote = Arc::clone(self);
                let restarted = blocking(move || match &remote.engine {
                    Engine::Docker(docker) => remote.start_container(docker),
                    Engine::Ssh(_) => Ok(()),
                });
                restarted.await.map_err(|error| self.lost(&error.to_string()))?;
                self.forget_copies().await;
                self.is_down.store(false, Ordering::Relaxed);
            } else {
                killed?;
            }
            self.lost_scripts().remove(&id);
        }
        Ok(())
    }

    /// After the container was started again: no script is left that could have changed a copy, and it may be a new one.
    async fn forget_copies(&self) {
        let roots = self.roots.read().unwrap_or_else(PoisonError::into_inner).clone();
        for root in roots {
            *root.state.lock().await = None;
        }
    }

    fn lost_scripts(&self) -> std::sync::MutexGuard<'_, std::collections::BTreeSet<String>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a script there.
    pub(crate) async fn run(self: &Arc<Self>, request: Request<'_>) -> Result<Finished, ExecError> {
        let started = Instant::now();
        let name = Path::new("sh");
        let (exit, outputs) = match &request.keep {
            Keep::Logs { stdout, stderr } => {
                let mut out =
                    OutputChannel::new(Log::create(stdout, &request)?, request.redactor, name);
                let mut err =
                    OutputChannel::new(Log::create(stderr, &request)?, request.redactor, name);
                let exit = match self.prepare(&request, false).await? {
                    None => Exit::Canceled,
                    Some(mut prepared) => {
                        let mut client = self.client(&request)?;
                        let pipes = (client.child.stdout.take(), client.child.stderr.take());
                        let fed = feed(client.child.stdin.take(), &prepared.input);
                        let drains = async {
                            let (out, err) = (drain(&mut out, pipes.0), drain(&mut err, pipes.1));
                            tokio::try_join!(out, err, fed).map(drop)
                        };
                        let exit = self.finish(&request, &prepared, client, drains).await?;
                        ControlGuard::finish_to(prepared.guard.take(), &mut err)?;
                        exit
                    }
                };
                (exit, CapturedOutputs::of_logs(out.finish()?, err.finish()?))
            }
            Keep::Log(path) => {
                let (exit, log) = self.run_merged(&request, Log::create(path, &request)?).await?;
                (exit, CapturedOutputs::of_log(log))
            }
            &Keep::Ends { head, tail } => {
                let (exit, ends) = self.run_merged(&request, Ends::new(head, tail)).await?;
                (exit, CapturedOutputs::of_ends(ends))
            }
        };
        let CapturedOutputs { stdout, stderr, unredacted } = outputs;
        Ok(Finished { exit, stdout, stderr, unredacted, duration: started.elapsed() })
    }

    /// Runs a script with both streams in one sink.
    async fn run_merged<S: OutputSink>(
        self: &Arc<Self>,
        request: &Request<'_>,
        sink: S,
    ) -> Result<(Exit, S), ExecError> {
        let mut all = OutputChannel::new(sink, request.redactor, Path::new("sh"));
        let exit = match self.prepare(request, true).await? {
            None => Exit::Canceled,
            Some(mut prepared) => {
                let mut client = self.client(request)?;
                let output = client.output.take();
                let fed = feed(client.child.stdin.take(), &prepared.input);
                let drains = async { tokio::try_join!(drain(&mut all, output), fed).map(drop) };
                let exit = self.finish(request, &prepared, client, drains).await?;
                ControlGuard::finish_to(prepared.guard.take(), &mut all)?;
                exit
            }
        };
        Ok((exit, all.finish()?))
    }

    /// Brings everything there that the script needs; `None` when it was canceled.
    async fn prepare(
        self: &Arc<Self>,
        request: &Request<'_>,
        is_merged: bool,
    ) -> Result<Option<Prepared>, ExecError> {
        if let Some(offset) = request.script.find('\0') {
            return Err(ExecError::Nul(offset));
        }
        tokio::select! {
            biased;
            () = request.cancel.cancelled() => Ok(None),
            prepared = self.bring_again(request, is_merged) => prepared.map(Some),
        }
    }

    /// The other side may have been lost since the last script, which only shows now. Nothing has run yet.
    async fn bring_again(
        self: &Arc<Self>,
        request: &Request<'_>,
        is_merged: bool,
    ) -> Result<Prepared, ExecError> {
        let was_down = self.is_down.load(Ordering::Relaxed);
        match self.bring(request, is_merged).await {
            Err(ExecError::Lost { .. }) if !was_down && self.is_down.load(Ordering::Relaxed) => {
                self.bring(request, is_merged).await
            }
            brought => brought,
        }
    }

    async fn bring(
        self: &Arc<Self>,
        request: &Request<'_>,
        is_merged: bool,
    ) -> Result<Prepared, ExecError> {
        self.recover().await?;
        self.check_container().await?;
        let no_directory = || ExecError::WorkingDirectory(request.cwd.to_owned());
        let root = self.root(request.cwd).ok_or_else(no_directory)?;
        let cwd = request.cwd.canonicalize().map_err(|_| no_directory())?;
        let cwd = root.remote_path(&cwd).ok_or_else(no_directory)?;
        let (Environment::Inherit(given) | Environment::Only(given)) = request.env;
        let mut files = BTreeMap::new();
        let of_author = self.shown_in(&root, request.source, request.script_reads, &|_| false).1;
        // Named only by a value in the script, so it is not copied.
        let is_left_out = |path: &Path| {
            request.script_reads.iter().any(|dir| path.starts_with(dir))
                && !of_author.values().any(|named| named == path)
        };
        let mut shown = |text: &str, dirs: &[PathBuf]| {
            let (text, named) = self.shown_in(&root, text, dirs, &is_left_out);
            files.extend(named);
            text
        };
        let text = shown(request.script, &[request.reads, request.script_reads].concat());
        let stdin = request.stdin.map(|path| shown(&path.to_string_lossy(), request.reads));
        let mut env = Vec::new();
        for (name, value) in given {
            if !is_variable(name) {
                return Err(ExecError::Variable(name.clone()));
            }
            let is_elsewhere =
                name == "FABRO_WORKFLOW_DIR" && !Path::new(value).starts_with(&root.local);
            if !LOCAL_ONLY.contains(&&**name) && !is_elsewhere {
                env.push((name.clone(), shown(value, request.reads)));
            }
        }
        let mark = if self.copies() { Some(self.push(&root).await?) } else { None };
        self.bring_files(&root, files).await?;
        let id = self.new_id();
        let script = Script {
            text: &text,
            language: request.language,
            cwd: &cwd,
            env: &env,
            stdin: stdin.as_deref(),
            is_merged,
        };
        let [head, tail] = self.around(&id)?;
        let mut input = encoded([&head, &*script.program(), &tail].concat().as_bytes());
        input.extend_from_slice(script.input().as_bytes());
        let scope = self.scope(&root.local);
        let guard = scope.map(|scope| ControlGuard::begin(scope, &self.state_dir)).transpose()?;
        Ok(Prepared { root, id, input, mark, guard })
    }

    /// A container may have stopped since the last script. Where nothing is copied into it first, the script would be the
    /// first to find out, and fail.
    async fn check_container(self: &Arc<Self>) -> Result<(), ExecError> {
        let seen = *self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let is_recent = seen.is_some_and(|seen| seen.elapsed() < RECENT);
        if is_recent || self.copies() {
            return Ok(());
        }
        let remote = Arc::clone(self);
        let runs = blocking(move || match &remote.engine {
            Engine::Docker(docker) => docker.runs(),
            Engine::Ssh(_) => true,
        });
        if runs.await { Ok(()) } else { Err(self.lost("it has stopped")) }
    }

    fn is_there(&self) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Copies values and artifacts into `.fabro` of the other side, anew for each script.
    async fn bring_files(
        &self,
        root: &Root,
        files: BTreeMap<String, PathBuf>,
    ) -> Result<(), ExecError> {
        if files.is_empty() {
            return Ok(());
        }
        let body = format!(
            "mkdir -p {0}/.fabro && cd {0}/.fabro && tar -xof - || end {FAILED}",
            quote(&root.remote)
        );
        let feed: Feed = Box::new(move |out| pack_files(&files, out));
        self.call_registered(&body, Some(feed)).await.map(drop)
    }

    /// The program of this machine that runs a shell there.
    fn client(self: &Arc<Self>, request: &Request<'_>) -> Result<Client, ExecError> {
        let failed = |source| ExecError::Start { program: self.describe(), source };
        let mut command = Command::from(self.shell());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut output = None;
        if !matches!(request.keep, Keep::Logs { .. }) {
            let (reader, writer) = io::pipe().map_err(failed)?;
            let second = writer.try_clone().map_err(failed)?;
            output = Some(Receiver::from_owned_fd(reader.into()).map_err(failed)?);
            command.stdout(writer).stderr(second);
        }
        let (Environment::Inherit(env) | Environment::Only(env)) = request.env;
        let (child, group) = Group::start(&mut command, &recorded(env), true).map_err(failed)?;
        Ok(Client { child, group, output })
    }

    /// Waits for the end of the script, and brings back what it has changed.
    async fn finish(
        self: &Arc<Self>,
        request: &Request<'_>,
        prepared: &Prepared,
        client: Client,
        drains: impl Future<Output = Result<(), ExecError>>,
    ) -> Result<Exit, ExecError> {
        let mut running = Running { remote: self, id: &prepared.id, is_over: false };
        let ended = self.watch(client, prepared, &request.cancel, drains).await?;
        let exit = match ended {
            Ended::Canceled => Ok(Exit::Canceled),
            Ended::Status(status) if status.success() => {
                self.succeeded().push(prepared.id.clone());
                Ok(Exit::Code(0))
            }
            Ended::Status(status) => self.exit(request, prepared, status.code()).await,
        };
        running.is_over = true;
        if matches!(exit, Err(ExecError::Lost { .. })) {
            self.lost_scripts().insert(prepared.id.clone());
            return exit;
        }
        self.is_there();
        if let Some(mark) = &prepared.mark {
            self.pull(&prepared.root, mark).await?;
        }
        exit
    }

    /// How a script ended whose client did not succeed: what the other side knows of it.
    async fn exit(
        &self,
        request: &Request<'_>,
        prepared: &Prepared,
        code: Option<i32>,
    ) -> Result<Exit, ExecError> {
        // The code of a client whose program has sent none.
        let without = if matches!(self.engine, Engine::Ssh(_)) { 255 } else { 137 };
        let known = self.call_registered(&program::status(&prepared.id), None).await?;
        match String::from_utf8_lossy(&known).trim() {
            "cwd" => Err(ExecError::WorkingDirectory(request.cwd.to_owned())),
            "missing" => Err(ExecError::Missing("python3".to_owned())),
            "running" => Err(self.lost("the connection to a script ended before the script")),
            "left" => {
                Err(self
                    .lost("what a script has started cannot be ended: no process is left for it"))
            }
            // It has killed the shell that ran it.
            "killed" => {
                self.call_registered(&program::kill(&prepared.id), None).await?;
                Ok(Exit::Code(code.filter(|code| *code != without).unwrap_or(137)))
            }
            // It has removed the record itself; else it was not started, or the record was lost with its container.
            "" => match code.filter(|code| *code != without) {
                Some(code) => Ok(Exit::Code(code)),
                None => Err(self.lost("how a script ended is not known")),
            },
            code => {
                let broken = || self.lost("the exit code of a script is damaged");
                Ok(Exit::Code(code.parse().map_err(|_| broken())?))
            }
        }
    }

    /// Waits for the client, copying its output all the while.
    async fn watch(
        &self,
        mut client: Client,
        prepared: &Prepared,
        cancel: &CancellationToken,
        drains: impl Future<Output = Result<(), ExecError>>,
    ) -> Result<Ended, ExecError> {
        let result = {
            let mut is_drained = false;
            let mut drains = std::pin::pin!(drains);
            let mut ended = std::pin::pin!(self.wait(&mut client.child, prepared, cancel));
            let result = tokio::select! {
                result = &mut drains => match result {
                    Ok(()) => {
                        is_drained = true;
                        ended.await
                    }
                    Err(error) => Err(error),
                },
                ended = &mut ended => ended,
            };
            match result {
                Ok(ended) if !is_drained => match timeout(LAST_OUTPUT, drains).await {
                    Ok(Err(error)) => Err(error),
                    Ok(Ok(())) | Err(_) => Ok(ended),
                },
                result => result,
            }
        };
        match &result {
            Ok(_) => client.group.end_rest().await,
            Err(_) => client.group.end(&mut client.child).await,
        }
        result
    }

    async fn wait(
        &self,
        child: &mut Child,
        prepared: &Prepared,
        cancel: &CancellationToken,
    ) -> Result<Ended, ExecError> {
        let failed = |source| ExecError::watch(Path::new("sh"), source);
        tokio::select! {
            biased;
            status = child.wait() => return status.map(Ended::Status).map_err(failed),
            () = cancel.cancelled() => {}
        }
        let asked = async {
            // What cannot be asked is killed.
            let _ = self.call_registered(&program::ask_to_end(&prepared.id), None).await;
            child.wait().await
        };
        if timeout(GRACE, asked).await.is_err() {
            let killed = async {
                let killed = self.call_registered(&program::kill(&prepared.id), None).await;
                if killed.is_err() {
                    self.lost_scripts().insert(prepared.id.clone());
                }
                child.wait().await
            };
            if timeout(KILL_WAIT, killed).await.is_err() {
                let _ = child.start_kill();
                child.wait().await.map_err(failed)?;
            }
        }
        Ok(Ended::Canceled)
    }
}

/// A script that is ready to be started.
struct Prepared {
    root: Arc<Root>,
    id: String,
    /// What the shell there reads.
    input: Vec<u8>,
    /// The mark of the copy that it runs in.
    mark: Option<String>,
    /// Renames new control files at the end; only if the working directory is mounted.
    guard: Option<ControlGuard>,
}

/// The program of this machine that runs it.
struct Client {
    child: Child,
    group: Group,
    /// Both streams, where they are one.
    output: Option<Receiver>,
}

/// A script that is killed there when it is dropped before its end.
struct Running<'a> {
    remote: &'a Arc<Remote>,
    id: &'a str,
    is_over: bool,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.remote.place.get().filter(|_| !self.is_over) {
            let text = place.program(&self.remote.new_id(), &program::kill(self.id));
            send(self.remote.shell(), text.as_bytes());
        }
    }
}

pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let done = spawn_blocking(work).await;
    done.unwrap_or_else(|panicked| std::panic::resume_unwind(panicked.into_panic()))
}

async fn drain<S: crate::log::OutputSink>(
    channel: &mut OutputChannel<'_, S>,
    pipe: Option<impl tokio::io::AsyncRead + Unpin>,
) -> Result<(), ExecError> {
    match pipe {
        Some(pipe) => channel.drain(pipe).await,
        None => Ok(()),
    }
}

async fn feed(pipe: Option<tokio::process::ChildStdin>, input: &[u8]) -> Result<(), ExecError> {
    if let Some(mut pipe) = pipe {
        // A client that ends early has a status that says why.
        let _ = pipe.write_all(input).await;
        let _ = pipe.shutdown().await;
    }
    Ok(())
}

/// The variables by which the client is known as one of the run.
fn recorded(env: &[(String, String)]) -> Vec<(String, String)> {
    env.iter().filter(|(name, _)| name == "FABRO_RUN_ID").cloned().collect()
}

/// Whether a shell can have a variable of this name.
fn is_variable(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
