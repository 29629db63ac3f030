//! Which files an agent may change when its conversation resumes: those that it has seen as they are.

use fabro_compaction::Overrides;
use fabro_sandbox::{Files, MemoryFiles};
use fabro_tools::file_tools;

use super::*;

const DONE: &str = "replaced 1 occurrence in a.txt, at line 1";
const UNREAD: &str = "a.txt exists, but was not read yet: read it before changing it";
const CHANGED: &str = "a.txt has changed since it was read: read it again before changing it";

fn read() -> Turn {
    call("read_file", json!({"file_path": "./b/../a.txt"}))
}

fn edit(old: &str, new: &str) -> Turn {
    call("edit_file", json!({"file_path": "a.txt", "old_string": old, "new_string": new}))
}

fn files() -> Arc<MemoryFiles> {
    Arc::new(MemoryFiles::new([("a.txt", "one"), ("b/c.txt", "")]))
}

/// A session of another process, on the same files.
fn on(
    files: &Arc<MemoryFiles>,
    model: &Arc<Play>,
    settings: Settings,
) -> (Session, Arc<MemoryJournal>) {
    let journal = Arc::new(MemoryJournal::default());
    let tools = file_tools(Arc::clone(files) as _).into_iter();
    let tools = tools.fold(ToolSet::new(), ToolSet::with);
    (Session::new(Parts { tools, ..parts(model, &journal, settings) }), journal)
}

fn transcript(notes: &[Note]) -> Transcript {
    Transcript::from_notes(notes, no_blobs).unwrap()
}

/// What the last call gave.
fn last_result(session: &Session) -> String {
    let results = session.messages().filter(|message| message.role == Role::Tool);
    match &results.last().unwrap().content[..] {
        [Content::ToolResult { text, .. }] => text.clone(),
        other => panic!("{other:?}"),
    }
}

/// Plays this, then answers.
fn once(turn: Turn) -> Arc<Play> {
    let asked = AtomicUsize::new(0);
    Play::new(move |_, _| match asked.fetch_add(1, Ordering::SeqCst) {
        0 => turn.clone(),
        _ => say("done"),
    })
}

/// What an edit gives in a process that resumes after so many records of these turns.
async fn check(
    turns: &[Turn],
    records: usize,
    meanwhile: impl FnOnce(&MemoryFiles),
    (old, expected): (&str, &str),
) {
    let files = files();
    let first = Play::list(turns.iter().cloned().chain([say("stop")]).collect());
    let (mut session, journal) = on(&files, &first, settings());
    session.send("go".to_owned(), &never()).await.unwrap();
    meanwhile(&files);
    let notes: Vec<_> =
        journal.records().into_iter().take(records).flat_map(|record| record.notes).collect();
    let (mut later, _) = on(&files, &once(edit(old, "last")), settings());
    later.restore(transcript(&notes));
    later.resume(&never()).await.unwrap();
    assert_eq!(last_result(&later), expected);
}

fn nothing(_: &MemoryFiles) {}

#[tokio::test]
async fn what_was_consumed_tables_a_crash_may_be_changed_after_it() {
    check(&[read()], 2, nothing, ("one", DONE)).await;
    let write = call("write_file", json!({"file_path": "new.txt", "content": "mine"}));
    check(&[read(), write.clone(), edit("one", "two")], 6, nothing, ("two", DONE)).await;
    let again = |files: &MemoryFiles| files.write("a.txt", b"one").unwrap();
    check(&[read()], 2, again, ("one", DONE)).await;
}

#[tokio::test]
async fn what_others_changed_meanwhile_has_to_be_read_again() {
    let other = |files: &MemoryFiles| files.write("a.txt", b"one, two").unwrap();
    check(&[read()], 2, other, ("one", CHANGED)).await;
    check(&[read(), edit("one", "two")], 4, other, ("one", CHANGED)).await;
    // The conversation goes back to where it was read first; files do not.
    check(&[read(), edit("one", "two")], 2, nothing, ("two", CHANGED)).await;
    check(&[read(), edit("one", "two"), read()], 2, nothing, ("two", CHANGED)).await;
}

#[tokio::test]
async fn calls_without_a_recorded_result_do_not_count() {
    check(&[read()], 1, nothing, ("one", UNREAD)).await;
    check(&[read(), edit("one", "two")], 3, nothing, ("two", CHANGED)).await;
    let removed = "*** Begin Patch\n*** Delete File: a.txt\n*** End Patch";
    let remove = call("apply_patch", json!({"patch": removed}));
    let again = |files: &MemoryFiles| files.write("a.txt", b"one").unwrap();
    check(&[read(), remove.clone()], 3, again, ("one", DONE)).await;
    check(&[read(), remove], 4, again, ("one", UNREAD)).await;
}

