use std::pin::Pin;
use std::sync::{Arc, Mutex as SyncMutex, OnceLock, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use fabro_sandbox::{ExecError, Exit, Mark, Process, Program, Tail};
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// The largest message that is read.
const MAX_MESSAGE: usize = 8 * 1024 * 1024;

/// How deep arrays and objects of a message may nest: the parser refuses more, and passes such a line over.
const MAX_DEPTH: usize = 127;

/// How long a program that closed its stdout may take to exit before it is ended.
const EXIT: Duration = Duration::from_secs(2);

/// How long to wait for the end of stderr when the program has ended.
const STDERR_TIMEOUT: Duration = Duration::from_millis(500);

/// The process of a server.
pub(crate) struct ServerProcess {
    process: Mutex<Option<Process>>,
    /// Dropped after the process; kills what it left running in other process groups.
    _mark: Mark,
    refused: Refused,
    tail: Arc<SyncMutex<Tail>>,
    listener: Mutex<JoinHandle<()>>,
}

impl ServerProcess {
    pub(crate) fn start(program: &Program<'_>) -> Result<(Self, Messages, ChildStdin), ExecError> {
        let mark = Mark::of_server();
        let env = [program.env, &[mark.variable()]].concat();
        let (process, pipes) = Process::start(&Program { env: &env, ..*program })?;
        let refused = Refused::default();
        let line = Line::default();
        let messages = Messages { stdout: pipes.stdout, line, refused: Arc::clone(&refused) };
        let tail = Arc::<SyncMutex<Tail>>::default();
        let listener = Mutex::new(tokio::spawn(listen(pipes.stderr, Arc::clone(&tail))));
        let process = Mutex::new(Some(process));
        Ok((Self { process, _mark: mark, refused, tail, listener }, messages, pipes.stdin))
    }

    /// Why its connection broke. Ends it, if it has not ended yet.
    pub(crate) async fn problem(&self) -> String {
        if let Some(reason) = self.refused.get() {
            self.end().await;
            return format!("it sent a message {reason}");
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

/// What about a message ended the connection.
type Refused = Arc<OnceLock<String>>;

/// The stdout of a server, with an error at a line that is too long or nests too deep.
pub(crate) struct Messages {
    stdout: ChildStdout,
    line: Line,
    refused: Refused,
}

/// The current line so far.
#[derive(Default)]
struct Line {
    /// In bytes.
    length: usize,
    is_json: bool,
    depth: usize,
    is_in_string: bool,
    is_escaped: bool,
}

impl Line {
    /// Takes the next bytes; why a line of them cannot be a message.
    fn push(&mut self, bytes: &[u8]) -> Result<(), String> {
        for byte in bytes {
            if *byte == b'\n' {
                *self = Self::default();
                continue;
            }
            self.length += 1;
            if self.length > MAX_MESSAGE {
                return Err(format!("of more than {MAX_MESSAGE} bytes"));
            }
            self.is_json |= self.length == 1 && *byte == b'{';
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' => self.is_escaped = self.is_in_string,
                b'"' => self.is_in_string = !self.is_in_string,
                b'{' | b'[' if !self.is_in_string => self.depth += 1,
                b'}' | b']' if !self.is_in_string => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
            if self.is_json && self.depth > MAX_DEPTH {
                return Err(format!("whose arrays and objects nest more than {MAX_DEPTH} deep"));
            }
        }
        Ok(())
    }
}

impl AsyncRead for Messages {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stdout).poll_read(cx, buf))?;
        if let Err(reason) = self.line.push(&buf.filled()[before..]) {
            // A later one changes nothing.
            let _ = self.refused.set(reason);
            return Poll::Ready(Err(std::io::ErrorKind::InvalidData.into()));
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_cannot_be_a_message_is_refused() {
        let check = |parts: &[&str], expect: Result<(), &str>| {
            let mut line = Line::default();
            let found = parts.iter().try_for_each(|part| line.push(part.as_bytes()));
            assert_eq!(found, expect.map_err(str::to_owned));
        };
        let nested = |depth: usize| format!("{{\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
        assert!(serde_json::from_str::<serde_json::Value>(&nested(126)).is_ok());
        assert!(serde_json::from_str::<serde_json::Value>(&nested(127)).is_err());
        check(&[&nested(126), "\n", &nested(126)], Ok(()));
        check(&[&nested(127)], Err("whose arrays and objects nest more than 127 deep"));
        check(&[&format!("log: {}", "[".repeat(300))], Ok(()));
        check(&[&format!("{{\"a\":\"\\\"{}", "[".repeat(300))], Ok(()));
        let long = "x".repeat(MAX_MESSAGE / 2 + 1);
        check(&[&long, "\n", &long], Ok(()));
        check(&[&long, &long], Err("of more than 8388608 bytes"));
    }
}
