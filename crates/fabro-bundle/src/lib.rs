//! All that a run depends on, kept with the run: its workflow's text, the files it names, settings.
//!
//! A [`Bundle`] is stored when a run is created, so that the run can go on when the files it came
//! from have changed or are gone. [`render_goal`] fills its goal in; [`obstacle`] says what keeps a valid workflow from being run.
//!
//! ```
//! use fabro_bundle::{Bundle, RunSettings};
//!
//! let bundle = Bundle {
//!     name: "hello".into(),
//!     file: "hello.fabro".into(),
//!     base: String::new(),
//!     source: "digraph { start -> exit }".into(),
//!     files: Default::default(),
//!     settings: RunSettings::default(),
//! };
//! assert_eq!(bundle.plan().unwrap().workflow().name(), "hello");
//! ```
//!
//! # Limits
//!
//! - Settings hold names of environment variables, never the values of secrets; a resume reads those
//!   from the environment it finds.
//! - A bundle is one JSON value and is read back as a whole.

mod bundle;
mod goal;
mod obstacle;

pub use bundle::{Bundle, BundleError, RunSettings};
pub use goal::{GoalError, render_goal};
pub use obstacle::{Obstacle, obstacle};
