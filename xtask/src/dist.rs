//! `cargo xtask dist`: an archive for each target that can be built on this machine, with checksums.

use std::collections::BTreeMap;
use std::env;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use flate2::{Compression, GzBuilder};
use sha2::{Digest, Sha256};
use toml::Table;

use crate::{cargo, say};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only these targets; without it, all that can be built here
    #[arg(long, value_name = "TRIPLE")]
    target: Vec<String>,
    /// The folder for the archives
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Take this program for this machine's target, and build none
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Leave out the man pages, which take a build of the tests
    #[arg(long)]
    no_man: bool,
}

/// The targets of a release.
const TARGETS: [&str; 4] = [
    "x86_64-unknown-linux-gnu",
    "aarch64-unknown-linux-gnu",
    "x86_64-apple-darwin",
    "aarch64-apple-darwin",
];

/// Files of the repository that are in an archive.
const DOCUMENTS: [&str; 4] = ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"];

/// Shells, and the names under which they look for completions.
const COMPLETIONS: [(&str, &str); 3] =
    [("bash", "fabro.bash"), ("zsh", "_fabro"), ("fish", "fabro.fish")];

pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let host = host(root)?;
    let wanted: Vec<&str> = if args.target.is_empty() {
        TARGETS.to_vec()
    } else {
        args.target.iter().map(String::as_str).collect()
    };
    let out = args.out.clone().unwrap_or_else(|| cargo::target_dir(root).join("dist"));
    fs::create_dir_all(&out).with_context(|| format!("create {}", out.display()))?;
    let native = match &args.program {
        Some(program) => program.clone(),
        None => build(root, None)?,
    };
    let shared = shared(root, &native, args)?;
    let mut archives = Vec::new();
    for target in wanted {
        let program = if target == host {
            native.clone()
        } else {
            match linker(root, target)? {
                Ok(linker) => build(root, Some((target, linker)))?,
                Err(reason) if args.target.is_empty() => {
                    say(&format!("skipped {target}: {reason}"));
                    continue;
                }
                Err(reason) => bail!("{target}: {reason}"),
            }
        };
        let name = format!("fabro-{}-{target}", version(root)?);
        let path = out.join(format!("{name}.tar.gz"));
        let mut files = shared.clone();
        let content = fs::read(&program).with_context(|| format!("read {}", program.display()))?;
        files.insert("fabro".to_owned(), content);
        let file = File::create(&path).with_context(|| format!("create {}", path.display()))?;
        archive(file, &name, &files).with_context(|| format!("write {}", path.display()))?;
        say(&format!("wrote {}", path.display()));
        archives.push(path);
    }
    if archives.is_empty() {
        bail!("nothing could be built");
    }
    sums(&out, &archives)
}

/// What archives of all targets have.
fn shared(root: &Path, native: &Path, args: &Args) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    for name in DOCUMENTS {
        let content = fs::read(root.join(name)).with_context(|| format!("read {name}"))?;
        files.insert(name.to_owned(), content);
    }
    for (shell, name) in COMPLETIONS {
        files.insert(format!("completions/{name}"), completion(native, shell)?);
    }
    if !args.no_man {
        for (name, content) in man_pages(root)? {
            files.insert(format!("man/man1/{name}"), content);
        }
    }
    Ok(files)
}

/// The script of a shell. It calls the program as it was called itself: by its name, as its path is of this machine.
fn completion(program: &Path, shell: &str) -> Result<Vec<u8>> {
    let output = Command::new(program).arg0("fabro").args(["completion", shell]).output();
    let output = output.with_context(|| format!("start {}", program.display()))?;
    if !output.status.success() || output.stdout.is_empty() {
        bail!("`fabro completion {shell}` ended with {}", output.status);
    }
    let path = program.display().to_string();
    if String::from_utf8_lossy(&output.stdout).contains(&path) {
        bail!("the completions for {shell} call {path}, which other machines do not have");
    }
    Ok(output.stdout)
}

/// The pages that a test of the program writes: the definitions of its arguments are not reachable from outside, and the
/// program itself does without what writes them.
fn man_pages(root: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let dir = tempfile::tempdir().context("create a folder for the man pages")?;
    let path = dir.path().to_string_lossy().into_owned();
    let args = ["test", "--quiet", "--package", "fabro-cli", "--bin", "fabro", "man_pages"];
    cargo::run(root, &args, &[("FABRO_MAN_PAGES", &path)])?;
    let mut pages = BTreeMap::new();
    for entry in fs::read_dir(dir.path())? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        pages.insert(name, fs::read(&path)?);
    }
    if pages.is_empty() {
        bail!("no man page was written");
    }
    Ok(pages)
}

/// What links a program for another machine, and compiles its C code.
#[derive(Clone, Copy)]
enum Linker {
    /// What cargo finds by itself.
    Default,
    /// `aarch64-linux-gnu-gcc` and its like.
    Gcc,
    /// `cargo zigbuild`, which has the headers and libraries of every target.
    Zig,
}

/// What builds for a target here, or why nothing does.
fn linker(root: &Path, target: &str) -> Result<std::result::Result<Linker, String>> {
    let sysroot = rustc(root, &["--print", "sysroot"])?;
    let library = Path::new(sysroot.trim()).join("lib/rustlib").join(target).join("lib");
    if !library.is_dir() {
        return Ok(Err(format!(
            "its standard library is not installed: rustup target add {target}"
        )));
    }
    let runs = |program: &str| {
        let output = Command::new(program).arg("--version").output();
        output.is_ok_and(|output| output.status.success())
    };
    let gcc = gcc(target);
    Ok(if target.contains("apple") && cfg!(target_os = "macos") {
        Ok(Linker::Default)
    } else if target.contains("linux") && runs(&gcc) {
        Ok(Linker::Gcc)
    } else if target.contains("apple") && env::var_os("SDKROOT").is_none() {
        // Zig has no frameworks of Apple, such as the one with the certificates of the system.
        Err("it needs macOS, or cargo-zigbuild and an SDK of macOS that SDKROOT names".to_owned())
    } else if runs("cargo-zigbuild") {
        Ok(Linker::Zig)
    } else if target.contains("linux") {
        Err(format!("neither {gcc} nor cargo-zigbuild is installed"))
    } else {
        Err("cargo-zigbuild is not installed".to_owned())
    })
}

