//! `cargo xtask fuzz`: feeds every parser with inputs that grow from a corpus, guided by what they
//! reach, with a limit of time and memory for each input. It needs a C++ compiler and no nightly
//! toolchain: the coverage is LLVM's, by flags that the stable compiler takes.

use std::fs;
use std::io::ErrorKind;
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
            corpus: folder.join("corpus").join(format!("{name}.jsonl")),
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
    /// In the repository: small inputs that together reach all that was reached so far, one a line.
    corpus: PathBuf,
    /// Inputs that fail.
    found: PathBuf,
}

impl Target {
    /// Fuzzes for some time, and adds to the corpus what reaches more than it.
    fn fuzz(&self, args: &Args, seconds: u64) -> Result<()> {
        fs::create_dir_all(&self.found).context("make a folder for what is found")?;
        let folders = tempfile::tempdir().context("make a temporary folder")?;
        let [known, new, merged] = ["known", "new", "merged"].map(|name| folders.path().join(name));
        for folder in [&known, &new, &merged] {
            fs::create_dir(folder).context("make a temporary folder")?;
        }
        unpack(&self.corpus, &known)?;
        let time = format!("-max_total_time={seconds}");
        self.start(args, &[&time], &[&new, &known])?;
        self.start(args, &["-merge=1"], &[&merged, &known, &new])?;
        pack(&merged, &self.corpus)
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

/// Writes each line of a corpus into a file of its own.
fn unpack(corpus: &Path, folder: &Path) -> Result<()> {
    let text = match fs::read_to_string(corpus) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        text => text.with_context(|| format!("read {}", corpus.display()))?,
    };
    for (number, line) in text.lines().enumerate() {
        let input: Input = serde_json::from_str(line)
            .with_context(|| format!("{}:{}", corpus.display(), number + 1))?;
        let bytes = match input {
            Input::Text(text) => text.into_bytes(),
            Input::Bytes(bytes) => bytes,
        };
        fs::write(folder.join(number.to_string()), bytes).context("write an input")?;
    }
    Ok(())
}

/// Writes the files of a folder as lines of a corpus, the shortest first.
fn pack(folder: &Path, corpus: &Path) -> Result<()> {
    let mut inputs = Vec::new();
    for entry in fs::read_dir(folder).context("list the inputs")? {
        let path = entry.context("list the inputs")?.path();
        inputs.push(fs::read(&path).context("read an input")?);
    }
    inputs.sort_unstable_by(|a, b| a.len().cmp(&b.len()).then_with(|| a.cmp(b)));
    let mut text = String::new();
    for bytes in inputs {
        let input = String::from_utf8(bytes)
            .map_or_else(|error| Input::Bytes(error.into_bytes()), Input::Text);
        text.push_str(&serde_json::to_string(&input).context("write an input")?);
        text.push('\n');
    }
    corpus.parent().map_or(Ok(()), fs::create_dir_all).context("make the corpus")?;
    fs::write(corpus, text).with_context(|| format!("write {}", corpus.display()))
}

/// An input in a corpus: its text, where it is one.
#[derive(serde::Deserialize, serde::Serialize)]
#[serde(untagged)]
enum Input {
    Text(String),
    Bytes(Vec<u8>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_corpus_is_packed_and_unpacked() {
        let dir = tempfile::tempdir().unwrap();
        let [first, second] = ["first", "second"].map(|name| dir.path().join(name));
        fs::create_dir(&first).unwrap();
        fs::create_dir(&second).unwrap();
        let inputs: [&[u8]; 4] = [b"", b"a\n\"", "é\0".as_bytes(), b"\xff\x00long"];
        for (number, input) in inputs.iter().enumerate() {
            fs::write(first.join(format!("{number}")), input).unwrap();
        }
        let corpus = dir.path().join("corpus").join("graph.jsonl");
        unpack(&corpus, &second).unwrap();
        pack(&first, &corpus).unwrap();
        insta::assert_snapshot!(fs::read_to_string(&corpus).unwrap(), @r#"
        ""
        "a\n\""
        "é\u0000"
        [255,0,108,111,110,103]
        "#);
        unpack(&corpus, &second).unwrap();
        for (number, input) in inputs.iter().enumerate() {
            assert_eq!(fs::read(second.join(format!("{number}"))).unwrap(), *input);
        }
    }
}
