//! `cargo xtask fuzz`: feeds every parser with inputs that grow from a corpus, guided by what they
//! reach, with a limit of time and memory for each input. It needs a C++ compiler and no nightly
//! toolchain: the coverage is LLVM's, by flags that the stable compiler takes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::{cargo, complain, say};

/// Counters and comparisons for libFuzzer, in what is built for the target only: build scripts must not
/// have them.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How long, for all targets together
    #[arg(long, value_name = "N", default_value_t = 10)]
    minutes: u64,
    /// Only these targets: the names in `xtask/fuzz/fuzz_targets`
    targets: Vec<String>,
    /// The longest time for one input, in seconds
    #[arg(long, value_name = "S", default_value_t = 5)]
    timeout: u64,
    /// The most memory, in MB
    #[arg(long, value_name = "MB", default_value_t = 1024)]
    memory: u64,
}

pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let folder = root.join("xtask").join("fuzz");
    let all = targets(&folder)?;
    let unknown = args.targets.iter().find(|it| !all.contains(it));
    if let Some(unknown) = unknown {
        bail!("there is no target `{unknown}`; the targets are {}", all.join(", "));
    }
    let chosen = if args.targets.is_empty() { all } else { args.targets.clone() };
    let programs = build(root, &folder, &chosen)?;
    let seconds = (args.minutes * 60 / chosen.len().max(1) as u64).max(1);
    let found = cargo::target_dir(root).join("fuzz").join("found");
    fs::create_dir_all(&found).context("make a folder for what is found")?;
    let mut failed = Vec::new();
    for name in &chosen {
        say(&format!("\n== {name}, {seconds} s"));
        let target = Target {
            program: programs.join(name),
            corpus: folder.join("corpus").join(name),
            found: found.join(name),
        };
        if let Err(error) = target.fuzz(args, seconds) {
            complain(&format!("{name}: {error:#}"));
            failed.push(name.as_str());
        }
    }
    ensure!(
        failed.is_empty(),
        "inputs that fail are in {}: {}",
        found.display(),
        failed.join(", ")
    );
    say(&format!("fuzz: {} targets, nothing found", chosen.len()));
    Ok(())
}

/// The names of the programs, sorted.
fn targets(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder.join("fuzz_targets")).context("list the targets")? {
        let path = entry.context("list the targets")?.path();
        names.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
    }
    names.sort_unstable();
    Ok(names)
}

/// Builds the programs, and returns their folder.
fn build(root: &Path, folder: &Path, names: &[String]) -> Result<PathBuf> {
    // The versions that the workspace has.
    fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock")).context("copy Cargo.lock")?;
    let output = Command::new("rustc").arg("-vV").current_dir(root).output();
    let about = String::from_utf8(output.context("ask rustc for its host")?.stdout)?;
    let host = about.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.context("rustc does not name its host")?;
    let target_dir = cargo::target_dir(root).join("fuzz");
    let manifest = folder.join("Cargo.toml").display().to_string();
    let mut args =
        vec!["build", "--profile", "fuzz", "--target", host, "--manifest-path", &manifest];
    args.extend(names.iter().flat_map(|name| ["--bin", name]));
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    let flags = format!("{flags} {FLAGS}");
    let dir = target_dir.display().to_string();
    cargo::run(root, &args, &[("RUSTFLAGS", flags.trim()), ("CARGO_TARGET_DIR", &dir)])?;
    Ok(target_dir.join(host).join("fuzz"))
}

struct Target {
    program: PathBuf,
    /// In the repository: small inputs that together reach all that was reached so far.
    corpus: PathBuf,
    /// Inputs that fail.
    found: PathBuf,
}

impl Target {
    /// Fuzzes for some time, and adds to the corpus what reaches more than it.
    fn fuzz(&self, args: &Args, seconds: u64) -> Result<()> {
        fs::create_dir_all(&self.corpus).context("make the corpus")?;
        fs::create_dir_all(&self.found).context("make a folder for what is found")?;
        let work = tempfile::tempdir().context("make a temporary folder")?;
        let time = format!("-max_total_time={seconds}");
        self.start(args, &[&time], &[work.path(), &self.corpus])?;
        self.start(args, &["-merge=1"], &[&self.corpus, work.path()])
    }

    fn start(&self, args: &Args, options: &[&str], folders: &[&Path]) -> Result<()> {
        let mut command = Command::new(&self.program);
        command
            .args(options)
            .arg(format!("-timeout={}", args.timeout))
            .arg(format!("-rss_limit_mb={}", args.memory))
            .arg("-max_len=4096")
            .arg("-verbosity=0")
            .arg("-print_final_stats=1")
            .arg(format!("-artifact_prefix={}/", self.found.display()))
            .args(folders)
            .stdin(Stdio::null());
        let status =
            command.status().with_context(|| format!("start {}", self.program.display()))?;
        ensure!(status.success(), "it ended with {status}");
        Ok(())
    }
}
