//! A running `fabro serve`, and a client that sends exactly the bytes it is given.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::described;
use crate::project::Project;

/// A server on a project, until it is dropped.
pub(crate) struct Served {
    pub(crate) child: Child,
    pub(crate) port: u16,
    /// The token of each role, in the order of the roles.
    pub(crate) tokens: Vec<String>,
    // A closed pipe would fail its writes.
    _stderr: ChildStderr,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// The lines of the head, names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(it, _)| it == name);
        found.map_or("", |(_, value)| value.as_str())
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        let text = String::from_utf8_lossy(&self.body);
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// The status and the code of the problem.
    #[track_caller]
    pub(crate) fn problem(&self) -> String {
        assert_eq!(self.header("content-type"), "application/problem+json", "{self:?}");
        let body = self.json();
        assert!(!body["fix"].as_str().unwrap().is_empty(), "{body}");
        assert_eq!(body["status"], self.status);
        format!("{} {}", self.status, body["code"].as_str().unwrap())
    }
}

impl Served {
    pub(crate) fn start(project: &Project, args: &[&str]) -> Self {
        Self::start_with(project, args, &[])
    }

    /// The same in an environment with these variables.
    pub(crate) fn start_with(project: &Project, args: &[&str], env: &[(&str, &str)]) -> Self {
        let mut command = project.command(&["serve", "--port", "0"]);
        command.envs(env.iter().copied());
        command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let roles = args.iter().filter(|arg| **arg == "--role").count().max(1);
        let addresses: Vec<String> = (0..roles).map(|_| lines.next().unwrap().unwrap()).collect();
        let token = |line: &String| line.split_once("#token=").unwrap().1.to_owned();
        let port = addresses[0].split("127.0.0.1:").nth(1).unwrap().split('/').next().unwrap();
        Self {
            port: port.parse().unwrap(),
            tokens: addresses.iter().map(token).collect(),
            _stderr: child.stderr.take().unwrap(),
            child,
        }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        stream
    }

    /// Sends a request with these headers alone, and reads the response to its end.
    pub(crate) fn raw(&self, head: &str, headers: &[&str], body: &str) -> Response {
        let mut stream = self.connect();
        let length = format!("Content-Length: {}", body.len());
        let mut lines = vec![head, "Connection: close", &length];
        lines.extend(headers);
        let text = format!("{}\r\n\r\n{body}", lines.join("\r\n"));
        // The server may have refused it before it has read all.
        let _ = stream.write_all(text.as_bytes());
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        parse(&bytes)
    }

    /// Sends a request as a program does, with the token of the highest role.
    pub(crate) fn send(&self, method: &str, path: &str, body: &str) -> Response {
        self.send_with(method, path, &[], body)
    }

    pub(crate) fn send_with(
        &self,
        method: &str,
        path: &str,
        headers: &[&str],
        body: &str,
    ) -> Response {
        let host = format!("Host: 127.0.0.1:{}", self.port);
        let token = format!("Authorization: Bearer {}", self.tokens.last().unwrap());
        let mut all = vec![&*host, &*token, "Content-Type: application/json"];
        all.extend(headers);
        let response = self.raw(&format!("{method} /api/v1{path} HTTP/1.1"), &all, body);
        described::check(method, path, &response);
        response
    }

    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Value {
        let response = self.send("GET", path, "");
        assert_eq!(response.status, 200, "{path}: {}", String::from_utf8_lossy(&response.body));
        response.json()
    }

    #[track_caller]
    pub(crate) fn post(&self, path: &str, body: &Value) -> Value {
        let response = self.send("POST", path, &body.to_string());
        assert!(response.status < 300, "{path}: {}", String::from_utf8_lossy(&response.body));
        response.json()
    }

    /// The events of a run as they come, after one of them.
    pub(crate) fn follow(&self, run: &str, last: u64) -> impl Iterator<Item = (u64, Value)> {
        let mut stream = self.connect();
        let token = self.tokens.last().unwrap();
        let text = format!(
            "GET /api/v1/runs/{run}/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\
             Authorization: Bearer {token}\r\nLast-Event-ID: {last}\r\n\r\n"
        );
        stream.write_all(text.as_bytes()).unwrap();
        let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
        std::iter::from_fn(move || {
            let id = lines.find_map(|line| line.strip_prefix("id: ").map(str::to_owned))?;
            let data = lines.find_map(|line| line.strip_prefix("data: ").map(str::to_owned))?;
            Some((id.parse().unwrap(), serde_json::from_str(&data).unwrap()))
        })
    }
}

fn parse(bytes: &[u8]) -> Response {
    let end = bytes.windows(4).position(|part| part == b"\r\n\r\n");
    let Some(end) = end else {
        return Response { status: 0, headers: Vec::new(), body: Vec::new() };
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let pair = |line: &str| {
        let (name, value) = line.split_once(':').unwrap();
        (name.to_ascii_lowercase(), value.trim().to_owned())
    };
    let headers: Vec<_> = lines.map(pair).collect();
    let mut body = bytes[end + 4..].to_vec();
    if headers.contains(&("transfer-encoding".to_owned(), "chunked".to_owned())) {
        body = whole(&body);
    }
    Response { status, headers, body }
}

/// A body without its chunks.
fn whole(mut bytes: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = bytes.windows(2).position(|part| part == b"\r\n") {
        let size = std::str::from_utf8(&bytes[..end]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        let start = end + 2;
        body.extend_from_slice(&bytes[start..start + size]);
        bytes = &bytes[start + size + 2..];
        if size == 0 {
            break;
        }
    }
    body
}
