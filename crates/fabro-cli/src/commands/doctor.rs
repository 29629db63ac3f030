//! `fabro doctor`.

use std::path::{Path, PathBuf};

use fabro_config::{ProviderSettings, ScriptUse, Settings};
use fabro_server::FailingWebhook;
use fabro_store::{SqliteStore, StoreError};
use serde::Serialize;

use super::from_upstream::from_upstream;
use super::model::provider_text;
use super::verify::check_store;
use crate::exit::Exit;
use crate::global::{Global, settings};
use crate::output;
use crate::report::without_warnings;
use fabro_terminal::{Paint, clean};

/// Check that everything runs need is available
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro doctor\n  fabro doctor --from-upstream\n  fabro doctor --from-upstream ../project --json\n\nExits with 1 if a check fails, or if a setting of a project of upstream is lost."
)]
pub struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// List what this version does not understand of a project of upstream Fabro
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = ".")]
    pub from_upstream: Option<PathBuf>,
}

/// Free space below which runs may soon fail, in bytes.
const SCARCE: u64 = 256 << 20;

/// The result of a check.
#[derive(Serialize)]
struct Check {
    #[serde(rename = "check")]
    name: &'static str,
    status: CheckStatus,
    detail: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum CheckStatus {
    Ok,
    Warning,
    Failed,
}

/// Checks that everything runs need is available.
pub async fn doctor(args: &DoctorArgs, global: &Global) -> anyhow::Result<Exit> {
    if let Some(project) = &args.from_upstream {
        return from_upstream(project, args.json, global);
    }
    let dir = global.store_dir()?;
    let mut checks = vec![
        tool("bash", "scripts run in `sh` instead", CheckStatus::Warning),
        tool("sh", "no script can run: install a shell", CheckStatus::Failed),
        tool("python3", "scripts with language=python cannot run", CheckStatus::Warning),
        tool("git", "scripts that call it fail", CheckStatus::Warning),
        store(&dir).await,
    ];
    checks.extend(space(&dir));
    checks.extend(webhooks(&dir));
    checks.extend(models());
    output::report(args.json, &checks, || text(&checks, global.paint_stdout()))?;
    let failed = checks.iter().any(|check| check.status == CheckStatus::Failed);
    Ok(if failed { Exit::FAILED } else { Exit::SUCCEEDED })
}

/// A program that is looked for in the directories of `PATH`.
fn tool(name: &'static str, without: &str, status: CheckStatus) -> Check {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| {
        rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok() && file.is_file()
    });
    match found {
        Some(file) => Check { name, status: CheckStatus::Ok, detail: file.display().to_string() },
        None => Check { name, status, detail: format!("not found: {without}") },
    }
}

/// The store is checked in full if there is one, and otherwise nothing is created.
async fn store(dir: &Path) -> Check {
    let check = |status, detail| Check { name: "store", status, detail };
    let missing = match SqliteStore::open_read_only(dir) {
        Ok(store) => {
            let found = check_store(&store).await;
            let runs = found.runs;
            let place = dir.display();
            return match found.problems.first() {
                None if runs == 1 => check(CheckStatus::Ok, format!("{place}: its run is whole")),
                None => check(CheckStatus::Ok, format!("{place}: all of {runs} runs are whole")),
                Some(first) => {
                    let count = found.problems.len();
                    let problems =
                        if count == 1 { "1 problem" } else { &format!("{count} problems") };
                    let detail = format!("{place}: {problems}, run `fabro verify`: {first}");
                    check(CheckStatus::Failed, detail)
                }
            };
        }
        Err(error) => error,
    };
    if !matches!(missing, StoreError::NoStore { .. }) {
        return check(CheckStatus::Failed, missing.to_string());
    }
    let place = existing(dir);
    match rustix::fs::access(&place, rustix::fs::Access::WRITE_OK) {
        Ok(()) => check(CheckStatus::Ok, format!("{} (created by the first run)", dir.display())),
        Err(error) => check(
            CheckStatus::Failed,
            format!("{} cannot be written: {error}; name another with --store", place.display()),
        ),
    }
}

