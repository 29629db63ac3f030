use std::collections::VecDeque;
use std::io;

use agent_client_protocol::v1::schema::{PermissionOption, SessionNotification, StopReason};
use agent_client_protocol::{Client, ConnectTo, Error, ErrorCode, Lines as Transport};
use futures_util::{sink, stream};
use serde::Deserialize;
use serde_json::{Value, json};
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
                    ready.extend(known(line));
                }
            });
            if let Err(error) = log.copy(&chunk[..read]) {
                return Some(Err(io::Error::other(error)));
            }
        }
    }
}

/// A message without what this version of the protocol does not know: agents may be newer. An update
/// of an unknown kind is left out, and so is an option of a permission; a turn that stops for an unknown reason
/// becomes an error, since its answer may not be whole.
fn known(line: &str) -> Option<String> {
    let parts = ["\"session/update\"", "\"session/request_permission\"", "\"stopReason\""];
    if !parts.iter().any(|part| line.contains(part)) {
        return Some(line.to_owned());
    }
    // What is no message is reported as such by its reader.
    let Ok(mut message) = serde_json::from_str::<Value>(line) else { return Some(line.to_owned()) };
    if message["method"] == "session/update" {
        SessionNotification::deserialize(&message["params"]).ok()?;
    } else if message["method"] == "session/request_permission" {
        let options = message["params"]["options"].as_array_mut();
        options?.retain(|option| PermissionOption::deserialize(option).is_ok());
        return Some(message.to_string());
    } else if let Some(reason) = message["result"].get("stopReason")
        && StopReason::deserialize(reason).is_err()
    {
        let why = format!("it stopped for an unknown reason, {reason}: see its stdout.log");
        let error = Error::new(ErrorCode::INTERNAL_ERROR, why);
        return Some(json!({"jsonrpc": "2.0", "id": message["id"], "error": error}).to_string());
    }
    Some(line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unknown_is_left_out() {
        let check = |line: &str, expect: Option<&str>| {
            assert_eq!(known(line).as_deref(), expect, "{line}");
        };
        let ended = r#"{"jsonrpc":"2.0","id":1,"result":{"stopReason":"refusal"}}"#;
        check(ended, Some(ended));
        check(
            r#"{"jsonrpc":"2.0","id":1,"result":{"stopReason":"brand_new"}}"#,
            Some(
                r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"it stopped for an unknown reason, \"brand_new\": see its stdout.log"}}"#,
            ),
        );
        let update = r#"{"method":"session/update","params":{"sessionId":"s1","update":{"sessionUpdate":"brand_new","x":"stopReason"}}}"#;
        check(update, None);
        let failed = r#"{"id":1,"error":{"message":"no \"stopReason\" in the result"}}"#;
        check(failed, Some(failed));
    }
}
