//! Tools of an agent that reach the web: pages, and the HTTP tools of settings; private addresses refused.
//!
//! [`WebFetch`] is the tool `web_fetch`: it gets a page and makes text of it. An agent chooses the
//! address, and a page may have told it which, so nothing is reached that only this machine or its
//! network can reach: every address of a host has to be public, and so has that of every redirect.
//! The connection goes to an address that was looked at; the name is not resolved again. Hosts that
//! the settings name are fetched from whatever their address is.
//!
//! [`HttpToolCall`] is a tool that the settings declare: a call is an HTTP request with the arguments
//! in it. Its URL is the user's own, and its headers may be secret: they are never shown.
//!
//! ```
//! use std::collections::BTreeMap;
//! use std::sync::Arc;
//!
//! use fabro_tools::{Call, Tool, ToolContext};
//! use fabro_tools::web::{WebFetch, WebSettings};
//! use serde_json::json;
//! use tokio_util::sync::CancellationToken;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! # runtime.block_on(async {
//! // Real programs leave the resolver as it is.
//! let names = BTreeMap::from([("inside.example".to_owned(), vec!["10.0.0.1".parse()?])]);
//! let settings = WebSettings { resolver: Arc::new(names), ..WebSettings::default() };
//! let tool = WebFetch::new(settings)?;
//! assert_eq!(tool.spec().name, "web_fetch");
//!
//! for url in ["http://inside.example/", "http://[::1]/", "http://0x7f000001/"] {
//!     let arguments = json!({ "url": url });
//!     let call = Call {
//!         id: "1",
//!         arguments: arguments.as_object().ok_or("no object")?,
//!         context: &ToolContext::default(),
//!         cancel: &CancellationToken::new(),
//!     };
//!     assert!(tool.call(call).await.is_error);
//! }
//! # Ok(())
//! # })
//! # }
//! ```
//!
//! # Limits
//!
//! - A request takes at most 30 seconds, follows 5 redirects (those of an HTTP tool lead to no other
//!   origin), and of its answer the first MiB is read. [`Limits`] change time and size.
//! - Only text comes back: HTML, JSON, XML and the like. Compressed answers are not asked for.
//! - Pages are read as they are sent: nothing that a script would add is there, and nothing is
//!   remembered from one fetch to the next.
//! - `web_fetch` uses no proxy, for a proxy would resolve names itself. HTTP tools use those of the
//!   environment.
//! - What a GET tool is told about the workflow is cut, the oldest turns first, so that its URL stays
//!   below 8,000 bytes.
//! - What a page says is not redacted; of what an HTTP tool says, the redactor's secrets and the
//!   values of its headers are.

mod address;
mod allow;
mod body;
mod client;
mod cut;
mod error;
mod fetch;
mod html;
mod http_tool;
mod layout;
mod resolve;

pub use address::is_public;
pub use client::Limits;
pub use error::SetupError;
pub use fetch::{WebFetch, WebSettings};
pub use http_tool::HttpToolCall;
pub use resolve::{Resolve, SystemResolver};
