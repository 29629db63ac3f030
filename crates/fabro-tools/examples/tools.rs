//! The tools of an agent on a temporary directory: `cargo run -p fabro-tools --example tools`.
//!
//! Arguments, if any, are a tool and its arguments as JSON:
//! `cargo run -p fabro-tools --example tools -- grep '{"pattern": "hello"}'`.

use std::sync::Arc;

use fabro_redact::Redactor;
use fabro_sandbox::{Files, LocalExec, LocalFiles, agent_env};
use fabro_tools::{Shell, ToolContext, ToolSet, file_tools};
use fabro_types::Permissions;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stdout, reason = "an example shows what it got")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let place = tempfile::tempdir()?;
    let files = Arc::new(LocalFiles::new(place.path())?);
    files.write("src/main.rs", b"fn main() {\n    println!(\"hello\");\n}\n")?;
    files.write(".gitignore", b"target/\n")?;

    let redactor = Redactor::new([("TOKEN", "correct horse battery")]);
    let shell = Shell {
        exec: Arc::new(LocalExec::new()),
        files: files.clone(),
        root: files.root().to_owned(),
        env: agent_env(
            std::env::vars(),
            [("TOKEN".to_owned(), "correct horse battery".to_owned())],
        ),
        reads: Vec::new(),
        redactor: redactor.clone(),
    };
    let tools = file_tools(files)
        .into_iter()
        .fold(ToolSet::new(), ToolSet::with)
        .with(shell.into_tool())
        .with_redactor(redactor);

    let mut given = std::env::args().skip(1);
    let calls: Vec<(String, Value)> = match (given.next(), given.next()) {
        (Some(tool), Some(arguments)) => vec![(tool, serde_json::from_str(&arguments)?)],
        _ => calls().map(|(tool, arguments)| (tool.to_owned(), arguments)).into(),
    };
    let context = ToolContext::default();
    let cancel = CancellationToken::new();
    for (id, (tool, arguments)) in calls.iter().enumerate() {
        let id = id.to_string();
        let output = tools.run(tool, &id, arguments, &context, &cancel, Permissions::Full).await;
        let mark = if output.is_error { "failed" } else { "ok" };
        println!("> {tool} {arguments}\n[{mark}] {}\n", output.text);
    }
    Ok(())
}

fn calls() -> [(&'static str, Value); 8] {
    let patch = "*** Begin Patch\n*** Add File: README.md\n+# Hello\n*** Update File: src/main.rs\n\
        @@ fn main() {\n-    println!(\"goodbye\");\n+    println!(\"hello again\");\n*** End Patch";
    let edit = json!({"file_path": "src/main.rs", "old_string": "hello", "new_string": "goodbye"});
    [
        ("list_dir", json!({"depth": 2})),
        ("edit_file", edit.clone()),
        ("read_file", json!({"file_path": "src/main.rs"})),
        ("edit_file", edit),
        ("apply_patch", json!({"patch": patch})),
        ("grep", json!({"pattern": "hello", "ignore_case": true})),
        ("shell", json!({"command": "cat README.md; echo $TOKEN; exit 3"})),
        ("read_fil", json!({"file_path": "../../etc/passwd"})),
    ]
}
