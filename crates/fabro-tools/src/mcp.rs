//! The tools of MCP servers, as tools of an agent.
//!
//! An [`McpServer`](fabro_config::McpServer) is a program to start, which communicates on its stdin and
//! stdout, or the URL of a running server. [`Servers::connect`] starts them in parallel and gets the
//! tools of each; one that fails to start is a warning in [`Servers::failed`], with the last lines it
//! wrote to stderr, and the others work without it. [`Servers::tools`] are their tools, named
//! `mcp__server__tool`.
//!
//! ```
//! use std::collections::BTreeMap;
//!
//! use fabro_config::{McpServer, McpTransport};
//! use fabro_tools::mcp::Servers;
//!
//! let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
//! runtime.block_on(async {
//!     let transport = McpTransport::Command {
//!         command: "no-such-server".into(),
//!         args: vec!["--stdio".into()],
//!         env: BTreeMap::from([("TOKEN".into(), "abc".into())]),
//!     };
//!     let server = McpServer { transport, ..McpServer::default() };
//!     let here = std::path::Path::new(".");
//!     let servers = Servers::connect([("search".into(), server)].into(), here, &[], None).await;
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
//! The protocol is that of 2026-07-28, without sessions, where a server knows it, else that of
//! 2025-11-25. Schemas of arguments are repaired (a missing type) and their references are replaced; a
//! tool whose schema is not valid is left out, with a warning in [`Servers::warnings`]. A call that reports
//! progress gets more time, ten timeouts at most; one that is dropped is canceled on the server.
//!
//! A program gets the environment it is given and nothing else, and leads a process group of its
//! own, which is ended with [`Servers::close`] (SIGTERM, two seconds, SIGKILL) or killed when the
//! last tool is dropped. A server that ends in the middle of a call is restarted; the call is
//! retried only when the server calls the tool read-only or idempotent, otherwise the result says that
//! it may have taken effect or not. A server that answers neither a call before its timeout nor, after
//! that, a ping is restarted too.
//!
//! # Limits
//!
//! - Needs a tokio runtime with its I/O and time drivers, which must keep running for as long as the
//!   servers are used. Programs: Unix only.
//! - Tools only: no resources, prompts or sampling, and a tool that asks the user something fails.
//! - The list of tools is the one at the start, at most 1,000 of a server.
//! - A message over stdio has at most 8 MiB, one over HTTP 16 MiB; a longer one ends the
//!   connection. Shorter results are not cut.
//! - Nothing is redacted, neither results nor stderr.
//! - HTTP redirects are followed within one origin only.
//!
//! # Logins
//!
//! A server over HTTP may ask for a login by OAuth. [`Login`] does that once, with a person at a browser
//! of this machine, and keeps the tokens in a file that only its owner can read. Sessions that are given
//! the directory of these files use and renew them. Servers with an `Authorization` header of their own
//! are sent that instead.

mod answered;
mod connection;
mod error;
mod http;
mod lenient;
mod link;
mod login;
mod name;
mod offer;
mod result;
mod servers;
mod stdio;
mod tool;

pub use error::ServerError;
pub use login::{Login, LoginError, LoginRequest, is_logged_in, log_out};
pub use name::prefix as tool_prefix;
pub use servers::Servers;
