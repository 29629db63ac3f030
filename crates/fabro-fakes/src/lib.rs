//! Model providers and web pages for tests: scripted servers on real loopback sockets.
//!
//! A [`Server`] plays a list of [`Response`]s, one a request, the last one again and again, or asks a
//! function for each ([`Server::answering`]). What a response looks like on the wire follows from the
//! path that was asked: `…/chat/completions` is answered as `OpenAI` does, `…/messages` as Anthropic
//! does, streamed or whole as the request wants it. So one script serves both. Everything that goes
//! wrong with real providers can be played too: errors in each provider's own words, streams that
//! break, stop or hang, and bytes that drip.
//!
//! Every request is kept, for a test to look at.
//!
//! ```
//! use fabro_fakes::{Fault, Response, Server};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! # fn main() -> std::io::Result<()> {
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! # runtime.block_on(async {
//! let script = vec![Response::text("Hello"), Response::error(Fault::RateLimit).retry_after("2")];
//! let server = Server::start(script).await?;
//! let mut socket = tokio::net::TcpStream::connect(server.address()).await?;
//! let body = r#"{"model": "any", "messages": []}"#;
//! let head = format!("POST /v1/messages HTTP/1.1\r\ncontent-length: {}\r\n\r\n", body.len());
//! socket.write_all((head + body).as_bytes()).await?;
//! let mut answer = String::new();
//! socket.read_to_string(&mut answer).await?;
//! assert!(answer.contains(r#"{"type":"text","text":"Hello"}"#));
//! assert_eq!(server.requests()[0].json()["model"], "any");
//! # Ok(())
//! # })
//! # }
//! ```
//!
//! # Limits
//!
//! - HTTP/1.1 without TLS, one request a connection, bodies of requests up to 64 MiB.
//! - The servers check nothing: a request that a real provider would refuse is answered.
//! - The Responses API and Gemini are played only as bytes, by [`Response::bytes`].

mod anthropic;
mod fault;
mod http;
mod openai;
mod response;
mod server;
mod wire;

pub use fault::Fault;
pub use http::Request;
pub use response::{Block, Ending, Response, ScriptError, Tokens};
pub use server::Server;
