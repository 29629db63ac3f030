//! Commands that an agent may not use: those that change runs.

use std::fs;

use fabro_terminal::clean;

use crate::error;

/// Set for all that an agent starts.
const MARK: &str = "FABRO_AGENT";

/// More ancestors than any process has.
const ANCESTORS: usize = 256;

/// Refuses a command that an agent has started: it could answer the gate that it is checked by. Its own variables and those
/// of the processes above it say so.
pub fn refuse() -> anyhow::Result<()> {
    let Some(process) = started_by() else { return Ok(()) };
    Err(error::usage(
        format!("{process} belongs to an agent of a run, which may not change runs"),
        "let a person do it, or a command stage of the workflow",
    ))
}

/// The process of an agent that has started this one.
fn started_by() -> Option<String> {
    if std::env::var_os(MARK).is_some() {
        return Some(format!("this process ({})", std::process::id()));
    }
    let mut pid = parent(std::process::id())?;
    for _ in 0..ANCESTORS {
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let mark = format!("{MARK}=");
        if environ.split(|byte| *byte == 0).any(|entry| entry.starts_with(mark.as_bytes())) {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            return Some(format!("process {pid} (`{}`)", clean(name.trim())));
        }
        pid = parent(pid)?;
    }
    None
}

/// This process and those above it, by id and name, for the record of what it does: `4711 fabro < 4700 bash < 1 init`.
/// `None` where the system does not tell.
pub fn ancestry() -> Option<String> {
    const SHOWN: usize = 4;
    let mut all = Vec::new();
    let mut pid = Some(std::process::id());
    while let Some(id) = pid.filter(|_| all.len() < SHOWN) {
        let name = fs::read_to_string(format!("/proc/{id}/comm")).ok()?;
        all.push(format!("{id} {}", clean(name.trim())));
        pid = parent(id);
    }
    Some(all.join(" < "))
}

/// The parent of a process; `None` above the first one, and outside Linux.
fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The name of the process, which may have any characters, stands in parentheses.
    let stat = String::from_utf8_lossy(&stat).into_owned();
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split_ascii_whitespace().nth(1)?.parse().ok().filter(|parent| *parent > 0)
}
