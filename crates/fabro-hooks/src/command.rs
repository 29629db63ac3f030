//! A hook that is a shell script.

use std::path::Path;
use std::time::Duration;

use fabro_sandbox::{ExecError, Exit, Pipes, Process, Program};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::OUTPUT_LIMIT;
use crate::answer::Reply;

/// How long a process that left the group may hold the output open after the script's end.
const LINGER: Duration = Duration::from_millis(200);

/// A script and its surroundings.
pub(crate) struct Call<'a> {
    pub(crate) script: &'a str,
    pub(crate) cwd: &'a Path,
    pub(crate) env: &'a [(String, String)],
    pub(crate) limit: Duration,
}

/// Runs the script with `input` on its standard input, and ends its process group.
///
/// # Errors
///
/// It could not be started, was killed, took too long, or printed too much.
pub(crate) async fn run(
    call: &Call<'_>,
    input: &str,
    cancel: &CancellationToken,
) -> Result<Reply, String> {
    let started = start(call, "bash").or_else(|error| match error {
        ExecError::Missing(_) => start(call, "sh"),
        error => Err(error),
    });
    let (mut process, pipes) = started.map_err(|error| error.to_string())?;
    let end = tokio::select! {
        biased;
        () = cancel.cancelled() => Ok(Reply::Canceled),
        ended = timeout(call.limit, ended(&mut process, pipes, input)) => match ended {
            Ok(reply) => reply,
            Err(_) => Err(format!("it took longer than {} s, its `timeout`", call.limit.as_secs_f64())),
        },
    };
    if !matches!(end, Ok(Reply::Exit { .. })) {
        process.end().await;
    }
    end
}

fn start(call: &Call<'_>, shell: &str) -> Result<(Process, Pipes), ExecError> {
    let args = ["-c".to_owned(), call.script.to_owned()];
    Process::start(&Program {
        program: shell,
        args: &args,
        cwd: call.cwd,
        env: call.env,
        sandbox: None,
    })
}

async fn ended(process: &mut Process, pipes: Pipes, input: &str) -> Result<Reply, String> {
    let Pipes { mut stdin, stdout, stderr } = pipes;
    let mut printed = Vec::new();
    let mut complained = Vec::new();
    let exit = {
        let tell = async move {
            // A script need not read what happened.
            let _ = stdin.write_all(input.as_bytes()).await;
            drop(stdin);
            Ok(())
        };
        let read = async {
            tokio::try_join!(tell, all(stdout, &mut printed), all(stderr, &mut complained))
        };
        let mut read = std::pin::pin!(read);
        let mut is_read = false;
        let mut wait = std::pin::pin!(process.wait());
        let exit = loop {
            tokio::select! {
                exit = &mut wait => break exit,
                read = &mut read, if !is_read => {
                    read?;
                    is_read = true;
                }
            }
        };
        if !is_read && let Ok(read) = timeout(LINGER, read).await {
            read?;
        }
        exit
    };
    match exit.map_err(|error| error.to_string())? {
        Exit::Code(code) => {
            Ok(Reply::Exit { code, stdout: text(printed), stderr: text(complained) })
        }
        Exit::Signal(signal) => Err(format!("it was killed by signal {signal}")),
        Exit::Canceled => Ok(Reply::Canceled),
    }
}

/// Reads all of a stream.
async fn all(mut stream: impl AsyncRead + Unpin, into: &mut Vec<u8>) -> Result<(), String> {
    let mut part = vec![0; 8_192];
    loop {
        match stream.read(&mut part).await {
            // A stream that breaks has ended.
            Ok(0) | Err(_) => return Ok(()),
            Ok(count) => into.extend_from_slice(&part[..count]),
        }
        if into.len() > OUTPUT_LIMIT {
            return Err("it printed more than 1 MiB".to_owned());
        }
    }
}

fn text(bytes: Vec<u8>) -> String {
    match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    }
}
