//! `cargo xtask publish`: the crates in the order of their dependencies, as the registry would get them.

use std::path::Path;

use anyhow::{Result, bail};

use crate::cargo;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Package and build every crate from its package, and upload nothing
    #[arg(long)]
    dry_run: bool,
    /// With --dry-run: package the crates, but do not build them
    #[arg(long, requires = "dry_run")]
    no_verify: bool,
    /// Also with changes that are not committed
    #[arg(long)]
    allow_dirty: bool,
}

impl Args {
    /// What is in the work tree, without a build.
    pub(crate) fn without_build() -> Self {
        Self { dry_run: true, no_verify: true, allow_dirty: true }
    }
}

/// Cargo sorts the crates by their dependencies, leaves out those with `publish = false`, and builds each against the packages of the
/// others, which need not be in a registry.
pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    if !args.dry_run {
        bail!(
            "only --dry-run is done here; `cargo publish --workspace` uploads, with a token of the registry"
        );
    }
    let mut command = vec!["publish", "--workspace", "--dry-run", "--locked"];
    command.extend(args.no_verify.then_some("--no-verify"));
    command.extend(args.allow_dirty.then_some("--allow-dirty"));
    cargo::run(root, &command, &[])
}

#[cfg(test)]
mod tests {
    use std::fs;

    use toml::{Table, Value};

    #[test]
    fn the_minimum_version_of_rust_is_the_one_that_tests_everything() {
        let root = crate::root();
        let read =
            |name: &str| fs::read_to_string(root.join(name)).unwrap().parse::<Table>().unwrap();
        let minimum = read("Cargo.toml")["workspace"]["package"]["rust-version"].clone();
        let channel = read("rust-toolchain.toml")["toolchain"]["channel"].clone();
        let minimum = text(&minimum);
        let channel = text(&channel);
        assert!(
            channel == minimum || channel.starts_with(&format!("{minimum}.")),
            "{minimum} {channel}"
        );
        let stability = fs::read_to_string(root.join("docs/stability.md")).unwrap();
        assert!(
            stability.contains(&format!("Rust {minimum}")),
            "docs/stability.md names another version"
        );
    }

    fn text(value: &Value) -> String {
        value.as_str().unwrap().to_owned()
    }
}
