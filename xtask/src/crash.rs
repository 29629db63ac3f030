//! `cargo xtask crash`: kills the drivers of runs with `fabro-crash`, which has the arguments.

use std::path::Path;

use anyhow::Result;

use crate::cargo;

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// Arguments of `fabro-crash`: `--help` names them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

impl Args {
    pub(crate) fn new(rest: &[&str]) -> Self {
        Self { rest: rest.iter().map(|&argument| argument.to_owned()).collect() }
    }
}

pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let rest = args.rest.iter().map(String::as_str);
    let has_program = rest.clone().any(|it| it == "--fabro" || it.starts_with("--fabro="));
    let is_question = rest.clone().any(|it| ["--help", "-h"].contains(&it));
    let mut all = vec!["run", "--quiet", "--package", "fabro-crash", "--"];
    let built;
    if !has_program && !is_question {
        built = cargo::fabro(root, None, false)?.display().to_string();
        all.extend(["--fabro", &built]);
    }
    all.extend(rest);
    cargo::run(root, &all, &[])
}
