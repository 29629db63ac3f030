//! Preparation steps: scripts that run before the first stage.

use std::path::{Path, PathBuf};

use crate::RunSettings;
use fabro_handlers::{WORKFLOW_DIR_VARIABLE, last_line};
use fabro_redact::Redactor;
use fabro_sandbox::{Environment, Exec, ExecError, Exit, Keep, Language, Request, is_exhausted};
use fabro_types::{Failure, FailureClass, RunId};
use tokio_util::sync::CancellationToken;

use crate::run_id::RUN_ID_VARIABLE;

/// Why a run cannot start.
#[derive(Debug)]
pub(crate) enum PrepareError {
    /// A step failed; the run fails with it.
    Failed(Failure),
    /// The output of a step cannot be written; the run can be resumed when that is fixed.
    CannotRecord {
        /// What happened, with a fix.
        message: String,
    },
    /// It was interrupted.
    Interrupted,
}

/// The directory of the steps' logs. It exists once a step has started.
pub(crate) fn prepare_dir(run_dir: &Path) -> PathBuf {
    run_dir.join("prepare")
}

/// The directories of a run.
pub(crate) struct RunDirs<'a> {
    /// Its own, where the logs of the steps are.
    pub(crate) run: &'a Path,
    /// Where its scripts run.
    pub(crate) work: &'a Path,
    /// The folder of its workflow file; empty when that is not known.
    pub(crate) workflow: &'a str,
}

/// Runs the preparation steps of a run, in order, in its working directory. The logs of step N are
/// in `prepare/N` of the run's directory. A failure ends the preparation.
pub(crate) async fn prepare(
    exec: &dyn Exec,
    settings: &RunSettings,
    run_id: RunId,
    dirs: RunDirs<'_>,
    redactor: &Redactor,
    stop: &CancellationToken,
) -> Result<(), PrepareError> {
    let own = settings.env.iter().map(|(name, value)| (name.clone(), value.clone()));
    let mut env: Vec<(String, String)> = own.collect();
    env.push((RUN_ID_VARIABLE.to_owned(), run_id.to_string()));
    env.push(("FABRO_RUN_DIR".to_owned(), dirs.run.to_string_lossy().into_owned()));
    if !dirs.workflow.is_empty() {
        env.push((WORKFLOW_DIR_VARIABLE.to_owned(), dirs.workflow.to_owned()));
    }
    for (index, script) in settings.prepare.iter().enumerate() {
        let dir = prepare_dir(dirs.run).join((index + 1).to_string());
        let request = Request {
            script,
            language: Language::Shell,
            cwd: dirs.work,
            env: Environment::Inherit(&env),
            reads: &[],
            script_reads: &[],
            source: "",
            stdin: None,
            keep_unredacted: false,
            keep: Keep::Logs { stdout: dir.join("stdout.log"), stderr: dir.join("stderr.log") },
            redactor: Some(redactor),
            cancel: stop.clone(),
        };
        let failed = |why: String| {
            let message = format!("prepare step {} failed: {why}", index + 1);
            PrepareError::Failed(Failure::new(FailureClass::Deterministic, message))
        };
        let ended = exec.run(request).await.map_err(|error| match error {
            error if is_exhausted(&error) => {
                PrepareError::CannotRecord { message: format!("{error}; resume the run later") }
            }
            ExecError::Log { .. } => PrepareError::CannotRecord { message: error.to_string() },
            error => failed(error.to_string()),
        })?;
        match ended.exit {
            Exit::Code(0) => {}
            Exit::Code(code) => {
                let line = last_line(&ended.stderr).or_else(|| last_line(&ended.stdout));
                let quote = line.map(|line| format!(": {line}")).unwrap_or_default();
                return Err(failed(format!("exit code {code}{quote}; see {}", dir.display())));
            }
            Exit::Signal(signal) => return Err(failed(format!("killed by signal {signal}"))),
            Exit::Canceled => return Err(PrepareError::Interrupted),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use fabro_redact::Redactor;
    use fabro_sandbox::FakeExec;

    use super::*;

    #[tokio::test]
    async fn a_failed_step_ends_the_preparation() {
        let exec =
            FakeExec::new().with("a", Exit::Code(0), "").with("b", Exit::Code(3), "no pip\n");
        let steps = ["a", "b", "c"].map(str::to_owned);
        let settings = RunSettings { prepare: steps.into(), ..RunSettings::default() };
        let dir = tempfile::tempdir().unwrap();
        let stop = CancellationToken::new();
        let run_id = RunId::from_parts(0, 1);
        let dirs = RunDirs { run: dir.path(), work: dir.path(), workflow: "" };
        let ended = prepare(&exec, &settings, run_id, dirs, &Redactor::default(), &stop).await;
        let Err(PrepareError::Failed(Failure { message, .. })) = ended else { panic!("{ended:?}") };
        assert!(
            message.starts_with("prepare step 2 failed: exit code 3: no pip; see "),
            "{message}"
        );
        assert_eq!(exec.ran(), ["a", "b"]);
    }
}
