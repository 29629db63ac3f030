//! `fabro doctor`.

use std::path::{Path, PathBuf};

use fabro_store::SqliteStore;
use serde::Serialize;

use crate::cli::DoctorArgs;
use crate::exit::{self, Exit};
use crate::global::Global;
use crate::output;
use fabro_terminal::Paint;

/// Free space below which runs may soon fail, in bytes.
const SCARCE: u64 = 256 << 20;

/// Something that was looked at.
#[derive(Serialize)]
struct Check {
    #[serde(rename = "check")]
    name: &'static str,
    status: Verdict,
    detail: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    Warning,
    Failed,
}

/// Looks whether everything is there that runs need.
pub fn doctor(args: &DoctorArgs, global: &Global) -> anyhow::Result<Exit> {
    let dir = global.store_dir()?;
    let mut checks = vec![
        tool("bash", "scripts run in `sh` instead", Verdict::Warning),
        tool("sh", "no script can run: install a shell", Verdict::Failed),
        tool("python3", "scripts with language=python cannot run", Verdict::Warning),
        tool("git", "scripts that call it fail", Verdict::Warning),
        store(&dir),
    ];
    checks.extend(space(&dir));
    checks.push(model(global));
    if args.json {
        output::json(&checks)?;
    } else {
        output::stdout(&text(&checks, global.paint_stdout()))?;
    }
    let failed = checks.iter().any(|check| check.status == Verdict::Failed);
    Ok(if failed { exit::FAILED } else { exit::SUCCEEDED })
}

/// A program that is looked for in the directories of `PATH`.
fn tool(name: &'static str, without: &str, verdict: Verdict) -> Check {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| {
        rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok() && file.is_file()
    });
    match found {
        Some(file) => Check { name, status: Verdict::Ok, detail: file.display().to_string() },
        None => Check { name, status: verdict, detail: format!("not found: {without}") },
    }
}

/// The store is opened if there is one, and otherwise nothing is created.
fn store(dir: &Path) -> Check {
    let check = |status, detail| Check { name: "store", status, detail };
    if dir.join("fabro.db").exists() {
        return match SqliteStore::open(dir) {
            Ok(store) => check(Verdict::Ok, store.dir().display().to_string()),
            Err(error) => check(Verdict::Failed, error.to_string()),
        };
    }
    let place = existing(dir);
    match rustix::fs::access(&place, rustix::fs::Access::WRITE_OK) {
        Ok(()) => check(Verdict::Ok, format!("{} (made by the first run)", dir.display())),
        Err(error) => {
            let why = format!(
                "{} cannot be written: {error}; name another with --store",
                place.display()
            );
            check(Verdict::Failed, why)
        }
    }
}

fn space(dir: &Path) -> Option<Check> {
    let stat = rustix::fs::statvfs(existing(dir)).ok()?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    let detail = format!("{:.1} GB free", free as f64 / 1e9);
    let (status, detail) = if free < SCARCE {
        (Verdict::Warning, format!("{detail}: remove runs with `fabro rm`, or free some space"))
    } else {
        (Verdict::Ok, detail)
    };
    Some(Check { name: "space", status, detail })
}

/// The nearest directory at or above this one that exists.
fn existing(dir: &Path) -> PathBuf {
    dir.ancestors().find(|dir| dir.is_dir()).unwrap_or(Path::new("/")).to_owned()
}

fn model(global: &Global) -> Check {
    let (status, detail) = match global.settings() {
        Err(error) => (Verdict::Failed, error.to_string()),
        Ok(settings) => match (settings.model.script, settings.model.name) {
            (Some(script), _) if !script.is_file() => (
                Verdict::Failed,
                format!("{} is no file; mend `run.model.script`", script.display()),
            ),
            (Some(script), _) => (Verdict::Ok, format!("answers of {}", script.display())),
            (None, name) => {
                let named = name.map(|name| format!("{name} is named, but ")).unwrap_or_default();
                let advice =
                    "this version has no provider: a run needs a model script, or --dry-run";
                (Verdict::Warning, format!("{named}{advice}"))
            }
        },
    };
    Check { name: "model", status, detail }
}

fn text(checks: &[Check], paint: Paint) -> String {
    let line = |check: &Check| {
        let mark = match check.status {
            Verdict::Ok => paint.good("✓"),
            Verdict::Warning => paint.odd("!"),
            Verdict::Failed => paint.bad("✗"),
        };
        format!("{mark} {:8} {}\n", check.name, check.detail)
    };
    checks.iter().map(line).collect()
}
