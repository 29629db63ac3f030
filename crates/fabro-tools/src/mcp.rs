//! The tools of MCP servers, as tools of an agent.
//!
//! A [`Server`] is a program to start and speak to over its stdin and stdout, or the URL of one that
//! is there. [`Servers::connect`] starts them side by side and asks each for its tools; one that
//! does not come up is a warning in [`Servers::failed`], with the last lines it wrote to stderr, and
//! the others work without it. [`Servers::tools`] gives their tools, named `mcp__server__tool`.
//!
//! ```
//! use fabro_tools::mcp::{Server, Servers, Transport};
//!
//! let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
//! runtime.block_on(async {
//!     let transport = Transport::Stdio {
//!         command: "no-such-server".into(),
//!         args: vec!["--stdio".into()],
//!         env: vec![("TOKEN".into(), "abc".into())],
//!     };
//!     let here = std::path::Path::new(".");
//!     let servers = Servers::connect(vec![Server::new("search", transport)], here, &[]).await;
//!     assert!(servers.tools().is_empty());
//!     assert_eq!(
//!         servers.failed()[0].to_string(),
//!         "MCP server `search`: no-such-server not found: \
//!          install no-such-server, or put it on the PATH",
//!     );
//!     servers.close().await;
//! });
//! ```
//!
//! A program gets the environment it is given and nothing else, and leads a process group of its
//! own, which is ended with [`Servers::close`] (SIGTERM, two seconds, SIGKILL) or killed when the
//! last tool is dropped. A server that ends in the middle of a call is restarted; the call is
//! repeated only when the server calls the tool read-only or idempotent, otherwise the agent is told
//! that it may have taken effect or not. So it is with a server that answers neither a call in its time
//! nor, after that, a ping: it is ended, and started again.
//!
//! # Limits
//!
//! - Needs a tokio runtime with its I/O and time drivers, which must keep running for as long as the
//!   servers are used. Programs: Unix only.
//! - Tools only: no resources, prompts or sampling, and a tool that asks the user something fails.
//! - The list of tools is the one at the start, at most 1,000 of a server.
//! - A message over stdio has at most 8 MiB, one over HTTP 16 MiB; a longer one ends the
//!   connection. What a tool returns below that is not cut.
//! - Nothing is redacted: results, and what a server wrote to stderr, come as they are.
//! - HTTP redirects are followed within one origin only.

mod error;
mod http;
mod link;
mod name;
mod result;
mod server;
mod servers;
mod stdio;
mod tool;

pub use error::{Problem, ServerError};
pub use server::{Server, Transport};
pub use servers::Servers;
