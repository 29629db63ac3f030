use std::collections::BTreeSet;

use insta::assert_snapshot;

use super::*;
use crate::session::CONTINUE;
use crate::{SessionError, Steer};

/// Accepts a number of records, then fails.
struct Dying {
    kept: MemoryJournal,
    left: AtomicUsize,
}

#[async_trait]
impl Journal for Dying {
    async fn record(&self, record: Record) -> Result<(), JournalError> {
        let left = self.left.load(Ordering::SeqCst);
        if left == 0 {
            return Err(JournalError::Ending);
        }
        self.left.store(left - 1, Ordering::SeqCst);
        self.kept.record(record).await
    }
}

/// A conversation with everything that is recorded: calls, a steering message, a cut text, two
/// compactions.
fn story() -> Arc<Play> {
    Play::new(|number, request| {
        if request.tools.is_empty() {
            return say("## Goal\nfix it\n\n## Progress\nsome");
        }
        match number {
            n if n % 3 == 0 && n < 24 => Turn::Call(
                format!("step {n}"),
                vec![
                    ("look", json!({"file": format!("r{n}"), "says": "x".repeat(900)})),
                    ("change", json!({"file": format!("w{n}")})),
                ],
            ),
            n if n < 24 => call("look", json!({"file": format!("r{n}"), "says": "y".repeat(700)})),
            _ if request.messages.last().unwrap().text() == CONTINUE => say("done."),
            _ => Turn::Cut("All ".to_owned(), Vec::new()),
        }
    })
}

fn small() -> Settings {
    // Room for 1,600 tokens of messages beside the tools.
    Settings { window: Some(2_075), ..settings() }
}

async fn run_until(
    records: usize,
    notes: Vec<Note>,
    model: &Arc<Play>,
) -> (Result<crate::Answer, SessionError>, Vec<Note>, String) {
    let journal = Arc::new(Dying { kept: MemoryJournal::default(), left: records.into() });
    let mut session = Session::new(parts(model, &journal, small()));
    let transcript = Transcript::from_notes(&notes, no_blobs).unwrap();
    let end = if transcript.is_empty() {
        session.steering().send(Steer::new("Hurry", "inbox"));
        session.send("Fix it".to_owned(), &never()).await
    } else {
        session.restore(model.after(transcript));
        session.resume(&never()).await
    };
    let mut all = notes;
    all.extend(journal.kept.notes());
    (end, all, conversation(&session))
}