/// Endpoints that did not take the last event that a server sent them.
fn webhooks(dir: &Path) -> Vec<Check> {
    let check = |detail| Check { name: "webhooks", status: CheckStatus::Warning, detail };
    let failing = match fabro_server::failing_webhooks(dir) {
        Ok(failing) => failing,
        Err(error) => return vec![check(format!("what the server wrote about them: {error}"))],
    };
    let detail = |it: FailingWebhook| {
        let since = fabro_events::timestamp(i64::try_from(it.since_ms).unwrap_or(i64::MAX));
        format!(
            "{}; {} tries since {since}, the events from {} on wait",
            it.reason, it.tries, it.event
        )
    };
    failing.into_iter().map(|it| check(detail(it))).collect()
}

fn space(dir: &Path) -> Option<Check> {
    let stat = rustix::fs::statvfs(existing(dir)).ok()?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    let detail = format!("{:.1} GB free", free as f64 / 1e9);
    let (status, detail) = if free < SCARCE {
        (CheckStatus::Warning, format!("{detail}: remove runs with `fabro rm`, or free some space"))
    } else {
        (CheckStatus::Ok, detail)
    };
    Some(Check { name: "space", status, detail })
}

/// The nearest directory at or above this one that exists.
fn existing(dir: &Path) -> PathBuf {
    dir.ancestors().find(|dir| dir.is_dir()).unwrap_or(Path::new("/")).to_owned()
}

/// Each provider that is configured, and what would answer the stages that name no model.
fn models() -> Vec<Check> {
    let check = |name, status, detail| Check { name, status, detail };
    let settings = match settings() {
        Ok(settings) => settings,
        Err(error) => {
            let error = without_warnings(error);
            return vec![check("model", CheckStatus::Failed, error.to_string())];
        }
    };
    let providers = fabro_run::providers(&settings);
    let mut checks: Vec<_> = providers.iter().map(|it| provider(it, &settings)).collect();
    let is_scripted = settings.model.script.is_some()
        && (providers.is_empty() || settings.model.script_when == Some(ScriptUse::Always));
    if !is_scripted && !providers.is_empty() {
        let (status, detail) = usual_model(&providers, &settings);
        checks.push(check("model", status, detail));
        return checks;
    }
    let (status, detail) = match (settings.model.name, settings.model.script) {
        (_, Some(script)) if !script.is_file() => {
            let why = format!("{} is not a file; fix `run.model.script`", script.display());
            (CheckStatus::Failed, why)
        }
        (_, Some(script)) => (CheckStatus::Ok, format!("answers of {}", script.display())),
        (name, None) => {
            let named = name.map(|name| format!("{name} is named, but ")).unwrap_or_default();
            let advice = "no provider is configured: set a key such as ANTHROPIC_API_KEY, or \
                          name one in .fabro/config.toml; or use a model script, or --dry-run";
            (CheckStatus::Warning, format!("{named}{advice}"))
        }
    };
    checks.push(check("model", status, detail));
    checks
}

/// The model of stages that name none. No server is asked for its list.
fn usual_model(providers: &[ProviderSettings], settings: &Settings) -> (CheckStatus, String) {
    if let Some(name) = &settings.model.name {
        return (CheckStatus::Ok, name.clone());
    }
    match fabro_run::usual_model(providers, settings) {
        Ok(model) => (CheckStatus::Ok, format!("{model}; `fabro model test` tests it")),
        Err(error) => (CheckStatus::Failed, format!("{error}: {}", error.fix)),
    }
}

/// A provider, without anything secret. It is not asked.
fn provider(provider: &ProviderSettings, settings: &Settings) -> Check {
    let text = provider_text(provider, Paint::new(false));
    let client = fabro_run::client(std::slice::from_ref(provider), &settings.models);
    let (status, detail) = match client {
        Ok(_) => (CheckStatus::Ok, format!("{text}; `fabro model test` asks it")),
        Err(error) => (CheckStatus::Failed, format!("{text}: {error}")),
    };
    Check { name: "provider", status, detail }
}

fn text(checks: &[Check], paint: Paint) -> String {
    let line = |check: &Check| {
        let mark = match check.status {
            CheckStatus::Ok => paint.good("✓"),
            CheckStatus::Warning => paint.odd("!"),
            CheckStatus::Failed => paint.bad("✗"),
        };
        format!("{mark} {:8} {}\n", check.name, clean(&check.detail))
    };
    checks.iter().map(line).collect()
}
