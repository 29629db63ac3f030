//! `cargo xtask http-api`: `schemathesis` sends requests made from docs/openapi.json to a real `fabro serve`, with the token of
//! each role. No response may be an error of the server, or one that is not described.

use std::env;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::{cargo, say};

const PROGRAM: &str = "schemathesis";

const ROLES: [&str; 3] = ["read", "answer", "admin"];

const WORKFLOW: &str = r#"digraph { start -> make; make [shape=parallelogram, script="echo made"]
    make -> ask; ask [shape=hexagon, label="Ship it?"]
    ask -> exit [label="[Y] Yes"]; ask -> make [label="[N] No"] }"#;

/// Options of `cargo xtask http-api`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Use this `fabro` instead of building one
    #[arg(long, value_name = "FILE")]
    fabro: Option<PathBuf>,

    /// Requests to each address in each phase
    #[arg(long, value_name = "N", default_value_t = 30)]
    examples: u32,

    /// The seed of the requests
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// Sends the requests. Where the program is not installed, that is said, and nothing is checked.
pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let Some(program) = installed() else {
        say("http-api: skipped, schemathesis is not installed (pip install schemathesis)");
        return Ok(());
    };
    let fabro = cargo::fabro(root, args.fabro.as_deref(), false)?;
    let project = project(&fabro)?;
    let server = Server::start(&fabro, project.path())?;
    for (role, token) in ROLES.iter().zip(&server.tokens) {
        say(&format!("requests with the role {role}"));
        let mut requests = Command::new(&program);
        requests
            .current_dir(project.path())
            .arg("run")
            .arg(root.join("docs/openapi.json"))
            .args(["--url", &format!("http://127.0.0.1:{}/api/v1", server.port)])
            .args(["--header", &format!("Authorization: Bearer {token}")])
            .args(["--max-examples", &args.examples.to_string()])
            .args(["--seed", &args.seed.to_string()])
            .args(["--request-timeout", "60", "--continue-on-failure"])
            // A request can be well formed and still name no run, several, or one in another state.
            .args(["--exclude-checks", "positive_data_acceptance"])
            // The run that all other requests are about would be gone.
            .args(["--exclude-operation-id", "removeRun"])
            .stdin(Stdio::null());
        let status = requests.status().context("start schemathesis")?;
        ensure!(status.success(), "schemathesis found failures with the role {role}");
    }
    Ok(())
}

fn installed() -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|dir| dir.join(PROGRAM)).find(|file| file.is_file())
}

/// A project with a run that waits for an answer and one that has ended.
fn project(fabro: &Path) -> Result<TempDir> {
    let dir = tempfile::tempdir()?;
    let workflows = dir.path().join(".fabro/workflows");
    fs::create_dir_all(&workflows)?;
    fs::write(workflows.join("gate.fabro"), WORKFLOW)?;
    for (more, code) in [("--auto-approve", 0), ("--quiet", 3)] {
        let mut run = Command::new(fabro);
        run.args(["run", "gate", more]).current_dir(dir.path()).stdin(Stdio::null());
        let output = run.output().context("start fabro")?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(code), "`fabro run` ended: {stderr}");
    }
    Ok(dir)
}

/// A server until it is dropped.
struct Server {
    child: Child,
    port: u16,
    /// In the order of [`ROLES`].
    tokens: Vec<String>,
}

impl Server {
    fn start(fabro: &Path, project: &Path) -> Result<Self> {
        let mut command = Command::new(fabro);
        command.args(["serve", "--port", "0"]).current_dir(project);
        for role in ROLES {
            command.args(["--role", role]);
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut server =
            Self { child: child.context("start fabro serve")?, port: 0, tokens: Vec::new() };
        let output = server.child.stdout.take().context("the output of fabro serve")?;
        for line in BufReader::new(output).lines().take(ROLES.len()) {
            let line = line?;
            let (address, token) = line.split_once("/#token=").context("an address")?;
            server.port = address.rsplit(':').next().unwrap_or_default().parse()?;
            server.tokens.push(token.to_owned());
        }
        ensure!(server.tokens.len() == ROLES.len(), "fabro serve printed too few addresses");
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
