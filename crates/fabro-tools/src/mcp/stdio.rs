use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex as SyncMutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use fabro_sandbox::{ExecError, Exit, Process, Tail};
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// The largest message that is read.
const MAX_MESSAGE: usize = 8 * 1024 * 1024;

/// How long a program that closed its stdout may take to exit before it is ended.
const EXIT: Duration = Duration::from_secs(2);

/// How long to wait for the end of stderr when the program has ended.
const STDERR_TIMEOUT: Duration = Duration::from_millis(500);

/// The process of a server.
pub(crate) struct ServerProcess {
    process: Mutex<Option<Process>>,
    too_long: Arc<AtomicBool>,
    tail: Arc<SyncMutex<Tail>>,
    listener: Mutex<JoinHandle<()>>,
}

impl ServerProcess {
    pub(crate) fn start(
        program: &fabro_sandbox::Program<'_>,
    ) -> Result<(Self, Messages, ChildStdin), ExecError> {
        let (process, pipes) = Process::start(program)?;
        let too_long = Arc::<AtomicBool>::default();
        let messages = Messages { stdout: pipes.stdout, line: 0, too_long: Arc::clone(&too_long) };
        let tail = Arc::<SyncMutex<Tail>>::default();
        let listener = Mutex::new(tokio::spawn(listen(pipes.stderr, Arc::clone(&tail))));
        let process = Mutex::new(Some(process));
        Ok((Self { process, too_long, tail, listener }, messages, pipes.stdin))
    }

    /// Why its connection broke. Ends it, if it has not ended yet.
    pub(crate) async fn problem(&self) -> String {
        if self.too_long.load(Ordering::Relaxed) {
            self.end().await;
            return format!("it sent a message of more than {MAX_MESSAGE} bytes");
        }
        match self.exit().await {
            Some(Exit::Code(code)) => format!("it ended with exit code {code}"),
            Some(Exit::Signal(signal)) => format!("it ended by signal {signal}"),
            _ => "it ended".to_owned(),
        }
    }

    /// Ends it and its child processes.
    pub(crate) async fn end(&self) {
        if let Some(mut process) = self.process.lock().await.take() {
            process.end().await;
        }
    }

    /// The last lines it wrote to stderr, when it has ended.
    pub(crate) async fn last_lines(&self) -> String {
        let mut listener = self.listener.lock().await;
        if !listener.is_finished() {
            // A timeout means that a process outside the group holds the pipe: what was read so far is
            // enough.
            let _ = timeout(STDERR_TIMEOUT, &mut *listener).await;
        }
        self.tail.lock().unwrap_or_else(PoisonError::into_inner).text()
    }

    async fn exit(&self) -> Option<Exit> {
        let mut process = self.process.lock().await.take()?;
        if let Ok(exit) = timeout(EXIT, process.wait()).await {
            return exit.ok();
        }
        process.end().await;
        None
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.listener.get_mut().abort();
    }
}

async fn listen(mut stderr: ChildStderr, tail: Arc<SyncMutex<Tail>>) {
    let mut chunk = [0; Tail::BYTES];
    while let Ok(read @ 1..) = stderr.read(&mut chunk).await {
        tail.lock().unwrap_or_else(PoisonError::into_inner).push(&chunk[..read]);
    }
}

/// The stdout of a server, with an error at a line that is too long.
pub(crate) struct Messages {
    stdout: ChildStdout,
    /// The length of the current line so far.
    line: usize,
    too_long: Arc<AtomicBool>,
}

impl AsyncRead for Messages {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stdout).poll_read(cx, buf))?;
        let new = &buf.filled()[before..];
        self.line = match memchr::memrchr(b'\n', new) {
            Some(end) => new.len() - end - 1,
            None => self.line + new.len(),
        };
        if self.line > MAX_MESSAGE {
            self.too_long.store(true, Ordering::Relaxed);
            return Poll::Ready(Err(std::io::ErrorKind::FileTooLarge.into()));
        }
        Poll::Ready(Ok(()))
    }
}
