//! Model providers and web pages for tests: scripted servers on real loopback sockets.
//!
//! A [`Server`] plays a list of [`Response`]s, one a request, repeating the last one, or calls a
//! function for each ([`Server::answering`]). The form of a response follows from the path of the
//! request: `…/chat/completions` and `…/responses` are answered as `OpenAI` does, `…/messages` as
//! Anthropic does, `…:generateContent` as Gemini does, streamed or whole as the request wants it. So one
//! script serves all. [`strict`] makes a server refuse what the real one refuses, in its words. The failures of real
//! providers can be played too: errors in each provider's own form, streams that break, end early or
//! hang, and bytes with a delay between them.
//!
//! Every request is recorded for assertions, except one for the list of models (`GET …/models`) that the
//! script has no answer for: it is answered with a single model, `default`.
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
//! - HTTP/1.1 without TLS, one request a connection, bodies of requests up to 64 MiB, with a
//!   `content-length`.
//! - Without [`strict`] the servers check nothing: a request that a real provider would refuse is
//!   answered. With it they check what clients get wrong, not all of a request.

mod anthropic;
mod cache;
mod fault;
mod gemini;
mod http;
mod openai;
mod response;
mod responses;
mod search;
mod server;
mod strict;
mod turn;
mod wire;

pub use cache::caching;
pub use fault::Fault;
pub use http::Request;
pub use response::Response;
pub use search::{SearchEngine, search_engine};
pub use server::Server;
pub use strict::{Vendor, strict};
pub use turn::{Block, Ending, Tokens};