#[tokio::test]
async fn a_stage_that_goes_on_in_a_thread_has_seen_what_the_ones_before_it_did() {
    let files = files();
    let (mut first, journal) = on(&files, &once(read()), settings());
    first.send("read".to_owned(), &never()).await.unwrap();
    let overrides = Overrides {
        keep_recent_entries: Some(1),
        generate_summary: Some(false),
        ..Overrides::default()
    };
    let big = "x".repeat(10_000);
    first.send(big, &never()).await.unwrap();
    first.compact(&overrides, &never()).await.unwrap().unwrap();
    assert!(!conversation(&first).contains("c0.0 read_file]"), "{}", conversation(&first));
    for (is_recalled, expected) in [(false, UNREAD), (true, DONE)] {
        let (mut second, _) = on(&files, &once(edit("one", "two")), settings());
        if is_recalled {
            second.recall(transcript(&journal.notes()));
        }
        second.send("change".to_owned(), &never()).await.unwrap();
        assert_eq!(last_result(&second), expected);
    }
}

/// Begins an agent that reads the file, waits for it to answer, changes the file, and tells the agent
/// to change it.
fn two_agents() -> Arc<Play> {
    Play::new(|_, request| {
        let user = request.messages.iter().find(|message| message.role == Role::User).unwrap();
        let answers = request.messages.iter().filter(|it| it.role == Role::Assistant).count();
        match (user.text().as_str(), answers) {
            ("lead", 0) => call("spawn_agent", json!({"task": "help"})),
            ("lead", 1 | 4) => call("wait", json!({})),
            ("lead", 2) => edit("one", "lead"),
            ("lead", 3) => {
                call("send_input", json!({"agent_id": "build@1/a1", "text": "change it"}))
            }
            ("lead", _) => say("done"),
            ("help", 0) => read(),
            ("help", 1) => say("read"),
            ("help", 2) => edit("one", "help"),
            ("help", _) => say(&shown(request.messages.last().unwrap())),
            other => panic!("{other:?}"),
        }
    })
}

/// The results of the edits: of the first agent's, and of the other's.
fn edits(records: &[Record]) -> [Vec<String>; 2] {
    let notes = records.iter().flat_map(|record| &record.notes);
    let ends = notes.filter_map(|note| match &note.body {
        EventBody::AgentToolCompleted(done) if done.tool == "edit_file" => {
            Some((note.parent_session_id.is_none(), done.output.as_str().unwrap().to_owned()))
        }
        _ => None,
    });
    let (lead, help): (Vec<_>, Vec<_>) = ends.partition(|(is_lead, _)| *is_lead);
    [lead, help].map(|list| list.into_iter().map(|(_, text)| text).collect())
}

#[tokio::test]
async fn agents_know_what_they_have_read_themselves() {
    let deep = || Settings { subagent_depth: 1, ..settings() };
    let (mut session, journal) = on(&files(), &two_agents(), deep());
    session.send("lead".to_owned(), &never()).await.unwrap();
    let records = journal.records();
    let expected = [vec![UNREAD.to_owned()], vec![DONE.to_owned()]];
    assert_eq!(edits(&records), expected);
    for count in 1..records.len() {
        let mut all = records[..count].to_vec();
        let notes: Vec<_> = all.iter().flat_map(|record| record.notes.clone()).collect();
        let files = files();
        if edits(&all)[1] == expected[1] {
            files.write("a.txt", b"help").unwrap();
        }
        let (mut session, journal) = on(&files, &two_agents(), deep());
        session.restore(transcript(&notes));
        session.resume(&never()).await.unwrap();
        all.extend(journal.records());
        let before = notes_of(&records[..count]);
        // A call that the crash interrupted is marked as such, and has shown nothing.
        let was_read = !before.contains("start c1.0 read") || before.contains("end c1.0 read");
        let [lead, help] = edits(&all).map(|mut list| {
            list.retain(|text| !text.starts_with("[interrupted"));
            list.concat()
        });
        assert!(["", UNREAD].contains(&&*lead), "{count}: {lead}");
        let right = if was_read { DONE } else { UNREAD };
        assert!(["", right].contains(&&*help), "{count}: {help}");
    }
}