fn gcc(target: &str) -> String {
    format!("{}-gcc", target.replace("-unknown", ""))
}

fn build(root: &Path, other: Option<(&str, Linker)>) -> Result<PathBuf> {
    let mut args = vec!["build", "--release", "--locked", "--package", "fabro-cli"];
    let mut dir = cargo::target_dir(root);
    let mut env = Vec::new();
    if let Some((target, linker)) = other {
        args.extend(["--target", target]);
        dir = dir.join(target);
        match linker {
            Linker::Default => {}
            Linker::Gcc => {
                let variable = target.replace('-', "_").to_uppercase();
                env.push((format!("CARGO_TARGET_{variable}_LINKER"), gcc(target)));
            }
            Linker::Zig => args[0] = "zigbuild",
        }
    }
    let env: Vec<_> = env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    cargo::run(root, &args, &env)?;
    Ok(dir.join("release").join("fabro"))
}

fn host(root: &Path) -> Result<String> {
    let about = rustc(root, &["-vV"])?;
    let host = about.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc does not say for which machine it is")
}

fn rustc(root: &Path, args: &[&str]) -> Result<String> {
    let output = Command::new("rustc").args(args).current_dir(root).output();
    let output = output.context("start rustc")?;
    if !output.status.success() {
        bail!("`rustc {}` ended with {}", args.join(" "), output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The version of the workspace.
pub(crate) fn version(root: &Path) -> Result<String> {
    let manifest: Table = fs::read_to_string(root.join("Cargo.toml"))?.parse()?;
    let package = manifest.get("workspace").and_then(|it| it.get("package"));
    let version = package.and_then(|it| it.get("version")?.as_str());
    version.map(str::to_owned).context("Cargo.toml has no version")
}

/// Writes files below a folder of this name. The same files make the same archive: times and owners are zero.
fn archive(to: impl std::io::Write, folder: &str, files: &BTreeMap<String, Vec<u8>>) -> Result<()> {
    let gzip = GzBuilder::new().mtime(0).write(to, Compression::best());
    let mut tar = tar::Builder::new(gzip);
    for (name, content) in files {
        let mut header = tar::Header::new_ustar();
        header.set_mode(if name == "fabro" { 0o755 } else { 0o644 });
        header.set_size(content.len() as u64);
        header.set_mtime(0);
        header.set_uid(0);
        header.set_gid(0);
        tar.append_data(&mut header, format!("{folder}/{name}"), content.as_slice())?;
    }
    tar.into_inner()?.finish()?;
    Ok(())
}

/// `SHA256SUMS`, as `sha256sum --check` reads it.
fn sums(out: &Path, archives: &[PathBuf]) -> Result<()> {
    let mut text = String::new();
    for path in archives {
        let content = fs::read(path).with_context(|| format!("read {}", path.display()))?;
        let hash: Vec<_> =
            Sha256::digest(&content).iter().map(|byte| format!("{byte:02x}")).collect();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let _ = writeln!(text, "{}  {name}", hash.concat());
    }
    let path = out.join("SHA256SUMS");
    fs::write(&path, &text).with_context(|| format!("write {}", path.display()))?;
    say(text.trim_end());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn an_archive_has_the_files_and_is_the_same_twice() {
        let files = BTreeMap::from([
            ("fabro".to_owned(), b"program".to_vec()),
            ("completions/_fabro".to_owned(), b"#compdef".to_vec()),
        ]);
        let write = || {
            let mut bytes = Vec::new();
            archive(&mut bytes, "fabro-1.2.3", &files).unwrap();
            bytes
        };
        assert_eq!(write(), write());
        let bytes = write();
        let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(bytes.as_slice()));
        let entries = tar.entries().unwrap().map(|entry| {
            let entry = entry.unwrap();
            let path = entry.path().unwrap().display().to_string();
            (path, entry.header().mode().unwrap(), entry.header().size().unwrap())
        });
        assert_eq!(
            entries.collect::<Vec<_>>(),
            [
                ("fabro-1.2.3/completions/_fabro".to_owned(), 0o644, 8),
                ("fabro-1.2.3/fabro".to_owned(), 0o755, 7),
            ]
        );
    }

    #[test]
    fn completions_call_the_program_by_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("fabro");
        // A script sees its own path, also when it is called by another name.
        let check = |script: &str| {
            fs::write(&program, script).unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
            completion(&program, "bash").map(|text| String::from_utf8(text).unwrap())
        };
        assert_eq!(
            check("#!/bin/sh\necho complete fabro for $2\n").unwrap(),
            "complete fabro for bash\n"
        );
        let error = check("#!/bin/sh\necho \"complete $0\"\n").unwrap_err().to_string();
        assert!(error.ends_with("which other machines do not have"), "{error}");
        assert!(check("#!/bin/sh\nexit 3\n").is_err());
    }

    #[test]
    fn what_cannot_be_built_has_a_reason() {
        let root = crate::root();
        let Err(reason) = linker(&root, "riscv64gc-unknown-none-elf").unwrap() else {
            panic!("its standard library has no operating system");
        };
        assert!(reason.contains("rustup target add") || reason.contains("macOS"), "{reason}");
    }
}
