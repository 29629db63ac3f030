use std::path::Path;
use std::process::Stdio;

use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};

use crate::group::Group;
use crate::guard::ControlGuard;
use crate::local::{command, exit, guard, start_error};
use crate::sandbox::variables;
use crate::{Environment, ExecError, Exit, Sandbox};

/// A program to talk to while it runs.
#[derive(Clone, Copy, Debug)]
pub struct Program<'a> {
    /// Its path, or a name that is looked for on the `PATH` of `env`. A relative path starts at
    /// `cwd`.
    pub program: &'a str,
    /// What it is started with.
    pub args: &'a [String],
    /// The directory it starts in.
    pub cwd: &'a Path,
    /// Its whole environment: nothing is inherited. A later variable of the same name wins.
    pub env: &'a [(String, String)],
    /// What confines it.
    pub sandbox: Option<&'a Sandbox>,
}

/// A program that was started, the leader of a process group of its own. Dropping it kills the
/// group.
#[derive(Debug)]
pub struct Process {
    child: Child,
    group: Group,
    name: String,
    /// Dropped after the group.
    guard: Option<ControlGuard>,
}

/// The three pipes to a [`Process`].
#[derive(Debug)]
pub struct Pipes {
    /// What the program reads.
    pub stdin: ChildStdin,
    /// What it prints.
    pub stdout: ChildStdout,
    /// What it writes to stderr. It has to be read, because a full pipe stops the program.
    pub stderr: ChildStderr,
}

impl Process {
    /// Starts a program. Needs a tokio runtime with its I/O driver.
    ///
    /// # Errors
    ///
    /// The program or its directory is not there, or the system refuses to start it.
    #[expect(clippy::expect_used, clippy::missing_panics_doc, reason = "the pipes were asked for")]
    pub fn start(program: &Program<'_>) -> Result<(Self, Pipes), ExecError> {
        let path = Path::new(program.program);
        let failed = |source| start_error(path, program.cwd, source);
        let own = program.sandbox.map(|_| variables(Environment::Only(program.env)));
        let env = own.as_deref().unwrap_or(program.env);
        let guard = guard(program.sandbox, program.cwd)?;
        let mut command = command(path, program.cwd, program.sandbox, &[], None, guard.as_ref())
            .map_err(failed)?;
        command
            .args(program.args)
            .env_clear()
            .envs(env.iter().map(|(key, value)| (key, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let trusted = program.sandbox.is_some();
        let (mut child, group) =
            Group::start(&mut command, program.env, trusted).map_err(failed)?;
        let pipes = Pipes {
            stdin: child.stdin.take().expect("stdin is piped"),
            stdout: child.stdout.take().expect("stdout is piped"),
            stderr: child.stderr.take().expect("stderr is piped"),
        };
        Ok((Self { child, group, name: program.program.to_owned(), guard }, pipes))
    }

    /// Waits until the program exits, then ends what it left in its group: a moment to finish,
    /// SIGTERM, two seconds, SIGKILL.
    ///
    /// # Errors
    ///
    /// The system does not let the process be watched; the group is ended nevertheless.
    pub async fn wait(&mut self) -> Result<Exit, ExecError> {
        let status = self.child.wait().await;
        self.group.end_rest().await;
        let watch = |source| ExecError::Watch { program: self.name.clone(), source };
        status.map(exit).map_err(watch)
    }

    /// Ends the program and its group: SIGTERM, two seconds, SIGKILL.
    pub async fn end(&mut self) {
        self.group.end(&mut self.child).await;
    }

    /// After the end of a program in a sandbox, renames new files that later runs would obey. Returns a line for each of
    /// them.
    ///
    /// # Errors
    ///
    /// [`ExecError::Unguarded`].
    pub fn check(&mut self) -> Result<String, ExecError> {
        self.guard.take().map_or(Ok(String::new()), |guard| guard.finish().result())
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn start(script: &str, env: &[(String, String)]) -> (Process, Pipes) {
        let args = ["-c".to_owned(), script.to_owned()];
        let program =
            Program { program: "sh", args: &args, cwd: Path::new("/"), env, sandbox: None };
        Process::start(&program).unwrap()
    }

    #[tokio::test]
    async fn what_is_written_is_read_and_nothing_is_inherited() {
        let env =
            [("A".to_owned(), "1".to_owned()), ("PATH".to_owned(), "/bin:/usr/bin".to_owned())];
        let (mut process, mut pipes) = start("echo $A$CARGO; cat; echo bad >&2; exit 3", &env);
        pipes.stdin.write_all(b"told").await.unwrap();
        drop(pipes.stdin);
        let mut out = String::new();
        let mut err = String::new();
        pipes.stdout.read_to_string(&mut out).await.unwrap();
        pipes.stderr.read_to_string(&mut err).await.unwrap();
        assert_eq!((out.as_str(), err.as_str()), ("1\ntold", "bad\n"));
        assert_eq!(process.wait().await.unwrap(), Exit::Code(3));
    }

    #[tokio::test]
    async fn the_whole_group_is_ended() {
        for dropped in [false, true] {
            let (mut process, mut pipes) = start("sleep 600 & sleep 600 & echo up; wait", &[]);
            let mut up = [0; 3];
            pipes.stdout.read_exact(&mut up).await.unwrap();
            if dropped {
                drop(process);
            } else {
                process.end().await;
            }
            // The pipe ends with the last process that holds it.
            let mut rest = Vec::new();
            pipes.stdout.read_to_end(&mut rest).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_missing_program_is_named() {
        let program = Program {
            program: "no-such-program",
            args: &[],
            cwd: Path::new("/"),
            env: &[],
            sandbox: None,
        };
        let error = Process::start(&program).unwrap_err();
        insta::assert_snapshot!(error, @"no-such-program not found: install no-such-program, or put it on the PATH");
    }
}
