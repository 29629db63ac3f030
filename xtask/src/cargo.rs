//! Cargo, and the programs it builds.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::say;

/// The cargo that runs us, which has put variables about this package into our environment.
pub(crate) fn command(root: &Path) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let about_us = env::vars_os().map(|(name, _)| name).filter(|name| {
        let name = name.to_string_lossy();
        name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
    });
    about_us.for_each(|name| {
        command.env_remove(name);
    });
    command.current_dir(root).stdin(Stdio::null());
    command
}

/// Runs cargo in the root, its output going where ours goes.
pub(crate) fn run(root: &Path, args: &[&str], env: &[(&str, &str)]) -> Result<()> {
    say(&format!("$ cargo {}", args.join(" ")));
    let status = command(root).args(args).envs(env.iter().copied()).status();
    let status = status.context("start cargo")?;
    if !status.success() {
        bail!("`cargo {}` ended with {status}", args.join(" "));
    }
    Ok(())
}

/// Where cargo puts what it builds.
pub(crate) fn target_dir(root: &Path) -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir))
}

/// The `fabro` to use: the one given, else one that is built now.
pub(crate) fn fabro(root: &Path, given: Option<&Path>, release: bool) -> Result<PathBuf> {
    let path = match given {
        Some(path) => path.to_owned(),
        None => build(root, release)?,
    };
    path.canonicalize().with_context(|| format!("find {}", path.display()))
}

fn build(root: &Path, release: bool) -> Result<PathBuf> {
    let mut args = vec!["build", "--quiet", "--package", "fabro-cli"];
    args.extend(release.then_some("--release"));
    run(root, &args, &[])?;
    Ok(target_dir(root).join(if release { "release" } else { "debug" }).join("fabro"))
}
