//! What the model gets besides the messages: recorded once, counted always.

use fabro_events::Given;
use fabro_redact::Redactor;

use super::*;

const TOOLS: [&str; 3] = ["change", "hang", "look"];

fn with_system() -> Settings {
    Settings { system: "Be brief.".to_owned(), ..settings() }
}

/// The messages that say what was given: role, session, system prompt, names of tools.
fn givens(notes: &[Note]) -> Vec<(String, String, Value, Vec<String>)> {
    let one = |note: &Note| {
        let EventBody::AgentMessage { role, given: Some(given), .. } = &note.body else {
            return None;
        };
        let tools = given.tools.as_deref().and_then(Value::as_array);
        let names = tools.into_iter().flatten().map(|it| it["name"].as_str().unwrap().to_owned());
        let system = given.system.as_deref().cloned().unwrap_or_default();
        let session = note.session_id.as_deref().unwrap_or_default();
        Some((role.clone(), session.to_owned(), system, names.collect()))
    };
    notes.iter().filter_map(one).collect()
}

fn line(role: &str, system: &str) -> (String, String, Value, Vec<String>) {
    let names = TOOLS.map(str::to_owned).to_vec();
    (role.to_owned(), "build@1".to_owned(), json!(system), names)
}

#[tokio::test(start_paused = true)]
async fn it_is_recorded_with_the_first_message_only() {
    let model = Play::list(vec![call("look", json!({})), say("Done.")]);
    let (mut session, journal) = session(&model, with_system());
    session.send("Fix it".to_owned(), &never()).await.unwrap();
    session.correct("As JSON".to_owned(), &never()).await.unwrap();
    assert_eq!(givens(&journal.notes()), [line("user", "Be brief.")]);
    let notes = journal.notes();
    let EventBody::AgentMessage { given: Some(given), .. } = &notes[0].body else { panic!() };
    let sent = &model.requests()[0].tools;
    assert_eq!(*given.tools.as_deref().unwrap(), serde_json::to_value(&**sent).unwrap());
}

