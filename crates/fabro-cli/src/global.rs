//! The options of every command: store, colors, tracing.

use std::fmt::Write as _;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use clap::{Args, ColorChoice};
use fabro_config::{Findings, Settings, Unsupported, user_settings_file};
use fabro_engine::checkpoint::StageName;
use fabro_engine::read_all;
use fabro_events::{Event, timestamp};
use fabro_store::{Runs, SqliteStore, StoreError};
use fabro_terminal::{Paint, clean, one_line};
use fabro_types::{RunId, bounded};

use crate::error;
use crate::output::stderr;
use crate::signals;
pub use crate::width::{stderr_width, stdout_width, wrapped, wrapped_lines};

/// Options of every command.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// Directory of the run store
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        help = "The run store [env: FABRO_STORE] [default: .fabro/state]"
    )]
    pub store: Option<PathBuf>,

    /// When to color the output
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t = ColorChoice::Auto)]
    pub color: ColorChoice,

    /// Print traces to stderr; twice for more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// The working directory.
pub fn cwd() -> anyhow::Result<PathBuf> {
    std::env::current_dir().map_err(|error| {
        error::usage(
            format!("the current directory cannot be used: {error}"),
            "it may have been removed: change to a directory that exists",
        )
    })
}

/// The home directory, if it is known.
pub fn home() -> Option<PathBuf> {
    std::env::home_dir().filter(|home| home.is_absolute())
}

/// The user's settings file. It may not exist.
pub fn user_file() -> Option<PathBuf> {
    let config_home = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
    user_settings_file(config_home.as_deref(), home().as_deref())
}

/// The directory of the user's logins at MCP servers. It may not exist.
pub fn logins_dir() -> Option<PathBuf> {
    Some(user_file()?.with_file_name("mcp-logins"))
}

/// The settings of project and user, and the warnings of their files.
pub fn settings_and_warnings() -> anyhow::Result<(Settings, Vec<Findings>)> {
    settings_with(Unsupported::Refused)
}

fn settings_with(unsupported: Unsupported) -> anyhow::Result<(Settings, Vec<Findings>)> {
    let user = user_file();
    Ok(fabro_config::settings_as(&cwd()?, user.as_deref(), home().as_deref(), unsupported)?)
}

/// The settings of project and user; warnings go to stderr.
pub fn settings() -> anyhow::Result<Settings> {
    settings_to_run(Unsupported::Refused)
}

/// The same for a run, in which the user may have chosen a sandbox.
pub fn settings_to_run(unsupported: Unsupported) -> anyhow::Result<Settings> {
    let (settings, warnings) = settings_with(unsupported)?;
    for warning in warnings {
        stderr(&format!("{warning}\n"));
    }
    Ok(settings)
}

/// Whether the terminal can neither color nor redraw.
fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// The run that a text means.
pub async fn find(store: &SqliteStore, text: &str) -> anyhow::Result<RunId> {
    match store.find(text).await {
        Err(StoreError::Ambiguous { candidates, .. }) => {
            Err(ambiguous(store, text, &candidates).await?)
        }
        Err(missing @ StoreError::NotFound { .. }) => match stage_of_latest(store, text).await {
            Some(stage) => Err(error::usage(
                missing.to_string(),
                format!("`{stage}` is a stage of the latest run: write `latest {stage}`"),
            )),
            None => Err(missing.into()),
        },
        found => Ok(found?),
    }
}

/// How many of several runs are listed.
const CANDIDATES: usize = 8;

async fn ambiguous(
    store: &SqliteStore,
    text: &str,
    candidates: &[RunId],
) -> anyhow::Result<anyhow::Error> {
    let mut message = format!("`{text}` is the beginning of {} runs:", candidates.len());
    let runs = store.list().await?;
    let listed = runs.iter().filter(|run| candidates.contains(&run.id)).take(CANDIDATES);
    for run in listed {
        let workflow = one_line(&run.workflow, 40);
        let started = timestamp(run.started_at_ms);
        let _ = write!(message, "\n  {}  {workflow}  {}  {started}", run.id, run.status);
    }
    if candidates.len() > CANDIDATES {
        message.push_str("\n  …");
    }
    Ok(error::usage(message, "write more of the id; `latest` is the run created last"))
}

