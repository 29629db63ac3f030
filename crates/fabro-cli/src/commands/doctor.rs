//! `fabro doctor`.

use std::path::{Path, PathBuf};

use fabro_config::{ProviderSettings, Settings};
use fabro_store::SqliteStore;
use serde::Serialize;

use crate::cli::DoctorArgs;
use crate::exit::{self, Exit};
use crate::global::Global;
use crate::output;
use fabro_terminal::{Paint, clean};

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
    checks.extend(models(global));
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

/// Each provider that is configured, and what would answer the stages that name no model.
fn models(global: &Global) -> Vec<Check> {
    let check = |name, status, detail| Check { name, status, detail };
    let settings = match global.settings() {
        Ok(settings) => settings,
        Err(error) => return vec![check("model", Verdict::Failed, error.to_string())],
    };
    let providers = fabro_run::providers(&settings);
    let mut checks: Vec<_> = providers.iter().map(|it| provider(it, &settings)).collect();
    let (status, detail) = match (settings.model.name, settings.model.script) {
        (Some(name), _) if !providers.is_empty() => (Verdict::Ok, name),
        (None, _) if !providers.is_empty() => {
            (Verdict::Ok, "the usual one of the first provider; `fabro model test` asks".to_owned())
        }
        (_, Some(script)) if !script.is_file() => {
            let why = format!("{} is no file; mend `run.model.script`", script.display());
            (Verdict::Failed, why)
        }
        (_, Some(script)) => (Verdict::Ok, format!("answers of {}", script.display())),
        (name, None) => {
            let named = name.map(|name| format!("{name} is named, but ")).unwrap_or_default();
            let advice = "no provider is configured: set a key such as ANTHROPIC_API_KEY, or \
                          name one in .fabro/config.toml; or use a model script, or --dry-run";
            (Verdict::Warning, format!("{named}{advice}"))
        }
    };
    checks.push(check("model", status, detail));
    checks
}

/// A provider, without anything secret. It is not asked.
fn provider(provider: &ProviderSettings, settings: &Settings) -> Check {
    let at = provider.base_url.as_deref().map(|url| format!(" at {}", clean(url)));
    let it =
        format!("{} ({}){}", clean(&provider.name), provider.kind.as_str(), at.unwrap_or_default());
    let (status, detail) = match fabro_run::client(std::slice::from_ref(provider), &settings.models)
    {
        Ok(_) => (Verdict::Ok, it),
        Err(error) => (Verdict::Failed, format!("{it}: {error}")),
    };
    Check { name: "provider", status, detail }
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
