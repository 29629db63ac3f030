//! A minimal HTTP/1.1 server: one that is to break the protocol cannot use a library that keeps it.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader,
};
use tokio::net::TcpStream;

use crate::wire::{Close, Sent, Wire};

const HEAD_BYTES: u64 = 1 << 20;
const BODY_BYTES: u64 = 64 << 20;

/// A request that a server got.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Request {
    /// `GET`, `POST`, ….
    pub method: String,
    /// The path, with its query.
    pub path: String,
    /// The headers, their names in lower case.
    pub headers: BTreeMap<String, String>,
    /// The body.
    pub body: Vec<u8>,
}

impl Request {
    /// A header, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// The body as JSON; null when it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// Reads one request; `None` when the client sent nothing. An incomplete one is an error, and so is a
/// body without a length.
pub(crate) async fn read(socket: &mut TcpStream) -> io::Result<Option<Request>> {
    let mut reader = BufReader::new(socket);
    let mut head = (&mut reader).take(HEAD_BYTES);
    let Some(first) = line(&mut head).await? else { return Ok(None) };
    let mut words = first.split(' ');
    let mut word = || words.next().unwrap_or_default().to_owned();
    let method = word();
    let path = word();
    let mut headers = BTreeMap::new();
    loop {
        let line = line(&mut head).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        if line.is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':') {
            headers.insert(name.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    if headers.contains_key("transfer-encoding") {
        return Err(io::Error::other("a body needs a content-length here"));
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok());
    let body = bytes(&mut reader, length.unwrap_or(0)).await?;
    Ok(Some(Request { method, path, headers, body }))
}

async fn bytes(reader: &mut BufReader<&mut TcpStream>, length: u64) -> io::Result<Vec<u8>> {
    if length > BODY_BYTES {
        return Err(io::Error::other("the body is too long"));
    }
    let mut body = Vec::new();
    let read = (&mut *reader).take(length).read_to_end(&mut body).await?;
    if (read as u64) < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(body)
}

/// The next line without its end; `None` at the end of everything.
async fn line(reader: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<String>> {
    let mut line = String::new();
    let read = reader.read_line(&mut line).await?;
    line.truncate(line.trim_end_matches(['\r', '\n']).len());
    Ok((read > 0).then_some(line))
}

/// Writes a response and ends the connection in its way.
pub(crate) async fn write(mut socket: TcpStream, wire: Wire) -> io::Result<()> {
    if let Some(delay) = wire.delay {
        tokio::time::sleep(delay).await;
    }
    let close = match &wire.body {
        Sent::Nothing(close) => *close,
        Sent::Whole(body) => {
            socket
                .write_all(head(&wire, &format!("content-length: {}", body.len())).as_bytes())
                .await?;
            drip(&mut socket, body, wire.byte_delay).await?;
            Close::Clean
        }
        Sent::Pieces(pieces, close) => {
            socket.write_all(head(&wire, "transfer-encoding: chunked").as_bytes()).await?;
            for piece in pieces {
                send_piece(&mut socket, piece, wire.byte_delay).await?;
            }
            if *close == Close::Clean {
                socket.write_all(b"0\r\n\r\n").await?;
            }
            *close
        }
    };
    match close {
        Close::Clean => socket.shutdown().await,
        // The body is short of its end, so that the client sees a broken connection.
        Close::Reset => Ok(()),
        Close::Hang => {
            std::future::pending::<()>().await;
            Ok(())
        }
    }
}

fn head(wire: &Wire, length: &str) -> String {
    let mut head =
        format!("HTTP/1.1 {} Scripted\r\n{length}\r\nconnection: close\r\n", wire.status);
    for (name, value) in &wire.headers {
        head.extend([name, ": ", value, "\r\n"]);
    }
    head + "\r\n"
}

async fn send_piece(
    socket: &mut TcpStream,
    piece: &str,
    byte_delay: Option<Duration>,
) -> io::Result<()> {
    let size = if byte_delay.is_some() { 1 } else { piece.len().max(1) };
    for bytes in piece.as_bytes().chunks(size) {
        let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
        chunk.extend_from_slice(bytes);
        chunk.extend_from_slice(b"\r\n");
        socket.write_all(&chunk).await?;
        socket.flush().await?;
        if let Some(delay) = byte_delay {
            tokio::time::sleep(delay).await;
        }
    }
    Ok(())
}

async fn drip(socket: &mut TcpStream, body: &[u8], delay: Option<Duration>) -> io::Result<()> {
    let Some(delay) = delay else { return socket.write_all(body).await };
    for byte in body {
        socket.write_all(&[*byte]).await?;
        tokio::time::sleep(delay).await;
    }
    Ok(())
}