/// The text, if it names a stage of the latest run.
async fn stage_of_latest(store: &SqliteStore, text: &str) -> Option<String> {
    let run = store.find("latest").await.ok()?;
    let events = read_all(store, run).await.ok()?;
    let name = StageName::parse(text);
    let is_stage = |event: &Event| name.is_of(&event.entry);
    events.iter().any(is_stage).then(|| text.to_owned())
}

impl Global {
    /// The store's directory. It may not exist.
    pub fn store_dir(&self) -> anyhow::Result<PathBuf> {
        let env = std::env::var_os("FABRO_STORE").map(PathBuf::from);
        let flag = self.store.clone().or(env.filter(|path| !path.as_os_str().is_empty()));
        if let Some(dir) = flag.as_ref().filter(|dir| dir.is_absolute()) {
            return Ok(dir.clone());
        }
        Ok(fabro_config::store_dir(&cwd()?, flag.as_deref(), None)?)
    }

    /// The store, for writing; created if it does not exist.
    pub fn store(&self) -> anyhow::Result<SqliteStore> {
        Ok(SqliteStore::open(&self.store_dir()?)?)
    }

    /// The store, read-only.
    pub fn store_to_read(&self) -> anyhow::Result<SqliteStore> {
        Ok(SqliteStore::open_read_only(&self.store_dir()?)?)
    }

    /// The store, for writing; an error if it does not exist.
    pub fn existing_store(&self) -> anyhow::Result<SqliteStore> {
        drop(self.store_to_read()?);
        self.store()
    }

    /// The existing store, for writing, and the run.
    pub async fn find_run(&self, text: &str) -> anyhow::Result<(SqliteStore, RunId)> {
        let store = self.existing_store()?;
        let run = find(&store, text).await?;
        Ok((store, run))
    }

    /// The same, with a warning to stderr when the last record was cut off: a change removes it.
    pub async fn run_to_change(&self, text: &str) -> anyhow::Result<(SqliteStore, RunId)> {
        let (store, run) = self.find_run(text).await?;
        self.warn(store.check(run).await?);
        Ok((store, run))
    }

    /// The store for reading, and the run; with a warning to stderr when the log is damaged.
    pub async fn run_to_read(&self, text: &str) -> anyhow::Result<(SqliteStore, RunId)> {
        let store = self.store_to_read()?;
        let run = find(&store, text).await?;
        self.warn(store.check_last_commit().err());
        self.warn(store.check(run).await?);
        Ok((store, run))
    }

    /// Prints warnings to stderr.
    pub fn warn(&self, warnings: impl IntoIterator<Item = impl std::fmt::Display>) {
        let word = self.paint_stderr().warning("warning:");
        for warning in warnings {
            let warning = warning.to_string();
            for line in format!("{word} {}", clean(&bounded(&warning))).lines() {
                stderr(&format!("{}\n", wrapped(line)));
            }
        }
    }

    /// How to color what goes to stdout.
    pub fn paint_stdout(&self) -> Paint {
        self.paint(io::stdout().is_terminal())
    }

    /// How to color what goes to stderr.
    pub fn paint_stderr(&self) -> Paint {
        self.paint(io::stderr().is_terminal())
    }

    /// True when stderr is a terminal that can redraw lines.
    pub fn is_live(&self) -> bool {
        io::stderr().is_terminal() && self.verbose == 0 && !is_dumb()
    }

    /// True when stdout is a terminal that can be cleared.
    pub fn can_redraw_stdout(&self) -> bool {
        io::stdout().is_terminal() && self.verbose == 0 && !is_dumb()
    }

    /// A `fabro` command for hints, with the store of this one.
    pub fn command(&self, rest: &str) -> String {
        match &self.store {
            Some(dir) => format!("fabro {rest} --store {}", clean(&quoted(dir))),
            None => format!("fabro {rest}"),
        }
    }

    fn paint(&self, terminal: bool) -> Paint {
        let unset = |name: &str| std::env::var_os(name).is_none_or(|value| value.is_empty());
        Paint::new(match self.color {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => terminal && unset("NO_COLOR") && !is_dumb(),
        })
    }
}

/// A path quoted for a shell.
pub fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_alphanumeric() || "/._-~+,:@=".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text;
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Runs a future to its end on this thread.
pub fn block_on<T>(future: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        let _children = signals::keep_child_status()?;
        future.await
    });
    // A prompt that still waits for a key must not hold the process.
    runtime.shutdown_background();
    result
}
