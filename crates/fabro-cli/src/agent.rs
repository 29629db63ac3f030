//! Refuses commands that change runs when an agent starts them.

use std::fs;

use fabro_terminal::clean;

use crate::error;

/// An environment variable of every process that an agent starts.
const AGENT_VARIABLE: &str = "FABRO_AGENT";

/// Upper bound of the walk up the process tree.
const MAX_ANCESTORS: usize = 256;

/// Refuses a command that an agent started: the agent could approve its own work. Checks the environment of this
/// process and of its ancestors.
pub fn refuse() -> anyhow::Result<()> {
    let Some(process) = started_by() else { return Ok(()) };
    Err(error::usage(
        format!("{process} belongs to an agent of a run, which may not change runs"),
        "let a person do it, or a command stage of the workflow",
    ))
}

/// The nearest process, this one or an ancestor, that an agent started.
fn started_by() -> Option<String> {
    if std::env::var_os(AGENT_VARIABLE).is_some() {
        return Some(format!("this process ({})", std::process::id()));
    }
    let mut pid = parent(std::process::id())?;
    for _ in 0..MAX_ANCESTORS {
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let prefix = format!("{AGENT_VARIABLE}=");
        if environ.split(|byte| *byte == 0).any(|entry| entry.starts_with(prefix.as_bytes())) {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            return Some(format!("process {pid} (`{}`)", clean(name.trim())));
        }
        pid = parent(pid)?;
    }
    None
}

/// This process and its ancestors, by id and name, for the audit record: `4711 fabro < 4700 bash < 1 init`.
/// `None` without `/proc`.
pub fn ancestry() -> Option<String> {
    const MAX_LISTED: usize = 4;
    let mut all = Vec::new();
    let mut pid = Some(std::process::id());
    while let Some(id) = pid.filter(|_| all.len() < MAX_LISTED) {
        let name = fs::read_to_string(format!("/proc/{id}/comm")).ok()?;
        all.push(format!("{id} {}", clean(name.trim())));
        pid = parent(id);
    }
    Some(all.join(" < "))
}

/// The parent of a process; `None` for the first process, and outside Linux.
fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The process name is in parentheses and may contain any characters.
    let stat = String::from_utf8_lossy(&stat).into_owned();
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split_ascii_whitespace().nth(1)?.parse().ok().filter(|parent| *parent > 0)
}
