use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fabro_redact::Stream;
use fabro_sandbox::{ExecError, Exit, Pipes, Process, Program, Tail};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::ChildStdin;
use tokio::time::timeout;

use crate::{BackendError, Task};

/// How long output is still read when the program has ended but a process outside its group holds
/// the pipe.
const LAST_OUTPUT: Duration = Duration::from_millis(100);

/// The most that is read at once.
const CHUNK: usize = 32 * 1024;

/// How a program ended, and the last lines it wrote to stderr.
pub(crate) struct Ended {
    pub(crate) exit: Exit,
    pub(crate) stderr: String,
    /// A line for each file that was renamed after the end.
    pub(crate) renamed: String,
}

/// Starts a program for a task; `install` says how to get it.
pub(crate) fn start(
    program: &str,
    args: &[String],
    env: &[(String, String)],
    task: &Task<'_>,
    install: &str,
) -> Result<(Process, Pipes), BackendError> {
    let started =
        Process::start(&Program { program, args, cwd: task.work_dir, env, sandbox: task.sandbox });
    started.map_err(|error| match error {
        ExecError::Missing(program) => {
            BackendError::Missing { program, install: install.to_owned() }
        }
        error => error.into(),
    })
}

/// Writes the prompt to a program and reads its output until it has ended, or ends it. `on_stdout`
/// receives each chunk of stdout, before and after redaction.
pub(crate) async fn exchange(
    (mut process, pipes): (Process, Pipes),
    task: &Task<'_>,
    prompt: &str,
    mut on_stdout: impl FnMut(&[u8], &[u8]) + Send,
) -> Result<Ended, BackendError> {
    let mut stdout = Log::new(task, "stdout.log");
    let mut stderr = Log::new(task, "stderr.log");
    let mut tail = Tail::default();
    let exit = {
        let mut transfer = std::pin::pin!(async {
            tokio::try_join!(
                write_prompt(pipes.stdin, prompt),
                stdout.record(pipes.stdout, &mut on_stdout),
                stderr.record(pipes.stderr, |_, bytes| tail.push(bytes)),
            )
        });
        let mut ending = std::pin::pin!(ended(&mut process, task));
        tokio::select! {
            copied = &mut transfer => {
                copied?;
                ending.await?
            }
            exit = &mut ending => {
                let exit = exit?;
                // A program may exit without reading its prompt, or leave the pipe to another process.
                if let Ok(copied) = timeout(LAST_OUTPUT, transfer).await {
                    copied?;
                }
                exit
            }
        }
    };
    stdout.finish(|rest| on_stdout(&[], rest))?;
    stderr.finish(|bytes| tail.push(bytes))?;
    let renamed = process.check()?;
    Ok(Ended { exit, stderr: tail.text(), renamed })
}

async fn ended(process: &mut Process, task: &Task<'_>) -> Result<Exit, BackendError> {
    tokio::select! {
        biased;
        exit = process.wait() => return Ok(exit?),
        () = task.cancel.cancelled() => {}
    }
    process.end().await;
    Err(BackendError::Canceled)
}

async fn write_prompt(mut stdin: ChildStdin, prompt: &str) -> Result<(), BackendError> {
    // A program that does not read all of it reports why in its own way.
    let _ = stdin.write_all(prompt.as_bytes()).await;
    Ok(())
}

/// A file for output, redacted; created with its first byte.
pub(crate) struct Log {
    path: PathBuf,
    file: Option<File>,
    stream: Stream,
}

impl Log {
    pub(crate) fn new(task: &Task<'_>, name: &str) -> Self {
        Self { path: task.logs.join(name), file: None, stream: task.redactor.stream() }
    }

    /// Copies until the end of the pipe; `watch` receives each chunk, before and after redaction.
    pub(crate) async fn record(
        &mut self,
        mut pipe: impl AsyncRead + Unpin,
        mut watch: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), BackendError> {
        let mut chunk = vec![0; CHUNK];
        // An error of the pipe means that nothing more comes.
        while let Ok(read @ 1..) = pipe.read(&mut chunk).await {
            let clean = self.stream.push(&chunk[..read]);
            watch(&chunk[..read], &clean);
            self.write(&clean)?;
        }
        Ok(())
    }

    /// Writes what the redactor held back.
    pub(crate) fn finish(&mut self, mut watch: impl FnMut(&[u8])) -> Result<(), BackendError> {
        let rest = self.stream.finish();
        watch(&rest);
        self.write(&rest)
    }

    /// Writes the next bytes.
    #[cfg(feature = "acp")]
    pub(crate) fn copy(&mut self, bytes: &[u8]) -> Result<(), BackendError> {
        let clean = self.stream.push(bytes);
        self.write(&clean)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), BackendError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let file = match &mut self.file {
            Some(file) => Ok(file),
            none => create(&self.path).map(|file| none.insert(file)),
        };
        let written = file.and_then(|file| file.write_all(bytes));
        written.map_err(|source| BackendError::Log { path: self.path.clone(), source })
    }
}

fn create(path: &Path) -> std::io::Result<File> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    File::create(path)
}
