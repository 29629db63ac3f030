//! One program on the other side, which reads and writes as much as it likes.

use std::io::{self, PipeReader, Read, Write};
use std::process::{Command, ExitStatus, Stdio};

use tokio::process::{Child, Command as AsyncCommand};
use tokio::task::{JoinError, JoinHandle, spawn_blocking};

use super::program::encoded;
use crate::Tail;
use crate::group::GroupLeader;

/// What a program is fed with after its own text.
pub(super) type Feed = Box<dyn FnOnce(&mut dyn Write) -> io::Result<()> + Send>;

/// How a program ended.
pub(super) struct CallResult<T> {
    pub(super) status: ExitStatus,
    /// What became of its output.
    pub(super) output: T,
    /// The last lines of its other output.
    pub(super) message: String,
}

/// Runs a program by this client. `feed` and `read` work on threads of their own. Dropping the future kills the client.
pub(super) async fn call<T: Send + 'static>(
    client: Command,
    program: &[u8],
    feed: Option<Feed>,
    read: impl FnOnce(PipeReader) -> T + Send + 'static,
) -> io::Result<CallResult<T>> {
    let (input, mut to_input) = io::pipe()?;
    let (from_output, output) = io::pipe()?;
    let (mut from_errors, errors) = io::pipe()?;
    let text = encoded(program);
    let (mut child, _leader) = {
        let mut client = AsyncCommand::from(client);
        client.stdin(Stdio::from(input)).stdout(Stdio::from(output)).stderr(Stdio::from(errors));
        // Ctrl-C is for fabro, which then decides what ends.
        client.process_group(0).kill_on_drop(true);
        GroupLeader::spawn(|| client.spawn(), Child::id)?
    };
    let written: JoinHandle<io::Result<()>> = spawn_blocking(move || {
        to_input.write_all(&text)?;
        feed.map_or(Ok(()), |feed| feed(&mut to_input))
    });
    let read = spawn_blocking(move || read(from_output));
    let errors = spawn_blocking(move || {
        let mut tail = Tail::default();
        let mut chunk = [0; 4096];
        while let Ok(count @ 1..) = from_errors.read(&mut chunk) {
            tail.push(&chunk[..count]);
        }
        tail.text()
    });
    let status = child.wait().await?;
    let output = joined(read.await);
    let message = joined(errors.await);
    match joined(written.await) {
        // It may end before it has read everything: its status says why.
        Err(error) if status.success() && error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(CallResult { status, output, message }),
    }
}

fn joined<T>(result: Result<T, JoinError>) -> T {
    result.unwrap_or_else(|panicked| std::panic::resume_unwind(panicked.into_panic()))
}

/// The output of a program up to so many bytes; the rest is read and dropped.
pub(super) fn up_to(limit: u64) -> impl FnOnce(PipeReader) -> Vec<u8> + Send {
    move |mut output| {
        let mut bytes = Vec::new();
        // What cannot be read is missing, which the status of the program explains.
        let _ = (&mut output).take(limit).read_to_end(&mut bytes);
        let _ = io::copy(&mut output, &mut io::sink());
        bytes
    }
}

/// Starts a program that nothing waits for, from where there is no runtime.
pub(super) fn send(mut client: Command, program: &[u8]) {
    use std::os::unix::process::CommandExt as _;

    client.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let id = |child: &std::process::Child| Some(child.id());
    let Ok((mut child, leader)) = GroupLeader::spawn(|| client.spawn(), id) else { return };
    let text = encoded(program);
    std::thread::spawn(move || {
        if let Some(mut input) = child.stdin.take() {
            // When the other side cannot be reached, what runs there is ended by a resume.
            let _ = input.write_all(&text);
        }
        let _ = child.wait();
        drop(leader);
    });
}

/// Runs a short program and waits for it on this thread.
pub(super) fn at_once(client: &mut Command, program: &[u8]) -> io::Result<std::process::Output> {
    client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = client.spawn()?;
    if let Some(mut input) = child.stdin.take() {
        // The status says why it has not read all of it.
        let _ = input.write_all(&encoded(program));
    }
    child.wait_with_output()
}
