//! Runs as HTML: the fragments of a server's pages, and a report in one file.
//!
//! All but [`make_report`], which reads a store, is a pure function from the projections of `fabro-inspect` to text. A fragment is made
//! of typed templates: all texts of a run are escaped, and characters that control text or change its
//! direction are made visible. No fragment has inline styles or scripts, so a page can forbid both. What
//! is folded is folded in Rust; the script of a page only swaps fragments.
//!
//! ```
//! use fabro_page::{Links, StageFilter};
//!
//! let links = Links::Server("/runs/01K3".into());
//! assert_eq!(links.stage("checks@1/lint@2"), "/runs/01K3/stages/checks@1/lint@2");
//! assert_eq!(StageFilter::parse("slow"), Some(StageFilter::Slow));
//! ```
//!
//! # Limits
//!
//! - A report is kept to a size by cutting long texts, and says how many it cut. A run of so many stages
//!   that it is still larger without them is larger.
//! - A patch shows 5,000 lines, a table of costs 50 stages, a list of differences 500.

mod artifacts;
mod conversation;
mod cost;
mod differences;
mod gather;
mod graph;
mod links;
mod overview;
mod patch;
mod report;
mod stage;
mod stage_list;
mod texts;
mod timeline;

pub use artifacts::artifacts;
pub use cost::cost;
pub use differences::Comparison;
pub use fabro_picture::Picture;
pub use gather::{Made, MakeError, make_report};
pub use graph::{edges, graph, marks};
pub use links::Links;
pub use overview::{class, overview, sign};
pub use patch::patch;
pub use report::{MAX_REPORT, RunReport, report};
pub use stage::{CONTEXT_READ, StageExtras, stage};
pub use stage_list::{StageFilter, class as stage_class, sign as stage_sign, stage_rows};
pub use texts::Texts;
pub use timeline::timeline;

/// The style of pages and reports, that of pictures included.
pub fn style() -> String {
    [include_str!("../assets/page.css"), fabro_picture::STYLE].concat()
}

/// The ES module of lists and times that the scripts of pages and reports share.
pub fn list_script() -> &'static str {
    include_str!("../assets/list.js")
}

#[cfg(test)]
mod tests;
