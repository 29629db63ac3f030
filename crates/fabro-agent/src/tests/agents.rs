use insta::assert_snapshot;

use super::*;
use crate::SessionError;

fn deep(depth: u32) -> Settings {
    Settings { subagent_depth: depth, ..settings() }
}

/// Who asks: the task of the conversation's agent.
fn task(request: &Request) -> String {
    let user = request.messages.iter().find(|message| message.role == Role::User);
    user.map(|message| message.text()).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn an_agent_works_and_is_waited_for() {
    let model = Play::new(|number, request| match (task(request).as_str(), number) {
        ("lead", 0) => call("spawn_agent", json!({"task": "look", "tools": ["look"]})),
        ("lead", 2) => call("wait", json!({})),
        ("lead", _) => say("all done"),
        ("look", 1) => call("look", json!({"file": "x", "ms": 500})),
        ("look", _) => say("x is fine"),
        other => panic!("{other:?}"),
    });
    let (mut session, journal) = session(&model, deep(1));
    let answer = session.send("lead".to_owned(), &never()).await.unwrap();
    assert_snapshot!(notes_of(&journal.records()), @r###"
    user: lead
    assistant:  (1 turns)
    start c0.0 spawn_agent {"task":"look","tools":["look"]}
    --
    spawned build@1/a1: look
    --
      user: look
      assistant:  (1 turns)
      start c1.0 look {"file":"x","ms":500}
    --
    end c0.0 spawn_agent: "Agent `build@1/a1` is running."
    --
    assistant:  (1 turns)
    start c2.0 wait {}
    --
      end c1.0 look: "look x"
    --
      assistant: x is fine (1 turns)
    --
    completed build@1/a1: x is fine
    --
    end c2.0 wait: "## build@1/a1\nx is fine"
    --
    assistant: all done (1 turns)
    --
    closed build@1/a1
    "###);
    assert_eq!((answer.turns, answer.usage.turns), (3, 5));
    let sub = model.requests().into_iter().find(|request| task(request) == "look").unwrap();
    let names: Vec<_> = sub.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["look"]);
    let note = journal.notes().into_iter().find(|note| note.parent_session_id.is_some()).unwrap();
    assert_eq!(note.session_id.as_deref(), Some("build@1/a1"));
    assert_eq!(note.parent_session_id.as_deref(), Some("build@1"));
}

#[tokio::test(start_paused = true)]
async fn an_agent_gets_messages_and_is_closed() {
    let model = Play::new(|number, request| match (task(request).as_str(), number) {
        ("lead", 0) => call("spawn_agent", json!({"task": "change"})),
        ("lead", 2) => call("wait", json!({"agent_ids": ["build@1/a1"]})),
        ("lead", 3) => call("send_input", json!({"agent_id": "build@1/a1", "text": "once more"})),
        ("lead", 4) => call("wait", json!({"timeout_s": 10})),
        ("lead", 6) => call("close_agent", json!({"agent_id": "build@1/a1"})),
        ("lead", 7) => call("wait", json!({"agent_ids": ["build@1/a1", "x"]})),
        ("lead", _) => say("all done"),
        ("change", 1) => say("first"),
        ("change", _) => say("second"),
        other => panic!("{other:?}"),
    });
    let (mut session, journal) = session(&model, deep(1));
    session.send("lead".to_owned(), &never()).await.unwrap();
    assert_snapshot!(notes_of(&journal.records()), @r###"
    user: lead
    assistant:  (1 turns)
    start c0.0 spawn_agent {"task":"change"}
    --
    spawned build@1/a1: change
    --
      user: change
      assistant: first (1 turns)
    --
    completed build@1/a1: first
    --
    end c0.0 spawn_agent: "Agent `build@1/a1` is running."
    --
    assistant:  (1 turns)
    start c2.0 wait {"agent_ids":["build@1/a1"]}
    --
    end c2.0 wait: "## build@1/a1\nfirst"
    --
    assistant:  (1 turns)
    start c3.0 send_input {"agent_id":"build@1/a1","text":"once more"}
    --
    end c3.0 send_input: "Agent `build@1/a1` will get it."
    --
    assistant:  (1 turns)
    start c4.0 wait {"timeout_s":10}
    --
      agent: once more
      assistant: second (1 turns)
    --
    completed build@1/a1: second
    --
    end c4.0 wait: "## build@1/a1\nsecond"
    --
    assistant:  (1 turns)
    start c6.0 close_agent {"agent_id":"build@1/a1"}
    --
    closed build@1/a1
    --
    end c6.0 close_agent: "Agent `build@1/a1` is closed. Before that: second"
    --
    assistant:  (1 turns)
    start c7.0 wait {"agent_ids":["build@1/a1","x"]}
    --
    end c7.0 wait failed: "## build@1/a1\nagent `build@1/a1` is closed: spawn another one\n\n## x\nthere is no agent `x`: spawn one first"
    --
    assistant: all done (1 turns)
    "###);
}

#[tokio::test(start_paused = true)]
async fn failures_timeouts_and_the_end_of_the_parent() {
    let model = Play::new(|number, request| match (task(request).as_str(), number) {
        ("lead", 0) => Turn::Call(
            String::new(),
            vec![
                ("spawn_agent", json!({"task": "fail"})),
                ("spawn_agent", json!({"task": "hang"})),
                ("spawn_agent", json!({"task": "x", "tools": ["lok"]})),
            ],
        ),
        ("lead", 3) => call("wait", json!({"timeout_s": 5})),
        ("lead", _) => say("all done"),
        ("fail", _) => Turn::Fail(ErrorKind::InvalidRequest),
        ("hang", _) => Turn::Hang,
        other => panic!("{other:?}"),
    });
    let (mut session, journal) = session(&model, deep(1));
    session.send("lead".to_owned(), &never()).await.unwrap();
    assert_snapshot!(notes_of(&journal.records()), @r###"
    user: lead
    assistant:  (1 turns)
    start c0.0 spawn_agent {"task":"fail"}
    start c0.1 spawn_agent {"task":"hang"}
    start c0.2 spawn_agent {"task":"x","tools":["lok"]}
    --
    spawned build@1/a1: fail
    --
      user: fail
    --
    failed build@1/a1: the model's provider refused the request as invalid
    --
    end c0.0 spawn_agent: "Agent `build@1/a1` is running."
    --
    spawned build@1/a2: hang
    --
    end c0.1 spawn_agent: "Agent `build@1/a2` is running."
    --
    end c0.2 spawn_agent failed: "there is no tool `lok` to give: choose from change, hang, look, wreck"
    --
    assistant:  (1 turns)
    start c3.0 wait {"timeout_s":5}
    --
    end c3.0 wait: "## build@1/a1\nIt failed: the model's provider refused the request as invalid\n\n## build@1/a2\nIt is still running."
    --
    assistant: all done (1 turns)
    --
    closed build@1/a1
    --
    closed build@1/a2
    "###);
}

#[tokio::test(start_paused = true)]
async fn agents_begin_agents_as_deep_as_they_may() {
    let model = Play::new(|number, request| match (task(request).as_str(), number) {
        ("one", 0) => call("spawn_agent", json!({"task": "two"})),
        ("two", 1) => call("spawn_agent", json!({"task": "three"})),
        ("three", 2) => call("spawn_agent", json!({"task": "four"})),
        ("one" | "two", n) if n < 6 => call("wait", json!({})),
        (name, _) => say(name),
    });
    let (mut session, journal) = session(&model, deep(2));
    session.send("one".to_owned(), &never()).await.unwrap();
    let lines = notes_of(&journal.records());
    assert!(lines.contains("spawned build@1/a1/a1: three"), "{lines}");
    assert!(!lines.contains("four\n"), "{lines}");
}

#[tokio::test(start_paused = true)]
async fn canceling_and_dropping_ends_agents() {
    let model = Play::new(|number, request| match (task(request).as_str(), number) {
        ("lead", 0) => call("spawn_agent", json!({"task": "hang"})),
        ("lead", _) => call("wait", json!({})),
        _ => call("hang", json!({})),
    });
    let counts = Counts::default();
    for drops in [false, true] {
        let journal = Arc::new(MemoryJournal::default());
        let mut parts = parts(&model, &journal, deep(1));
        parts.tools = tools(&counts);
        let weak = Arc::downgrade(&parts.journal);
        let mut session = Session::new(parts);
        let cancel = never();
        let late = tokio::time::sleep(Duration::from_secs(2));
        if drops {
            tokio::select! {
                _ = session.send("lead".to_owned(), &cancel) => panic!("answered"),
                () = late => {}
            }
        } else {
            let soon = async {
                late.await;
                cancel.cancel();
            };
            let (end, ()) = tokio::join!(session.send("lead".to_owned(), &cancel), soon);
            assert_eq!(end, Err(SessionError::Canceled));
            // It resumes when the session does.
            assert!(!notes_of(&journal.records()).contains("closed"));
        }
        drop((session, journal));
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(weak.upgrade().is_none(), "something still runs");
    }
}

/// How many answers the conversation has.
fn answers(request: &Request) -> usize {
    request.messages.iter().filter(|message| message.role == Role::Assistant).count()
}

/// An agent that looks five times, for one that waits for it.
fn looking() -> Arc<Play> {
    Play::new(|_, request| match (task(request).as_str(), answers(request)) {
        ("lead", 0) => Turn::Call(
            String::new(),
            vec![("spawn_agent", json!({"task": "look", "tools": ["look"]})), ("wait", json!({}))],
        ),
        ("lead", _) => say(&shown(request.messages.last().unwrap())),
        (_, n) if n < 5 => call("look", json!({"file": n, "ms": 1_000})),
        _ => say("looked"),
    })
}

#[tokio::test(start_paused = true)]
async fn agents_go_on_after_a_crash() {
    // At each record, and between two of them.
    for stop_ms in (0..9).map(|half| half * 700) {
        let model = looking();
        let (mut first, journal) = session(&model, deep(1));
        let cancel = never();
        tokio::select! {
            biased;
            _ = first.send("lead".to_owned(), &cancel) => {}
            () = tokio::time::sleep(Duration::from_millis(stop_ms)) => {}
        }
        let notes = journal.notes();
        drop(first);
        let before = model.requests().len();
        let (mut second, journal) = session(&model, deep(1));
        second.restore(model.after(Transcript::from_notes(&notes, no_blobs).unwrap()));
        let answer = match second.resume(&never()).await {
            Err(SessionError::NothingToResume) => second.send("lead".to_owned(), &never()).await,
            end => end,
        };
        let answer = answer.unwrap();
        assert!(answer.text.contains("## build@1/a1\nlooked"), "{stop_ms}: {}", answer.text);
        assert_eq!((answer.turns, answer.usage.turns), (2, 8), "{stop_ms}");
        // Each answer was recorded before the next was asked for, so at most one is lost.
        let asked = model.requests().len();
        assert!(asked <= 9 && before <= 8, "{stop_ms}: {asked}");
        let notes: Vec<_> = notes.iter().chain(&journal.notes()).map(line).collect();
        let count = |what: &str| notes.iter().filter(|line| line.starts_with(what)).count();
        assert_eq!((count("spawned"), count("completed"), count("closed")), (1, 1, 1), "{stop_ms}");
    }
}

#[tokio::test(start_paused = true)]
async fn messages_to_an_agent_reach_it_after_a_crash() {
    let model = Play::new(|_, request| match (task(request).as_str(), answers(request)) {
        ("lead", 0) => call("spawn_agent", json!({"task": "work"})),
        ("lead", 1 | 4) => call("wait", json!({})),
        ("lead", 2) => call("send_input", json!({"agent_id": "build@1/a1", "text": "once more"})),
        ("lead", 3) => call("hang", json!({})),
        ("lead", _) => say(&shown(request.messages.last().unwrap())),
        (_, 1) if request.messages.last().unwrap().text() != "once more" => Turn::Hang,
        (_, n) => say(&format!("answer {n}")),
    });
    let (mut first, journal) = session(&model, deep(1));
    let cancel = never();
    tokio::select! {
        _ = first.send("lead".to_owned(), &cancel) => panic!("answered"),
        () = tokio::time::sleep(Duration::from_secs(1)) => {}
    }
    // The agent had received it, or not.
    let mut notes = journal.notes();
    for _ in 0..2 {
        let (mut second, journal) = session(&model, deep(1));
        second.restore(model.after(Transcript::from_notes(&notes, no_blobs).unwrap()));
        let answer = second.resume(&never()).await.unwrap();
        assert!(answer.text.contains("answer 1"), "{}", answer.text);
        let lines = notes_of(&journal.records());
        assert!(!lines.contains("spawned"), "{lines}");
        notes.retain(|note| !matches!(&note.body, EventBody::AgentSteered { .. }));
        let delivered = notes.iter().rposition(|note| note.parent_session_id.is_some()).unwrap();
        if line(&notes[delivered]).contains("answer 1") {
            notes.remove(delivered);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_out_of_budget_pauses_who_began_it() {
    for most in 1..8 {
        let model = looking();
        let may_ask: crate::MayAsk = Arc::new(move |usage: &Usage| usage.turns < most);
        let paused = Settings { may_ask: Some(may_ask), ..deep(1) };
        let (mut first, journal) = session(&model, paused.clone());
        let end = first.send("lead".to_owned(), &never()).await;
        assert_eq!(end, Err(SessionError::Budget), "{most}");
        let notes = journal.notes();
        let first_notes = notes_of(&journal.records());
        assert!(
            !first_notes.contains("failed") && !first_notes.contains("closed"),
            "{first_notes}"
        );
        drop(first);
        // There is no more to spend yet.
        let (mut second, journal) = session(&model, paused);
        second.restore(model.after(Transcript::from_notes(&notes, no_blobs).unwrap()));
        assert_eq!(second.resume(&never()).await, Err(SessionError::Budget), "{most}");
        assert_eq!(notes_of(&journal.records()), "", "{most}");
        let (mut third, _) = session(&model, deep(1));
        third.restore(model.after(Transcript::from_notes(&notes, no_blobs).unwrap()));
        let answer = third.resume(&never()).await.unwrap();
        assert!(answer.text.contains("looked"), "{most}: {}", answer.text);
        assert_eq!(model.requests().len(), 8, "{most}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_paused_session_goes_on_with_its_agents() {
    let model = looking();
    let most = Arc::new(AtomicUsize::new(3));
    let limit = Arc::clone(&most);
    let may_ask: crate::MayAsk =
        Arc::new(move |usage: &Usage| (usage.turns as usize) < limit.load(Ordering::SeqCst));
    let (mut session, _) = session(&model, Settings { may_ask: Some(may_ask), ..deep(1) });
    assert_eq!(session.send("lead".to_owned(), &never()).await, Err(SessionError::Budget));
    most.store(100, Ordering::SeqCst);
    assert!(session.resume(&never()).await.unwrap().text.contains("looked"));
    assert_eq!(model.requests().len(), 8);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_breaks_off_is_not_waited_for() {
    let model = Play::new(|number, request| match (task(request).as_str(), number) {
        ("lead", 0) => call("spawn_agent", json!({"task": "break"})),
        ("lead", 2) => call("wait", json!({"timeout_s": 3_000})),
        ("lead", _) => say("all done"),
        _ => panic!("a fault of the model's client"),
    });
    let (mut session, journal) = session(&model, deep(1));
    let began = tokio::time::Instant::now();
    session.send("lead".to_owned(), &never()).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(10));
    assert!(notes_of(&journal.records()).contains("It has ended without an answer."));
}

#[tokio::test(start_paused = true)]
async fn what_agents_change_counts_before_and_after_a_crash() {
    let model = Play::new(|number, request| match (task(request).as_str(), number) {
        ("lead", 0) => call("spawn_agent", json!({"task": "change"})),
        ("lead", n) if n < 5 => call("wait", json!({})),
        ("change", 1) => call("change", json!({"file": "theirs"})),
        _ => say("done"),
    });
    let (mut first, journal) = session(&model, deep(1));
    let answer = first.send("lead".to_owned(), &never()).await.unwrap();
    assert_eq!(answer.files_touched, ["theirs"]);
    let (mut second, _) = session(&model, deep(1));
    second.restore(model.after(Transcript::from_notes(&journal.notes(), no_blobs).unwrap()));
    assert_eq!(second.resume(&never()).await.unwrap(), answer);
}

#[tokio::test(start_paused = true)]
async fn more_agents_than_the_limit_are_queued() {
    let running = Arc::new(parking_lot::Mutex::new(std::collections::BTreeSet::new()));
    let most = Arc::new(parking_lot::Mutex::new(0));
    let seen = (Arc::clone(&running), Arc::clone(&most));
    let model = Play::new(move |_, request| {
        let task = task(request);
        let answers = request.messages.iter().filter(|it| it.role == Role::Assistant).count();
        match (task.as_str(), answers) {
            ("lead", 0..5) => call("spawn_agent", json!({"task": format!("look {answers}")})),
            ("lead", 5) => call("wait", json!({})),
            ("lead", _) => say("all done"),
            (_, 0) => {
                let mut running = seen.0.lock();
                running.insert(task);
                let mut most = seen.1.lock();
                *most = running.len().max(*most);
                call("look", json!({"file": "x", "ms": 500}))
            }
            _ => {
                seen.0.lock().remove(&task);
                say("fine")
            }
        }
    });
    let settings = Settings { max_subagents: 2, ..deep(1) };
    let (mut session, journal) = session(&model, settings);
    let answer = session.send("lead".to_owned(), &never()).await.unwrap();
    assert_eq!((answer.text.as_str(), *most.lock()), ("all done", 2));
    let notes = notes_of(&journal.records());
    assert_eq!(notes.matches("completed build@1/a").count(), 5, "{notes}");
}

#[tokio::test(start_paused = true)]
async fn queued_agents_do_not_begin_when_their_session_ends() {
    let asked = Arc::new(parking_lot::Mutex::new(std::collections::BTreeSet::new()));
    let seen = Arc::clone(&asked);
    let model = Play::new(move |_, request| {
        let task = task(request);
        let answers = request.messages.iter().filter(|it| it.role == Role::Assistant).count();
        match (task.as_str(), answers) {
            ("lead", 0..3) => call("spawn_agent", json!({"task": format!("look {answers}")})),
            ("lead", _) => say("all done"),
            _ => {
                seen.lock().insert(task);
                call("look", json!({"file": "x", "ms": 500}))
            }
        }
    });
    let settings = Settings { max_subagents: 1, ..deep(1) };
    let (mut session, _) = session(&model, settings);
    let answer = session.send("lead".to_owned(), &never()).await.unwrap();
    assert_eq!(answer.text, "all done");
    assert_eq!(asked.lock().iter().cloned().collect::<Vec<_>>(), ["look 0"]);
}
