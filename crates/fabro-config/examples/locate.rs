//! Says what a workflow's name, file or run.toml stands for:
//! `cargo run -p fabro-config --example locate -- NAME`. Without an argument it makes a project in a
//! temporary folder and looks there.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

use fabro_config::{locate, store_dir};

fn main() -> Result<(), Box<dyn Error>> {
    let home = env::home_dir();
    if let Some(name) = env::args().nth(1) {
        return show(&name, &env::current_dir()?, home.as_deref());
    }
    let dir = env::temp_dir().join(format!("fabro-config-example-{}", std::process::id()));
    let shown = make_project(&dir).and_then(|()| show("greet", &dir, home.as_deref()));
    fs::remove_dir_all(&dir)?;
    shown
}

fn make_project(dir: &Path) -> Result<(), Box<dyn Error>> {
    let workflow: PathBuf = dir.join(".fabro/workflows/greet");
    fs::create_dir_all(&workflow)?;
    fs::write(workflow.join("workflow.fabro"), "digraph greet { start -> exit }\n")?;
    let run_file =
        "_version = 1\n[run]\ngoal = \"Say hello\"\n[run.artifacts]\ninclude = [\"out/**\"]\n";
    fs::write(workflow.join("workflow.toml"), run_file)?;
    Ok(())
}

#[expect(clippy::print_stdout, reason = "an example shows its result")]
fn show(arg: &str, cwd: &Path, home: Option<&Path>) -> Result<(), Box<dyn Error>> {
    let target = locate(arg, cwd, home)?;
    println!("workflow  {}", target.workflow_file.display());
    if let Some(run_file) = &target.run_file {
        println!("settings  {}", run_file.path.display());
        println!("goal      {}", run_file.goal(home)?.unwrap_or_default());
        println!("artifacts {}", run_file.config.artifacts.include.join(", "));
    }
    println!("recorded  {}", store_dir(cwd, None, None)?.display());
    Ok(())
}
