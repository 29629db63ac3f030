//! What people and programs see.

pub mod diagnostics;
mod paint;
pub mod progress;
pub mod stage_line;
pub mod summary;
pub mod table;

use std::io::{self, Write};

pub use paint::{Paint, clean};
use tracing_subscriber::EnvFilter;

/// Writes to stderr. When nobody can read it any more, there is nobody to tell.
pub fn stderr(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Writes to stdout, all of it or an error.
pub fn stdout(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Writes a value to stdout as JSON, for people to read as well.
pub fn json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    Ok(stdout(&format!("{}\n", serde_json::to_string_pretty(value)?))?)
}

/// Sends traces to stderr, as much as `-v`, `-vv` or `FABRO_LOG` ask for. Nothing is set up when
/// none of them does.
pub fn trace(verbose: u8) {
    let level = match verbose {
        0 => None,
        1 => Some("fabro=info,info"),
        _ => Some("debug"),
    };
    let filter = std::env::var("FABRO_LOG").ok().filter(|text| !text.is_empty());
    let Some(filter) = filter.as_deref().or(level) else { return };
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_writer(io::stderr)
        .finish();
    // Only one subscriber can be set, and this is the only place that sets one.
    let _ = tracing::subscriber::set_global_default(subscriber);
}
