//! `fabro init`.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::PathBuf;

use fabro_types::clean;

use crate::error;
use crate::exit::Exit;
use crate::global::quoted;
use crate::output;

/// Create a project with a workflow that is ready to run
#[derive(clap::Args, Clone, Debug)]
pub struct InitArgs {
    /// The project's directory
    #[arg(default_value = ".")]
    pub dir: PathBuf,
}

const FILES: [(&str, &str); 3] = [
    ("workflow.fabro", include_str!("init/workflow.fabro")),
    ("workflow.toml", include_str!("init/workflow.toml")),
    ("model.json", include_str!("init/model.json")),
];

/// Creates a project with a first workflow. Existing files are never changed.
pub fn init(args: &InitArgs) -> anyhow::Result<Exit> {
    let dir = args
        .dir
        .strip_prefix(".")
        .unwrap_or(&args.dir)
        .join(".fabro")
        .join("workflows")
        .join("hello");
    if let Some((name, _)) =
        FILES.iter().find(|(name, _)| dir.join(name).symlink_metadata().is_ok())
    {
        return Err(error::usage(
            format!("{} exists already", dir.join(name).display()),
            "nothing was changed; run it with `fabro run hello`, or choose another directory",
        ));
    }
    let cannot = |error: io::Error| {
        let what = format!("{} cannot be created", dir.display());
        error::unwritable(&what, &error, "choose another directory")
    };
    fs::create_dir_all(&dir).map_err(cannot)?;
    let mut text = String::new();
    for (name, content) in FILES {
        let path = dir.join(name);
        let mut file =
            OpenOptions::new().write(true).create_new(true).open(&path).map_err(cannot)?;
        file.write_all(content.as_bytes()).map_err(cannot)?;
        let _ = writeln!(text, "{}", clean(&path.to_string_lossy()));
    }
    let there = match args.dir.strip_prefix(".") {
        Ok(dir) if dir.as_os_str().is_empty() => String::new(),
        _ => format!("cd {} && ", clean(&quoted(&args.dir))),
    };
    let _ = writeln!(text, "\nrun it with: {there}fabro run hello");
    output::text(&text)?;
    Ok(Exit::SUCCEEDED)
}
