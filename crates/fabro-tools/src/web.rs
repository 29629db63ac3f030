//! Web pages and tools behind web addresses.

mod address;
mod body;
mod client;
mod fetch;
mod html;
mod http_tool;

pub use client::{Resolve, SystemResolver};
pub use fetch::{Web, web_fetch};
pub use http_tool::{HttpToolError, http_tool};