#[tokio::test]
async fn it_is_absent_where_there_is_nothing() {
    let journal = Arc::new(MemoryJournal::default());
    let model = Play::list(vec![say("Done.")]);
    let parts = Parts { tools: ToolSet::default(), ..parts(&model, &journal, settings()) };
    Session::new(parts).send("Fix it".to_owned(), &never()).await.unwrap();
    assert_eq!(givens(&journal.notes()), []);
    assert!(!serde_json::to_string(&journal.notes()[0].body).unwrap().contains("given"));
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_it_is_recorded_again_only_when_it_is_another() {
    let model = Play::list(vec![call("look", json!({})), say("Done.")]);
    let check =
        async |system: &str, in_blobs: bool, expected: &[(String, String, Value, Vec<String>)]| {
            let (mut first, journal) = session(&model, with_system());
            first.send("Fix it".to_owned(), &never()).await.unwrap();
            let mut notes = journal.records()[0].notes.clone();
            if in_blobs {
                notes.iter_mut().for_each(put_aside);
            }
            let settings = Settings { system: system.to_owned(), ..settings() };
            let (mut again, journal) = session(&model, settings);
            again.restore(Transcript::default());
            again.restore(Transcript::from_notes(&notes, no_blobs).unwrap());
            again.resume(&never()).await.unwrap();
            assert_eq!(givens(&journal.notes()), expected);
        };
    for in_blobs in [false, true] {
        check("Be brief.", in_blobs, &[]).await;
        check("Take your time.", in_blobs, &[line("assistant", "Take your time.")]).await;
    }
}

/// As a journal does that has room for small values only.
fn put_aside(note: &mut Note) {
    let EventBody::AgentMessage { given: Some(given), .. } = &mut note.body else { return };
    let Given { system, tools, .. } = &mut **given;
    for value in [system, tools].into_iter().flatten() {
        *value = Arc::new(BlobRef::of(value.to_string().as_bytes()).to_value());
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_stage_of_a_thread_tells_its_own() {
    let model = Play::list(vec![say("Done.")]);
    let (mut first, journal) = session(&model, with_system());
    first.send("Fix it".to_owned(), &never()).await.unwrap();
    let (mut second, own) = session(&model, with_system());
    second.recall(Transcript::from_notes(&journal.notes(), no_blobs).unwrap());
    second.send("And that".to_owned(), &never()).await.unwrap();
    assert_eq!(givens(&own.notes()), [line("user", "Be brief.")]);
}

#[tokio::test(start_paused = true)]
async fn agents_that_a_session_begins_tell_theirs() {
    let model = Play::new(|number, request| {
        let is_first = number == 0 && request.tools.iter().any(|tool| tool.name == "spawn_agent");
        if is_first { call("spawn_agent", json!({"task": "Look"})) } else { say("Done.") }
    });
    let (mut session, journal) = session(&model, Settings { subagent_depth: 1, ..with_system() });
    session.send("Fix it".to_owned(), &never()).await.unwrap();
    let recorded = givens(&journal.notes());
    let sessions: Vec<_> = recorded.iter().map(|(_, session, ..)| session.as_str()).collect();
    let mut sorted = sessions.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, ["build@1", "build@1/a1"]);
    let (_, _, system, tools) = recorded.iter().find(|it| it.1 == "build@1/a1").unwrap();
    assert!(system.as_str().unwrap().starts_with("Be brief.\n\nYou work for another agent"));
    assert_eq!(*tools, TOOLS);
}

#[tokio::test]
async fn secrets_are_blanked_out_of_it() {
    let redactor = Redactor::new([("API_KEY", "sesame-street-7")]);
    let journal = Arc::new(MemoryJournal::default());
    let spec = ToolSpec {
        name: "look".to_owned(),
        description: "Looks with sesame-street-7.".to_owned(),
        parameters: Arc::new(json!({"type": "object"})),
    };
    let count = || Arc::new(AtomicUsize::new(0));
    let tool = Fake { spec, needs: Permissions::ReadOnly, at_once: count(), most_at_once: count() };
    let settings =
        Settings { system: "The key is sesame-street-7.".to_owned(), redactor, ..settings() };
    let model = Play::list(vec![say("Done.")]);
    let tools = ToolSet::default().with(Arc::new(tool));
    let parts = Parts { tools, ..parts(&model, &journal, settings) };
    Session::new(parts).send("Fix it".to_owned(), &never()).await.unwrap();
    let recorded = serde_json::to_string(&journal.notes()[0].body).unwrap();
    assert!(recorded.contains("The key is "), "{recorded}");
    assert!(!recorded.contains("sesame"), "{recorded}");
}

#[tokio::test]
async fn the_estimate_counts_it() {
    let estimate = |system: &str, tools: ToolSet| {
        let settings = Settings { system: system.to_owned(), ..settings() };
        let journal = Arc::new(MemoryJournal::default());
        let parts = Parts { tools, ..parts(&Play::list(Vec::new()), &journal, settings) };
        let mut session = Session::new(parts);
        let fresh = session.estimated_tokens();
        session.restore(Transcript::default());
        assert_eq!(session.estimated_tokens(), fresh, "still counted after a crash");
        fresh
    };
    let tools = tools(&Counts::default());
    let definitions = tools.specs(Permissions::ReadWrite);
    let definitions = serde_json::to_string(&*definitions).unwrap().len() as u64;
    assert_eq!(estimate("", ToolSet::default()), 0);
    assert_eq!(estimate(&"x".repeat(400), ToolSet::default()), 100);
    assert_eq!(estimate("", tools.clone()), definitions.div_ceil(4));
    assert_eq!(estimate(&"x".repeat(400), tools), 100 + definitions.div_ceil(4));
}

const STAGE: &str = "The stage is \"Build\".";

fn opened() -> Settings {
    Settings { opening: STAGE.to_owned(), ..with_system() }
}

fn told(session: &Session) -> Vec<String> {
    session.messages().map(|message| message.text()).collect()
}

#[tokio::test(start_paused = true)]
async fn the_opening_stands_before_the_first_message_alone() {
    let model = Play::list(vec![call("look", json!({})), say("Done."), say("{}")]);
    let (mut session, journal) = session(&model, opened());
    session.send("Fix it".to_owned(), &never()).await.unwrap();
    session.correct("As JSON".to_owned(), &never()).await.unwrap();
    let first = format!("{STAGE}\n\nFix it");
    assert_eq!(told(&session)[0], first);
    assert_eq!(told(&session).iter().filter(|text| text.contains(STAGE)).count(), 1);
    let sent = model.requests();
    assert!(
        sent.iter()
            .all(|it| it.messages[0].text() == "Be brief." && it.messages[1].text() == first)
    );
    // The record has the message as it was asked for.
    let notes = journal.notes();
    let EventBody::AgentMessage { text, message: Some(message), given: Some(given), .. } =
        &notes[0].body
    else {
        panic!("{notes:?}")
    };
    assert_eq!((text.as_str(), &**message), ("Fix it", &json!("Fix it")));
    assert_eq!(given.opening.as_deref(), Some(&json!(STAGE)));
    let others = notes[1..].iter().map(|note| serde_json::to_string(&note.body).unwrap());
    assert!(others.into_iter().all(|body| !body.contains("opening")));
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_and_in_a_thread_the_opening_is_as_it_was() {
    let model = Play::list(vec![call("look", json!({})), say("Done.")]);
    let (mut first, journal) = session(&model, opened());
    first.send("Fix it".to_owned(), &never()).await.unwrap();
    let recorded = || Transcript::from_notes(&journal.notes(), no_blobs).unwrap();
    assert_eq!(recorded().system(), Some(&json!("Be brief.")));
    let (mut again, own) = session(&model, opened());
    again.restore(recorded());
    again.resume(&never()).await.unwrap();
    assert_eq!(told(&again), told(&first));
    assert!(own.notes().is_empty(), "nothing is new");
    let opening = "The stage is \"Check\".".to_owned();
    let model = Play::list(vec![say("Done.")]);
    let (mut next, own) = session(&model, Settings { opening: opening.clone(), ..opened() });
    next.recall(recorded());
    next.send("Check it".to_owned(), &never()).await.unwrap();
    let mut both = told(&first);
    both.extend([format!("{opening}\n\nCheck it"), "Done.".to_owned()]);
    assert_eq!(told(&next), both);
    // Only what was begun anew has an opening.
    assert!(serde_json::to_string(&own.notes()[0].body).unwrap().contains("opening"));
}

#[tokio::test(start_paused = true)]
async fn a_summary_keeps_the_stage() {
    for kept in ["much was done", "in The stage is \"Build\". much was done"] {
        let summary = format!("## Goal\nall\n\n## Progress\n{kept}");
        let model = Play::new(move |number, request| match () {
            () if request.tools.is_empty() => say(&summary),
            () if number < 30 => call(
                "change",
                json!({"file": "f", "says": format!("{number} {}", "word ".repeat(250))}),
            ),
            () => say("Done."),
        });
        let settings = Settings { window: Some(6_000), ..opened() };
        let (mut session, _) = session(&model, settings);
        session.send("Fix it".to_owned(), &never()).await.unwrap();
        let compacted: Vec<_> = model
            .requests()
            .into_iter()
            .filter(|it| {
                it.messages.iter().any(|message| message.text().starts_with("[Context Summary]"))
            })
            .collect();
        assert!(!compacted.is_empty());
        for request in compacted {
            let all: String = request.messages.iter().map(|message| message.text()).collect();
            assert_eq!(all.matches(STAGE).count(), 1, "{all:.2000}");
        }
    }
}
