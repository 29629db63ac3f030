//! Tools of an agent that reach the web: pages, and the HTTP tools of settings; private addresses refused.
//!
//! [`WebFetch`] is the tool `web_fetch`: it gets a page as text. An agent chooses the URL, perhaps
//! because a page asked for it (server-side request forgery), so nothing is fetched that only this
//! machine or its network can reach: every address of a host has to be public, also after each
//! redirect. The connection goes to an address that was checked; the name is not resolved again. Hosts
//! that the settings name are fetched with any address.
//!
//! [`WebSearch`] is the tool `web_search`: it asks the search engine of the settings.
//!
//! [`HttpToolCall`] is a tool that the settings declare: a call is an HTTP request with the arguments
//! in it. Its URL is set by the user, and its headers may be secret: they are never shown.
//!
//! ```
//! use std::collections::BTreeMap;
//! use std::sync::Arc;
//!
//! use fabro_redact::Redactor;
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
//!         redactor: &Redactor::default(),
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
//! - Only text is returned: HTML, JSON, XML and the like. Compressed responses are not requested.
//! - Scripts of pages are not run, and nothing is cached between two fetches.
//! - `web_fetch` uses no proxy, because a proxy would resolve names itself. HTTP tools use those of the
//!   environment.
//! - The workflow's memory in the URL of a GET tool is cut, the oldest turns first, so that its URL
//!   stays below 8,000 bytes.
//! - Pages are not redacted; responses of an HTTP tool are, by the redactor and for the values of its
//!   headers.

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
mod search;

pub use address::is_public;
pub use client::Limits;
pub use error::SetupError;
pub use fetch::{WebFetch, WebSettings};
pub use http_tool::HttpToolCall;
pub use resolve::{Resolve, SystemResolver};
pub use search::WebSearch;
