use std::collections::VecDeque;
use std::io;

use agent_client_protocol::{Client, ConnectTo, Lines as Transport};
use futures_util::{sink, stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStdin, ChildStdout};

use crate::exchange::Log;
use crate::lines::Lines;

/// JSON lines to and from a program; what it says is recorded.
pub(super) fn lines(
    stdin: ChildStdin,
    stdout: ChildStdout,
    log: Log,
) -> impl ConnectTo<Client> + 'static {
    let outgoing = sink::unfold(stdin, async |mut stdin: ChildStdin, mut line: String| {
        line.push('\n');
        stdin.write_all(line.as_bytes()).await?;
        stdin.flush().await?;
        io::Result::Ok(stdin)
    });
    let incoming = Incoming { stdout, log, lines: Lines::default(), ready: VecDeque::new() };
    let incoming = stream::unfold(incoming, async |mut incoming| {
        incoming.next().await.map(|line| (line, incoming))
    });
    Transport::new(outgoing, incoming)
}

struct Incoming {
    stdout: ChildStdout,
    log: Log,
    lines: Lines,
    ready: VecDeque<String>,
}

impl Incoming {
    /// The next line that may be a message: programs also print warnings.
    async fn next(&mut self) -> Option<io::Result<String>> {
        let mut chunk = [0; 8192];
        loop {
            if let Some(line) = self.ready.pop_front() {
                return Some(Ok(line));
            }
            let Self { stdout, log, lines, ready } = self;
            let Ok(read @ 1..) = stdout.read(&mut chunk).await else {
                // Nothing more comes; a last line without an end is no message.
                return log.finish(|_| {}).err().map(|error| Err(io::Error::other(error)));
            };
            lines.push(&chunk[..read], |line| {
                let line = line.trim_ascii();
                if let (true, Ok(line)) = (line.starts_with(b"{"), str::from_utf8(line)) {
                    ready.push_back(line.to_owned());
                }
            });
            if let Err(error) = log.copy(&chunk[..read]) {
                return Some(Err(io::Error::other(error)));
            }
        }
    }
}
