//! Tools as a model calls them, on real files and processes, most of them against hostile
//! input.

#[cfg(test)]
mod files;
#[cfg(feature = "mcp")]
#[cfg(test)]
mod mcp;
#[cfg(test)]
mod search;
#[cfg(test)]
mod set;
#[cfg(test)]
mod setup;
#[cfg(test)]
mod shell;
#[cfg(feature = "web")]
#[cfg(test)]
mod web;
#[cfg(test)]
mod workflow;
