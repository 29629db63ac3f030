//! Against programs that speak as the real ones do.
#![cfg(test)]

#[cfg(feature = "acp")]
mod acp;
mod cli;
mod ends;

use std::fmt::Write;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use fabro_external_agents::{Backend, BackendError, Done, Progress, Task};
use fabro_types::{Failure, Usage};

/// A working directory, and beside it one for logs.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        std::fs::create_dir(place.work()).unwrap();
        place
    }

    fn work(&self) -> std::path::PathBuf {
        self.0.path().canonicalize().unwrap().join("work")
    }

    fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.path().join("logs").join(name)).unwrap_or_default()
    }

    /// Runs a task, changed by `set`, and shows the result.
    async fn run(
        &self,
        backend: &dyn Backend,
        prompt: &str,
        set: impl FnOnce(&mut Task<'_>),
    ) -> String {
        let events = Mutex::new(String::new());
        let used = Mutex::new(Vec::new());
        let on_event = |progress: Progress| match progress {
            Progress::Text(text) => writeln!(events.lock().unwrap(), "says {text}").unwrap(),
            Progress::Tool { name } => writeln!(events.lock().unwrap(), "uses {name}").unwrap(),
            Progress::Usage(usage) => *used.lock().unwrap() = usage,
            _ => {}
        };
        let env = [("PATH".to_owned(), std::env::var("PATH").unwrap())];
        let work = self.work();
        let logs = self.0.path().join("logs");
        let mut task =
            Task { on_event: &on_event, ..Task::new(prompt, &work, &logs).with_env(&env) };
        set(&mut task);
        // More than any of them takes; what hangs shall not hang the tests.
        let done = tokio::time::timeout(Duration::from_mins(1), backend.run(task)).await.unwrap();
        let used = used.into_inner().unwrap();
        if let Ok(done) = &done {
            assert_eq!(done.usage, used, "what was reported last");
        }
        let shown = show(done) + &show_usage(&used);
        let directory = self.0.path().canonicalize().unwrap();
        format!("{}{shown}", events.into_inner().unwrap())
            .replace(directory.to_str().unwrap(), "DIR")
    }
}

fn show(done: Result<Done, BackendError>) -> String {
    let done = match done {
        Ok(done) => done,
        Err(error) => {
            let failure = Failure::from(error);
            let pauses = if failure.unavailable.is_some() { ", unavailable" } else { "" };
            let class = failure.class.as_str();
            return format!("error: {} ({class}{pauses})", failure.message);
        }
    };
    let mut shown = vec![format!("answer: {}", done.text)];
    shown.extend(done.session_id.map(|id| format!("session: {id}")));
    shown.extend(done.warnings.iter().map(|warning| format!("warning: {warning}")));
    shown.join("\n")
}

fn show_usage(usage: &[Usage]) -> String {
    let line = |it: &Usage| {
        format!(
            "\nusage: {:?} in {} out {} cached {} ${} in {} turns",
            it.model, it.input_tokens, it.output_tokens, it.cached_tokens, it.cost_usd, it.turns
        )
    };
    usage.iter().map(line).collect()
}

/// Waits until a process is gone.
async fn gone(pid: &str) {
    let begun = Instant::now();
    let stat = Path::new("/proc").join(pid).join("stat");
    let runs = || {
        let stat = std::fs::read_to_string(&stat).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
    };
    while runs() {
        assert!(begun.elapsed() < Duration::from_secs(10), "{pid} runs on");
        tokio::task::yield_now().await;
    }
}
