//! A conversation in a file, one record a line. `STOP=1` ends the process in the middle; the next start continues:
//! `STOP=1 cargo run -p fabro-agent --example journal; cargo run -p fabro-agent --example journal`

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use fabro_agent::{Journal, JournalError, Parts, Record, Session, Settings, Transcript};
use fabro_events::{EventBody, Note};
use fabro_llm::{Script, TurnCounts};
use fabro_tools::{ToolContext, ToolSet};
use tokio_util::sync::CancellationToken;

const SCRIPT: &str = r#"{"plan": [{"tool_calls": [{"name": "look"}]}, {"text": "It is done."}]}"#;

struct FileJournal(PathBuf);

impl FileJournal {
    fn append(&self, record: &Record) -> io::Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).open(&self.0)?;
        writeln!(file, "{}", serde_json::to_string(&record.notes)?)?;
        file.sync_data()
    }

    fn notes(&self) -> Result<Vec<Note>, Box<dyn std::error::Error>> {
        let text = if self.0.exists() { fs::read_to_string(&self.0)? } else { String::new() };
        let records: Result<Vec<Vec<Note>>, _> = text.lines().map(serde_json::from_str).collect();
        Ok(records?.concat())
    }
}

#[async_trait]
impl Journal for FileJournal {
    async fn record(&self, record: Record) -> Result<(), JournalError> {
        let failed = |error: io::Error| JournalError::Failed { reason: error.to_string() };
        self.append(&record).map_err(failed)?;
        let is_result =
            record.notes.iter().any(|note| matches!(note.body, EventBody::AgentToolCompleted(_)));
        if is_result && std::env::var_os("STOP").is_some() {
            std::process::exit(1);
        }
        Ok(())
    }
}

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stdout, reason = "an example shows what it did")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let journal = Arc::new(FileJournal(std::env::temp_dir().join("fabro-journal.jsonl")));
    let notes = journal.notes()?;
    // A model script counts its answers; a real model needs no count.
    let is_answer = |note: &&Note| matches!(&note.body, EventBody::AgentMessage { role, .. } if role == "assistant");
    let answered = u32::try_from(notes.iter().filter(is_answer).count())?;
    let counts: TurnCounts = [(Arc::from("plan"), answered)].into_iter().collect();
    let mut session = Session::new(Parts {
        id: "plan@1".into(),
        parent: None,
        model: Arc::new(Script::from_json(SCRIPT)?.model("plan", &counts)),
        tools: ToolSet::new(),
        journal: journal.clone(),
        settings: Settings::default(),
        context: ToolContext::default(),
    });
    let cancel = CancellationToken::new();
    let answer = if notes.is_empty() {
        session.send("Make a plan".to_owned(), &cancel).await?
    } else {
        let transcript = Transcript::from_notes(&notes, |blob| {
            Err(io::Error::other(format!("no such blob: {blob}")))
        })?;
        session.restore(transcript);
        session.resume(&cancel).await?
    };
    println!("{} ({} turns, {} of them from the file)", answer.text, answer.turns, answered);
    fs::remove_file(&journal.0)?;
    Ok(())
}
