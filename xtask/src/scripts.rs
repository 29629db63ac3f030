//! The scripts of pages and reports, checked by TypeScript's compiler.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The options of the compiler: nothing is written, types in comments are checked strictly.
const OPTIONS: &[&str] = &[
    "--noEmit",
    "--allowJs",
    "--checkJs",
    "--strict",
    "--target",
    "es2022",
    "--module",
    "es2022",
    "--moduleResolution",
    "node",
    "--lib",
    "es2022,dom,dom.iterable",
];

/// Whether `tsc` is there.
pub(crate) fn has_compiler() -> bool {
    let mut command = Command::new("tsc");
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Checks the modules as a browser gets them: side by side, and the report's after the list's in one file.
pub(crate) fn check(root: &Path) -> Result<()> {
    let [server, page] =
        ["fabro-server", "fabro-page"].map(|name| root.join("crates").join(name).join("assets"));
    let read =
        |path: &Path| fs::read_to_string(path).with_context(|| format!("read {}", path.display()));
    let list = read(&page.join("list.js"))?;
    let report = list.clone() + &read(&page.join("report.js"))?;
    let files = [
        ("page.js", read(&server.join("page.js"))?),
        ("login.js", read(&server.join("login.js"))?),
        ("list.js", list),
        ("report.js", report),
    ];
    let dir = tempfile::tempdir().context("make a directory")?;
    for (name, text) in &files {
        fs::write(dir.path().join(name), text).with_context(|| format!("write {name}"))?;
    }
    let names = files.iter().map(|(name, _)| name);
    let output = Command::new("tsc").args(OPTIONS).args(names).current_dir(dir.path()).output();
    let output = output.context("start tsc")?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stdout).trim());
    }
    Ok(())
}
