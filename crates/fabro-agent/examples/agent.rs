//! An agent with file tools in a folder of its own, on a model that plays a script:
//! `cargo run -p fabro-agent --example agent`

use std::sync::Arc;

use fabro_agent::{MemoryJournal, Parts, Session, Settings, SystemInfo, system_prompt};
use fabro_llm::{Script, TurnCounts};
use fabro_sandbox::LocalFiles;
use fabro_tools::{ToolContext, ToolSet, file_tools};
use fabro_types::Permissions;
use tokio_util::sync::CancellationToken;

/// Any `fabro_llm::Model` takes its place.
const SCRIPT: &str = r#"{"fix": [
    {"text": "I look first.", "tool_calls": [{"name": "read_file", "arguments": {"file_path": "add.py"}}]},
    {"tool_calls": [{"name": "edit_file", "arguments": {"file_path": "add.py", "old_string": "a - b", "new_string": "a + b"}}]},
    {"text": "add.py subtracted; now it adds."}
]}"#;

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stdout, reason = "an example shows what it did")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    std::fs::write(dir.path().join("add.py"), "def add(a, b):\n    return a - b\n")?;

    let files = Arc::new(LocalFiles::new(dir.path())?);
    let tools = file_tools(files).into_iter().fold(ToolSet::new(), ToolSet::with);
    let system = system_prompt(&SystemInfo {
        work_dir: Some(dir.path()),
        permissions: Permissions::ReadWrite,
        tools: &tools.allowed(Permissions::ReadWrite).names(),
        ..SystemInfo::default()
    });
    let journal = Arc::new(MemoryJournal::default());
    let mut session = Session::new(Parts {
        id: "fix@1".into(),
        parent: None,
        model: Arc::new(Script::from_json(SCRIPT)?.model("fix", &TurnCounts::new())),
        tools,
        journal: journal.clone(),
        settings: Settings { system, permissions: Permissions::ReadWrite, ..Settings::default() },
        context: ToolContext::default(),
    });

    let text = "2 + 3 gives -1. Fix add.py.".to_owned();
    let answer = session.send(text, &CancellationToken::new()).await?;
    for message in session.messages() {
        println!("{}", serde_json::to_string(message)?);
    }
    println!("\n{}\nturns: {}, changed: {:?}", answer.text, answer.turns, answer.files_touched);
    println!("records: {}", journal.records().len());
    print!("{}", std::fs::read_to_string(dir.path().join("add.py"))?);
    Ok(())
}