/// What the answers said, in order.
fn steps_of(notes: &[Note]) -> Vec<String> {
    let answers = notes.iter().filter_map(|note| match &note.body {
        EventBody::AgentMessage { role, text, .. } if role == "assistant" => Some(text.clone()),
        _ => None,
    });
    answers.filter(|text| text.starts_with("step")).collect()
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_record_asks_for_no_committed_answer_again() {
    let model = story();
    let (whole, whole_notes, shown) = run_until(usize::MAX, Vec::new(), &model).await;
    let whole = whole.unwrap();
    assert_eq!(whole.text, "All done.");
    let is_compaction = |note: &&Note| matches!(note.body, EventBody::AgentCompactionCompleted(_));
    assert!(whole_notes.iter().filter(is_compaction).count() > 1);
    for at in 0..whole_notes.len() {
        let model = story();
        let (first, notes, _) = run_until(at, Vec::new(), &model).await;
        let Err(SessionError::Journal(_)) = first else { break };
        let (second, notes, repeated) = run_until(usize::MAX, notes, &model).await;
        let second = second.unwrap();
        assert_eq!(second.text, whole.text, "{at}");
        // A change that was interrupted is not known to have happened.
        assert!(second.files_touched.len() + 1 >= whole.files_touched.len(), "{at}");
        // RequestedCall again at most for the one answer that was under way.
        assert!(model.requests().len() <= whole.usage.turns as usize + 1, "{at}");
        let steps = steps_of(&notes);
        assert_eq!(steps.len(), steps.iter().collect::<BTreeSet<_>>().len(), "{at}: {steps:?}");
        let calls = |notes: &[Note]| {
            let mut started = Vec::new();
            let mut ended = Vec::new();
            for note in notes {
                match &note.body {
                    EventBody::AgentToolStarted { call_id, .. } => started.push(call_id.clone()),
                    EventBody::AgentToolCompleted(done) => ended.push(done.call_id.clone()),
                    _ => {}
                }
            }
            started.sort();
            ended.sort();
            (started, ended)
        };
        let (started, ended) = calls(&notes);
        assert_eq!(started, ended, "{at}");
        // What is read back is what the session had.
        let mut reader = super::session(&model, small()).0;
        reader.restore(model.after(Transcript::from_notes(&notes, no_blobs).unwrap()));
        assert_eq!(conversation(&reader), repeated, "{at}");
    }
    assert!(shown.starts_with("system: [Context Summary]"));
}

#[tokio::test(start_paused = true)]
async fn crash_after_crash_it_comes_to_an_end() {
    for records in 2..12 {
        let model = story();
        let mut notes = Vec::new();
        let mut lives = 0;
        let end = loop {
            lives += 1;
            assert!(lives < 200, "{records} records a life");
            let (end, recorded, _) = run_until(records, notes, &model).await;
            notes = recorded;
            if let Ok(answer) = end {
                break answer;
            }
        };
        assert_eq!(end.text, "All done.");
        let answers = notes.iter().filter_map(|note| match &note.body {
            EventBody::AgentMessage { usage: Some(usage), .. } => Some(usage.turns),
            EventBody::AgentCompactionCompleted(done) => Some(done.usage.as_ref().unwrap().turns),
            _ => None,
        });
        assert_eq!(end.usage.turns, answers.sum::<u32>());
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_without_a_result_is_shown_as_interrupted() {
    let model = Play::list(vec![
        Turn::Call(
            "I look.".to_owned(),
            vec![("look", json!({"file": "a"})), ("change", json!({"file": "b"}))],
        ),
        say("I see."),
    ]);
    let journal = Arc::new(Dying { kept: MemoryJournal::default(), left: 2.into() });
    let mut session = Session::new(parts(&model, &journal, settings()));
    let end = session.send("go".to_owned(), &never()).await;
    let notes = journal.kept.notes();
    assert!(matches!(end, Err(SessionError::Journal(JournalError::Ending))));
    let (mut session, journal) = super::session(&model, settings());
    session.restore(model.after(Transcript::from_notes(&notes, no_blobs).unwrap()));
    let answer = session.resume(&never()).await.unwrap();
    assert_eq!((answer.text.as_str(), answer.turns, answer.usage.turns), ("I see.", 2, 2));
    assert_eq!(answer.files_touched, [""; 0]);
    assert_snapshot!(conversation(&session), @r"
        user: go
        assistant: I look. [c0.0 look] [c0.1 change]
        tool: [c0.0 -> look a] [c0.1 -> [interrupted: the program stopped while this call was running. It is not known whether it ran; check before you repeat it.]]
        assistant: I see.
        ");
    assert_snapshot!(notes_of(&journal.records()), @r#"
    end c0.1 change failed: "[interrupted: the program stopped while this call was running. It is not known whether it ran; check before you repeat it.]"
    assistant: I see. (1 turns)
    "#);
}

#[tokio::test(start_paused = true)]
async fn a_whole_answer_is_given_without_asking() {
    let model = Play::list(vec![say("done")]);
    let (mut first, journal) = session(&model, settings());
    first.send("go".to_owned(), &never()).await.unwrap();
    let (mut second, again) = session(&model, settings());
    second.restore(model.after(Transcript::from_notes(&journal.notes(), no_blobs).unwrap()));
    assert_eq!(second.resume(&never()).await.unwrap().text, "done");
    assert_eq!(model.requests().len(), 1);
    assert!(again.records().is_empty());
}

#[tokio::test(start_paused = true)]
async fn repeated_calls_are_remembered() {
    let model = Play::list(vec![call("look", json!({"file": "a"}))]);
    let steered = |notes: &[Note]| {
        let notes = notes.iter();
        notes.filter(|note| matches!(note.body, EventBody::AgentSteered { .. })).count()
    };
    for at in 0..85 {
        let journal = Arc::new(Dying { kept: MemoryJournal::default(), left: at.into() });
        let mut session = Session::new(parts(&model, &journal, settings()));
        let end = session.send("go".to_owned(), &never()).await;
        let mut notes = journal.kept.notes();
        if at > 0 && matches!(end, Err(SessionError::Journal(_))) {
            let (mut session, journal) = super::session(&model, settings());
            session.restore(model.after(Transcript::from_notes(&notes, no_blobs).unwrap()));
            let end = session.resume(&never()).await;
            assert!(matches!(end, Err(SessionError::Loop { warnings: 3, .. })), "{at}: {end:?}");
            notes.extend(journal.notes());
            // A call that was interrupted had another result than before, and that is a change.
            let shown = steered(&notes);
            assert!(
                if at % 2 == 0 { shown == 3 } else { (3..=6).contains(&shown) },
                "{at}: {shown}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_thread_goes_on_with_the_conversation_of_earlier_stages() {
    let model = story();
    let (mut first, one) = session(&model, small());
    first.send("Fix it".to_owned(), &never()).await.unwrap();
    let (mut second, two) = session(&model, small());
    second.recall(Transcript::from_notes(&one.notes(), no_blobs).unwrap());
    assert_eq!(conversation(&second), conversation(&first));
    let answer = second.send("And now?".to_owned(), &never()).await.unwrap();
    assert!(answer.files_touched.iter().all(|file| file.starts_with('w')));
    assert!(notes_of(&two.records()).contains("compaction threshold"));
    // A third stage, and the second one after a crash, see the same.
    let (mut third, _) = session(&model, small());
    third.recall(Transcript::from_notes(&one.notes(), no_blobs).unwrap());
    third.recall(Transcript::from_notes(&two.notes(), no_blobs).unwrap());
    assert_eq!(conversation(&third), conversation(&second));
    assert_eq!(third.usage(), Usage::default());
    let (mut again, _) = session(&model, small());
    again.recall(Transcript::from_notes(&one.notes(), no_blobs).unwrap());
    again.restore(model.after(Transcript::from_notes(&two.notes(), no_blobs).unwrap()));
    assert_eq!(conversation(&again), conversation(&second));
    assert_eq!(again.resume(&never()).await.unwrap(), answer);
}

/// Numbers the calls of each answer anew.
struct Renumbered(Arc<Play>);

impl Model for Renumbered {
    fn stream(&self, request: Request) -> BoxStream<'static, Result<Part, ModelError>> {
        let renumber = |part| match part {
            Ok(Part::ToolCall(call)) => {
                let (_, id) = call.id.split_once('.').unwrap();
                Ok(Part::ToolCall(ToolCall { id: format!("c{id}"), ..call }))
            }
            part => part,
        };
        self.0.stream(request).map(renumber).boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn ids_of_calls_that_a_compaction_dropped_are_not_given_again() {
    #[track_caller]
    fn check_ids(notes: &[Note]) {
        let ids: Vec<_> = notes
            .iter()
            .filter_map(|note| match &note.body {
                EventBody::AgentToolStarted { call_id, .. } => Some(call_id.as_str()),
                _ => None,
            })
            .collect();
        assert!(ids.len() > 15 && ids.iter().all(|id| id.len() < 8), "{ids:?}");
        assert_eq!(ids.len(), ids.iter().collect::<BTreeSet<_>>().len(), "{ids:?}");
    }
    let model = story();
    let begin = |journal: &Arc<Dying>| {
        let parts = parts(&model, journal, small());
        Session::new(Parts { model: Arc::new(Renumbered(Arc::clone(&model))), ..parts })
    };
    let journal =
        |left: usize| Arc::new(Dying { kept: MemoryJournal::default(), left: left.into() });
    let first = journal(40);
    let second = journal(usize::MAX);
    begin(&first).send("Fix it".to_owned(), &never()).await.unwrap_err();
    let mut notes = first.kept.notes();
    let is_compaction = |note: &Note| matches!(note.body, EventBody::AgentCompactionCompleted(_));
    assert!(notes.iter().any(is_compaction));
    let mut session = begin(&second);
    session.restore(model.after(Transcript::from_notes(&notes, no_blobs).unwrap()));
    session.resume(&never()).await.unwrap();
    notes.extend(second.kept.notes());
    check_ids(&notes);
    // A stage that continues its thread.
    let third = journal(usize::MAX);
    let mut session = begin(&third);
    session.recall(Transcript::from_notes(&notes, no_blobs).unwrap());
    session.send("Once more".to_owned(), &never()).await.unwrap();
    notes.extend(third.kept.notes());
    check_ids(&notes);
}

#[tokio::test]
async fn values_may_be_in_blobs() {
    let texts = ["the question", "the result"];
    let message = json!({"role": "assistant", "content": [
        {"type": "text", "text": "I look."},
        {"type": "tool_call", "id": "c", "name": "look", "arguments": {}},
    ]});
    let values = [json!(texts[0]), message, json!(texts[1])];
    let name = |at: usize| Arc::new(BlobRef::of(&[u8::try_from(at).unwrap()]).to_value());
    let said = |role: &str, at| EventBody::AgentMessage {
        role: role.to_owned(),
        text: String::new(),
        message: Some(name(at)),
        usage: None,
        given: None,
        purpose: None,
    };
    let done = fabro_events::CompletedTool {
        call_id: "c".to_owned(),
        tool: "look".to_owned(),
        is_error: false,
        output: name(2),
        files_read: Vec::new(),
        files_modified: Vec::new(),
        files_seen: std::collections::BTreeMap::new(),
        duration_ms: 0,
    };
    let notes =
        [said("user", 0), said("assistant", 1), EventBody::AgentToolCompleted(Box::new(done))];
    let notes = notes.map(Note::from);
    let read = |blob: &BlobRef| -> Result<Value, Infallible> {
        let at = (0..3).find(|at| *name(*at) == blob.to_value()).unwrap();
        Ok(values[at].clone())
    };
    let (mut session, _) = session(&Play::list(vec![say("x")]), settings());
    session.restore(Transcript::from_notes(&notes, read).unwrap());
    assert_snapshot!(conversation(&session), @r"
        user: the question
        assistant: I look. [c look]
        tool: [c -> the result]
        ");
}

#[tokio::test]
async fn texts_that_look_like_names_of_blobs_are_texts() {
    let name = BlobRef::of(b"x").to_string();
    let model = Play::list(vec![call("look", json!({"says": name})), say(&name)]);
    let (mut session, journal) = session(&model, settings());
    session.send(name.clone(), &never()).await.unwrap();
    let (mut again, _) = super::session(&model, settings());
    again.restore(model.after(Transcript::from_notes(&journal.notes(), no_blobs).unwrap()));
    assert_eq!(conversation(&again), conversation(&session));
}

#[test]
fn damaged_conversations_are_refused() {
    let check = |value: Value, expected: &str| {
        let body = EventBody::AgentMessage {
            role: "assistant".to_owned(),
            text: String::new(),
            message: Some(Arc::new(value)),
            usage: None,
            given: None,
            purpose: None,
        };
        let error = Transcript::from_notes(&[body.into()], no_blobs).unwrap_err();
        assert_eq!(error.to_string(), expected);
    };
    let start = "the conversation has a record that is not a message: ";
    check(json!(7), &format!("{start}invalid type: integer `7`, expected struct Message"));
    check(json!({"role": "assistant"}), &format!("{start}missing field `content`"));
}
