use insta::assert_snapshot;

use super::*;
use crate::session::{CONTINUE, NUDGE};
use crate::{SessionError, Steer};

#[tokio::test(start_paused = true)]
async fn turns_until_an_answer_without_a_call() {
    let model = Play::list(vec![
        Turn::Call("I look.".to_owned(), vec![("look", json!({"file": "a"}))]),
        Turn::Call(
            String::new(),
            vec![("change", json!({"file": "b"})), ("change", json!({"file": "a"}))],
        ),
        say("Done."),
    ]);
    let (mut session, journal) =
        session(&model, Settings { system: "Be brief.".to_owned(), ..settings() });
    let answer = session.send("Fix it".to_owned(), &never()).await.unwrap();
    assert_eq!(answer.text, "Done.");
    assert_eq!(answer.files_touched, ["a", "b"]);
    assert_eq!(answer.last_file_touched.as_deref(), Some("a"));
    assert_eq!((answer.turns, answer.usage.turns, answer.usage.input_tokens), (3, 3, 300));
    assert_snapshot!(notes_of(&journal.records()), @r#"
    user: Fix it
    assistant: I look. (1 turns)
    start c0.0 look {"file":"a"}
    --
    end c0.0 look: "look a"
    --
    assistant:  (1 turns)
    start c1.0 change {"file":"b"}
    start c1.1 change {"file":"a"}
    --
    end c1.0 change: "change b"
    --
    end c1.1 change: "change a"
    --
    assistant: Done. (1 turns)
    "#);
    let last = model.requests().pop().unwrap();
    assert_eq!(last.messages[0].text(), "Be brief.");
    assert_snapshot!(conversation(&session), @r"
    user: Fix it
    assistant: I look. [c0.0 look]
    tool: [c0.0 -> look a]
    assistant: [c1.0 change] [c1.1 change]
    tool: [c1.0 -> change b] [c1.1 -> change a]
    assistant: Done.
    ");
    let names: Vec<_> = last.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["change", "hang", "look"]);
}

#[tokio::test]
async fn a_script_with_the_tools_for_files() {
    let script = r#"{"fix": [
        {"text": "I look.", "tool_calls": [{"name": "read_file", "arguments": {"file_path": "a.txt"}}, {"name": "reed_file"}]},
        {"tool_calls": [{"name": "write_file", "arguments": {"file_path": "b/c.txt", "content": "new"}}, {"name": "write_file", "arguments": {"path": 7}}]},
        {"text": "Done."}
    ]}"#;
    let script = fabro_llm::Script::from_json(script).unwrap();
    let files = Arc::new(fabro_sandbox::MemoryFiles::new([("a.txt", "old")]));
    let tools = fabro_tools::file_tools(files.clone()).into_iter();
    let journal = Arc::new(MemoryJournal::default());
    let unused = Play::list(vec![say("")]);
    let parts = parts(&unused, &journal, settings());
    let mut session = Session::new(Parts {
        model: Arc::new(script.model("fix", &fabro_llm::TurnCounts::new())),
        tools: tools.fold(ToolSet::new(), ToolSet::with),
        ..parts
    });
    let answer = session.send("go".to_owned(), &never()).await.unwrap();
    assert_eq!((answer.text.as_str(), answer.files_touched), ("Done.", vec!["b/c.txt".to_owned()]));
    assert_eq!(files.all()["b/c.txt"], b"new");
    assert_snapshot!(conversation(&session), @r#"
    user: go
    assistant: I look. [call-fix-0-0 read_file] [call-fix-0-1 reed_file]
    tool: [call-fix-0-0 ->      1	old
    ] [call-fix-0-1 -> there is no tool `reed_file`: did you mean `read_file`?]
    assistant: [call-fix-1-0 write_file] [call-fix-1-1 write_file]
    tool: [call-fix-1-0 -> made b/c.txt: 3 bytes, 1 lines] [call-fix-1-1 -> the arguments of `write_file` are not valid: "file_path" is a required property; "content" is a required property; Additional properties are not allowed ('path' was unexpected). Call it again.]
    assistant: Done.
    "#);
}

#[tokio::test(start_paused = true)]
async fn readers_run_together_and_results_keep_the_order_of_the_calls() {
    let counts = Counts::default();
    let model = Play::list(vec![
        Turn::Call(
            String::new(),
            vec![
                ("look", json!({"file": "slow", "ms": 50})),
                ("look", json!({"file": "quick", "ms": 5})),
                ("change", json!({"file": "x"})),
                ("change", json!({"file": "y"})),
                ("look", json!({"file": "x"})),
            ],
        ),
        say("ok"),
    ]);
    let journal = Arc::new(MemoryJournal::default());
    let mut parts = parts(&model, &journal, settings());
    parts.tools = tools(&counts);
    let mut session = Session::new(parts);
    session.send("go".to_owned(), &never()).await.unwrap();
    assert_eq!(counts.most.load(Ordering::SeqCst), 2);
    assert_snapshot!(conversation(&session), @r"
    user: go
    assistant: [c0.0 look] [c0.1 look] [c0.2 change] [c0.3 change] [c0.4 look]
    tool: [c0.0 -> look slow] [c0.1 -> look quick] [c0.2 -> change x] [c0.3 -> change y] [c0.4 -> look x]
    assistant: ok
    ");
    assert_snapshot!(notes_of(&journal.records()), @r#"
    user: go
    assistant:  (1 turns)
    start c0.0 look {"file":"slow","ms":50}
    start c0.1 look {"file":"quick","ms":5}
    start c0.2 change {"file":"x"}
    start c0.3 change {"file":"y"}
    start c0.4 look {"file":"x"}
    --
    end c0.0 look: "look slow"
    --
    end c0.1 look: "look quick"
    --
    end c0.2 change: "change x"
    --
    end c0.3 change: "change y"
    --
    end c0.4 look: "look x"
    --
    assistant: ok (1 turns)
    "#);
}

#[tokio::test(start_paused = true)]
async fn canceling_ends_tools_and_answers_without_a_record() {
    for turn in [call("hang", json!({})), Turn::Hang] {
        let model = Play::list(vec![say("first"), turn]);
        let (mut session, journal) = session(&model, settings());
        session.send("one".to_owned(), &never()).await.unwrap();
        let cancel = CancellationToken::new();
        let soon = async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            let before = journal.notes().len();
            cancel.cancel();
            before
        };
        let (end, before) = tokio::join!(session.send("two".to_owned(), &cancel), soon);
        assert_eq!(end, Err(SessionError::Canceled));
        assert_eq!(journal.notes().len(), before);
    }
}

#[tokio::test(start_paused = true)]
async fn steering_comes_before_the_next_request() {
    let model = Play::list(vec![call("look", json!({"ms": 100})), say("first"), say("second")]);
    let (mut session, journal) = session(&model, settings());
    let steering = session.steering();
    let soon = async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert!(steering.send(Steer { ticket: Some(7), ..Steer::new("Mind the gap", "inbox") }));
    };
    let cancel = never();
    let (answer, ()) = tokio::join!(session.send("go".to_owned(), &cancel), soon);
    assert_eq!(answer.unwrap().text, "first");
    assert_snapshot!(notes_of(&journal.records()), @r#"
    user: go
    assistant:  (1 turns)
    start c0.0 look {"ms":100}
    --
    end c0.0 look: "look f"
    --
    inbox: Mind the gap
    assistant: first (1 turns)
    "#);
    let tickets: Vec<_> = journal.records().into_iter().map(|record| record.tickets).collect();
    assert_eq!(tickets, [vec![], vec![], vec![7]]);
    // What came too late for one answer is for the next.
    steering.send(Steer::new("And mind the step", "inbox"));
    let answer = session.resume(&never()).await.unwrap();
    assert_eq!(answer.text, "second");
    drop(session);
    assert!(!steering.send(Steer::new("Hello?", "inbox")));
}

#[tokio::test(start_paused = true)]
async fn limits_of_turns_and_spending() {
    let model = Play::new(|number, _| call("look", json!({"file": number})));
    let (mut session, _) = session(&model, Settings { max_turns: 3, ..settings() });
    let end = session.send("go".to_owned(), &never()).await;
    assert_eq!(end, Err(SessionError::TurnLimit { max: 3 }));
    assert_snapshot!(end.unwrap_err(), @"turn limit of 3 reached: raise max_turns");
    assert_eq!(session.usage().turns, 3);
}

#[tokio::test(start_paused = true)]
async fn what_was_touched_before_a_failure_is_known() {
    let change = call("change", json!({"file": "a"}));
    let model = Play::list(vec![change, Turn::Fail(ErrorKind::InvalidRequest)]);
    let (mut session, _) = session(&model, settings());
    session.send("go".to_owned(), &never()).await.unwrap_err();
    assert_eq!(session.files_touched(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_spent_budget_loses_nothing() {
    let model = Play::new(|number, _| match number {
        0..=2 => call("look", json!({"file": number})),
        _ => say("done"),
    });
    let two: crate::MayAsk = Arc::new(|usage: &Usage| usage.turns < 2);
    let (mut session, journal) = session(&model, Settings { may_ask: Some(two), ..settings() });
    let end = session.send("go".to_owned(), &never()).await;
    assert_eq!(end, Err(SessionError::Budget));
    let transcript = Transcript::from_notes(&journal.notes(), no_blobs).unwrap();
    let (mut again, _) = super::session(&model, settings());
    again.restore(model.after(transcript));
    assert_eq!(conversation(&again), conversation(&session));
    assert_eq!(again.resume(&never()).await.unwrap().turns, 4);
    assert_eq!(model.requests().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn nothing_may_be_spent_at_all() {
    let model = Play::list(vec![say("done")]);
    let none: crate::MayAsk = Arc::new(|_: &Usage| false);
    let (mut session, journal) = session(&model, Settings { may_ask: Some(none), ..settings() });
    assert_eq!(session.send("go".to_owned(), &never()).await, Err(SessionError::Budget));
    assert_snapshot!(notes_of(&journal.records()), @"user: go");
}

#[tokio::test(start_paused = true)]
async fn texts_that_are_cut_off_are_continued() {
    let cut = |text: &str| Turn::Cut(text.to_owned(), Vec::new());
    let model = Play::list(vec![cut("one "), cut("two "), say("three")]);
    let (mut session, journal) = session(&model, settings());
    assert_eq!(session.send("count".to_owned(), &never()).await.unwrap().text, "one two three");
    // The same is read back.
    let (mut again, _) = super::session(&model, settings());
    again.restore(model.after(Transcript::from_notes(&journal.notes(), no_blobs).unwrap()));
    assert_eq!(again.resume(&never()).await.unwrap().text, "one two three");

    let model = Play::list(vec![cut("more ")]);
    let (mut session, journal) = super::session(&model, settings());
    let answer = session.send("count".to_owned(), &never()).await.unwrap();
    assert_eq!(answer.text, "more more more more ");
    assert!(answer.is_cut_off);
    assert!(notes_of(&journal.records()).contains("warning cut_off: "));
    let (mut again, _) = super::session(&model, settings());
    again.restore(model.after(Transcript::from_notes(&journal.notes(), no_blobs).unwrap()));
    assert!(again.resume(&never()).await.unwrap().is_cut_off);
    assert_eq!(session.messages().filter(|message| message.text() == CONTINUE).count(), 3);
}

#[tokio::test(start_paused = true)]
async fn answers_that_were_cut_off_before_a_crash_count() {
    let text = Turn::Cut("more ".to_owned(), Vec::new());
    let call = Turn::Cut(String::new(), vec![("change", json!("{\"fi"))]);
    for (turn, expected) in [(text, None), (call, Some(SessionError::CutOff { count: 4 }))] {
        let model = Play::list(vec![turn]);
        let (mut session, journal) = session(&model, settings());
        let ended = session.send("go".to_owned(), &never()).await;
        assert_eq!(ended.err(), expected);
        let notes = journal.notes();
        let answers = |notes: &[Note]| {
            let is_answer = |note: &&Note| matches!(&note.body, EventBody::AgentMessage { role, .. } if role == "assistant");
            notes.iter().filter(is_answer).count()
        };
        assert_eq!(answers(&notes), 4);
        // Killed after any of its records.
        let records = journal.records();
        for count in 1..records.len() {
            let before: Vec<_> =
                records[..count].iter().flat_map(|record| record.notes.clone()).collect();
            let transcript = Transcript::from_notes(&before, no_blobs).unwrap();
            if transcript.open.is_some() {
                // The result of the call, which says that it was cut off, is not recorded yet.
                continue;
            }
            let (mut again, journal) = super::session(&model, settings());
            again.restore(model.after(transcript));
            let ended = again.resume(&never()).await;
            assert_eq!(ended.err(), expected, "after {count} records");
            let all = answers(&before) + answers(&journal.notes());
            assert_eq!(all, 4, "after {count} records");
        }
    }
}

/// The notes as versions before the marking of messages recorded them.
fn unmarked(mut notes: Vec<Note>) -> Vec<Note> {
    for note in &mut notes {
        if let EventBody::AgentMessage { purpose, .. } = &mut note.body {
            *purpose = None;
        }
    }
    notes
}

#[tokio::test(start_paused = true)]
async fn continuations_are_recognised_by_their_mark_and_in_old_records_by_their_text() {
    let cut = |text: &str| Turn::Cut(text.to_owned(), Vec::new());
    let model = Play::list(vec![cut("one "), say("two")]);
    let (mut session, journal) = session(&model, settings());
    session.send("count".to_owned(), &never()).await.unwrap();
    for notes in [journal.notes(), unmarked(journal.notes())] {
        let (mut again, _) = super::session(&model, settings());
        again.restore(model.after(Transcript::from_notes(&notes, no_blobs).unwrap()));
        assert_eq!(again.resume(&never()).await.unwrap().text, "one two");
    }

    // A request with the words of a continuation is a request.
    let model = Play::list(vec![say("one "), say("two")]);
    let (mut session, journal) = super::session(&model, settings());
    session.send("count".to_owned(), &never()).await.unwrap();
    assert_eq!(session.send(CONTINUE.to_owned(), &never()).await.unwrap().text, "two");
    let (mut again, _) = super::session(&model, settings());
    again.restore(model.after(Transcript::from_notes(&journal.notes(), no_blobs).unwrap()));
    assert_eq!(again.resume(&never()).await.unwrap().text, "two");
}

#[tokio::test(start_paused = true)]
async fn corrections_are_counted_by_their_mark_and_in_old_records_by_their_warning() {
    let model = Play::list(vec![say("one"), say("two"), say("three")]);
    let (mut session, journal) = session(&model, settings());
    session.send("count".to_owned(), &never()).await.unwrap();
    session.correct("not a number".to_owned(), &never()).await.unwrap();
    session.send("and now?".to_owned(), &never()).await.unwrap();
    for notes in [journal.notes(), unmarked(journal.notes())] {
        let (mut again, _) = super::session(&model, settings());
        again.restore(model.after(Transcript::from_notes(&notes, no_blobs).unwrap()));
        assert_eq!(again.corrections(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn calls_that_are_cut_off_do_not_run() {
    let cut =
        Turn::Cut(String::new(), vec![("look", json!({"file": "a"})), ("change", json!("{\"fi"))]);
    let model = Play::list(vec![cut.clone(), say("done")]);
    let (mut session, _) = session(&model, settings());
    session.send("go".to_owned(), &never()).await.unwrap();
    assert_snapshot!(conversation(&session), @r"
    user: go
    assistant: [c0.0 look] [c0.1 change]
    tool: [c0.0 -> look a] [c0.1 -> [cut off: the answer reached its limit of tokens before the arguments of this call were whole, so it did not run. Make the call again, with less in it.]]
    assistant: done
    ");

    let model = Play::list(vec![cut]);
    let (mut session, _) = super::session(&model, settings());
    let end = session.send("go".to_owned(), &never()).await;
    assert_eq!(end, Err(SessionError::CutOff { count: 4 }));
}

#[tokio::test(start_paused = true)]
async fn an_empty_answer_is_asked_for_once_more() {
    let model = Play::list(vec![say(" \n"), say("there")]);
    let (mut session, journal) = session(&model, settings());
    assert_eq!(session.send("hello".to_owned(), &never()).await.unwrap().text, "there");
    assert_snapshot!(notes_of(&journal.records()), @r"
    user: hello
    empty_answer: [Your answer was empty. Go on with the w
    assistant: there (2 turns)
    ");
    assert_eq!(model.requests()[1].messages.last().unwrap().text(), NUDGE);
    let model = Play::list(vec![say("")]);
    let (mut session, _) = super::session(&model, settings());
    assert_eq!(session.send("hello".to_owned(), &never()).await, Err(SessionError::Empty));
    assert_eq!((model.requests().len(), session.usage().turns), (2, 2));
    let model = Play::list(vec![say(""), say(""), say("7")]);
    let settings = Settings { takes_empty_answers: true, ..settings() };
    let (mut session, journal) = super::session(&model, settings);
    assert_eq!(session.send("hello".to_owned(), &never()).await.unwrap().text, "");
    let answer = session.correct("A number.".to_owned(), &never()).await.unwrap();
    assert_eq!((answer.text.as_str(), answer.usage.turns), ("7", 3));
    assert_snapshot!(notes_of(&journal.records()), @r"
    user: hello
    empty_answer: [Your answer was empty. Go on with the w
    assistant:  (2 turns)
    --
    warning output_schema: A number.
    user: A number.
    assistant: 7 (1 turns)
    ");
}

#[tokio::test(start_paused = true)]
async fn a_call_in_words_is_warned_of() {
    let model = Play::list(vec![say(r#"{"name": "look", "arguments": {"file": "a"}}"#)]);
    let (mut session, journal) = session(&model, settings());
    session.send("hello".to_owned(), &never()).await.unwrap();
    let notes = notes_of(&journal.records());
    let warning =
        "warning tools: the answer has a tool call written as text, which is not executed";
    assert!(notes.contains(warning), "{notes}");
}

#[tokio::test(start_paused = true)]
async fn failed_tries_are_recorded_and_counted() {
    let model = Play::list(vec![Turn::Fail(ErrorKind::Overloaded), say("there")]);
    let asking = RequestPolicy {
        retry: RetryPolicy { jitter: false, ..RetryPolicy::default() },
        ..RequestPolicy::default()
    };
    let (mut session, journal) = session(&model, Settings { asking: asking.clone(), ..settings() });
    let answer = session.send("hello".to_owned(), &never()).await.unwrap();
    assert_eq!((answer.turns, answer.usage.turns), (1, 1));
    assert_eq!(answer.usage.failed_requests, 1);
    assert_snapshot!(notes_of(&journal.records()), @r"
    user: hello
    error transient_infra: asking again in 1 s: the model's server is overloaded or has failed: try again later
    --
    assistant: there (1 turns)
    ");

    let model = Play::list(vec![Turn::Fail(ErrorKind::Auth)]);
    let (mut session, journal) = super::session(&model, Settings { asking, ..settings() });
    let end = session.send("hello".to_owned(), &never()).await.unwrap_err();
    assert_eq!(end.class(), fabro_types::FailureClass::Deterministic);
    assert_snapshot!(notes_of(&journal.records()), @"user: hello");
}

#[tokio::test(start_paused = true)]
async fn a_failed_try_is_recorded_before_the_next_one() {
    let fails = Play::list(vec![Turn::Fail(ErrorKind::Overloaded)]);
    let retry = RetryPolicy { jitter: false, ..RetryPolicy::default() };
    let asking = RequestPolicy { retry, ..RequestPolicy::default() };
    let price: crate::Price = Arc::new(|usage| usage.cost_usd = 0.25 * f64::from(usage.requests()));
    let settings = || Settings { price: Some(Arc::clone(&price)), ..settings() };
    let (mut session, journal) = session(&fails, Settings { asking, ..settings() });
    let never = never();
    let sent = session.send("hello".to_owned(), &never);
    let in_the_wait = std::time::Duration::from_millis(500);
    assert!(tokio::time::timeout(in_the_wait, sent).await.is_err());
    // It was paid for, whether the run is canceled now or killed.
    assert_eq!((session.usage().failed_requests, session.usage().cost_usd), (1, 0.25));
    assert_snapshot!(notes_of(&journal.records()), @r"
    user: hello
    error transient_infra: asking again in 1 s: the model's server is overloaded or has failed: try again later
    ");
    // After a kill during the wait, the session resumes with the same request.
    let recorded = Transcript::from_notes(&journal.notes(), super::no_blobs).unwrap();
    assert_eq!((recorded.usage().failed_requests, recorded.usage().cost_usd), (1, 0.25));
    let model = Play::list(vec![say("there")]);
    let (mut session, later) = super::session(&model, settings());
    session.restore(model.after(recorded));
    let answer = session.resume(&never).await.unwrap();
    assert_eq!((answer.text.as_str(), answer.usage.cost_usd), ("there", 0.5));
    assert_eq!(model.requests()[0].messages.len(), 1);
    // Each request is in the record once.
    let notes = [journal.notes(), later.notes()].concat();
    let recorded = Transcript::from_notes(&notes, super::no_blobs).unwrap();
    let counts = recorded.usage();
    assert_eq!((counts.turns, counts.failed_requests, counts.cost_usd), (1, 1, 0.5));
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_repeats_itself_is_warned_and_ended() {
    let model = Play::list(vec![call("look", json!({"file": "a"}))]);
    let (mut session, journal) = session(&model, settings());
    let end = session.send("go".to_owned(), &never()).await.unwrap_err();
    assert_eq!(end.class(), fabro_types::FailureClass::CompilationLoop);
    assert_snapshot!(end, @"the agent repeats itself and was warned 3 times: change its prompt or its tools (it keeps calling look)");
    assert_eq!(session.usage().turns, 40);
    let steered = journal.notes().into_iter().filter(|note| {
        matches!(&note.body, EventBody::AgentSteered { source, .. } if source == "loop_detection")
    });
    assert_eq!(steered.count(), 3);

    let quiet = Settings { loop_detection: false, max_turns: 60, ..settings() };
    let (mut session, _) = super::session(&model, quiet);
    let end = session.send("go".to_owned(), &never()).await;
    assert_eq!(end, Err(SessionError::TurnLimit { max: 60 }));
}

#[tokio::test(start_paused = true)]
async fn a_refused_tool_is_reported_once() {
    let model = Play::list(vec![call("wreck", json!({})), call("wreck", json!({})), say("no")]);
    let (mut session, journal) = session(&model, settings());
    session.send("go".to_owned(), &never()).await.unwrap();
    let recorded = notes_of(&journal.records());
    let warnings: Vec<_> = recorded.lines().filter(|line| line.starts_with("warning")).collect();
    assert_snapshot!(warnings.join("\n"), @r#"warning permission: the agent may not use `wreck`: it needs permissions "full", and has "read-write""#);
}

#[tokio::test(start_paused = true)]
async fn calls_get_ids_of_their_own() {
    struct SameIds;
    impl Model for SameIds {
        fn stream(&self, request: Request) -> BoxStream<'static, Result<Part, ModelError>> {
            let call = |id: &str| {
                let arguments = json!({"file": "a"});
                Part::ToolCall(ToolCall { id: id.to_owned(), name: "look".to_owned(), arguments })
            };
            let mut parts = match request.messages.len() {
                ..=4 => vec![call("x"), call("x"), call("")],
                _ => vec![Part::Text("done".to_owned())],
            };
            parts.push(Part::End { usage: Usage::default(), stop: StopReason::Complete });
            stream::iter(parts.into_iter().map(Ok).collect::<Vec<_>>()).boxed()
        }
    }
    let journal = Arc::new(MemoryJournal::default());
    let unused = Play::list(vec![say("")]);
    let mut session =
        Session::new(Parts { model: Arc::new(SameIds), ..parts(&unused, &journal, settings()) });
    session.send("go".to_owned(), &never()).await.unwrap();
    assert_snapshot!(conversation(&session), @r"
    user: go
    assistant: [x look] [x-1 look] [call-2 look]
    tool: [x -> look a] [x-1 -> look a] [call-2 -> look a]
    assistant: [x-3 look] [x-4 look] [call-5 look]
    tool: [x-3 -> look a] [x-4 -> look a] [call-5 -> look a]
    assistant: done
    ");
}

#[tokio::test(start_paused = true)]
async fn corrections_are_counted_over_a_crash() {
    let model = Play::list(vec![say("no JSON"), say("{}")]);
    let (mut session, journal) = session(&model, settings());
    session.send("go".to_owned(), &never()).await.unwrap();
    let answer = session.correct("not JSON: say JSON".to_owned(), &never()).await.unwrap();
    assert_eq!(answer.text, "{}");
    assert_snapshot!(notes_of(&journal.records()), @r"
    user: go
    assistant: no JSON (1 turns)
    --
    warning output_schema: not JSON: say JSON
    user: not JSON: say JSON
    assistant: {} (1 turns)
    ");
    let (mut again, _) = super::session(&model, settings());
    again.restore(model.after(Transcript::from_notes(&journal.notes(), no_blobs).unwrap()));
    assert_eq!((again.corrections(), session.corrections()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn secrets_are_blanked_out_of_answers_and_errors() {
    let redactor = fabro_redact::Redactor::new([("KEY", "hunter2-hunter2")]);
    let model = Play::list(vec![
        call("change", json!({"file": "a", "says": "hunter2-hunter2"})),
        say("the key is hunter2-hunter2"),
    ]);
    let (mut session, journal) = discreet(&model, redactor);
    let answer = session.send("go".to_owned(), &never()).await.unwrap();
    assert!(!answer.text.contains("hunter2"), "{}", answer.text);
    assert!(!format!("{:?}", journal.records()).contains("hunter2"));
}

#[tokio::test(start_paused = true)]
async fn an_answer_keeps_its_text_before_redaction() {
    let redactor = fabro_redact::Redactor::new([("KEY", "hunter2-hunter2")]);
    let model = Play::list(vec![
        call("change", json!({"file": "a", "says": "x"})),
        Turn::Cut("the key hunter2-hunter2 ".to_owned(), Vec::new()),
        say("is hunter2-hunter2"),
        say("done"),
    ]);
    let (mut session, journal) = discreet(&model, redactor.clone());
    let answer = session.send("go".to_owned(), &never()).await.unwrap();
    assert_eq!(answer.text, "the key [redacted:KEY] is [redacted:KEY]");
    let unredacted = answer.unredacted.as_ref().map(fabro_redact::Unredacted::expose);
    assert_eq!(unredacted, Some("the key hunter2-hunter2 is hunter2-hunter2"));
    assert!(!format!("{answer:?} {:?}", journal.records()).contains("hunter2"));
    // The log has only the redacted text.
    let (mut again, _) = discreet(&model, redactor);
    again.restore(model.after(Transcript::from_notes(&journal.notes(), no_blobs).unwrap()));
    let recorded = again.resume(&never()).await.unwrap();
    assert_eq!((recorded.text, recorded.unredacted), (answer.text, None));
    let next = session.send("go on".to_owned(), &never()).await.unwrap();
    assert_eq!((&*next.text, next.unredacted), ("done", None));
}

#[tokio::test(start_paused = true)]
async fn a_secret_in_a_call_reaches_only_its_tool() {
    let redactor = fabro_redact::Redactor::new([("KEY", "hunter2-hunter2")]);
    let model = Play::list(vec![
        call("change", json!({"file": "hunter2-hunter2", "says": "x"})),
        call("hunter2-hunter2", json!({})),
        say("done"),
    ]);
    let (mut session, journal) = discreet(&model, redactor.clone());
    // The tools report the file without their redactor.
    session.tools = session.tools.with_redactor(fabro_redact::Redactor::default());
    let answer = session.send("go".to_owned(), &never()).await.unwrap();
    assert_eq!(answer.files_touched, ["hunter2-hunter2"]);
    let requests = model.requests();
    let last = &requests[2].messages;
    let shown = |messages: &[Arc<Message>]| format!("{messages:?}");
    assert!(shown(last).contains("[redacted:KEY]") && !shown(last).contains("hunter2"));
    // After a crash it is shown the same.
    let (mut again, _) = discreet(&model, redactor);
    again.restore(model.after(Transcript::from_notes(&journal.notes(), no_blobs).unwrap()));
    let messages: Vec<_> = again.messages().cloned().collect();
    assert_eq!(shown(&messages[..last.len()]), shown(last));
}

fn discreet(model: &Arc<Play>, redactor: fabro_redact::Redactor) -> (Session, Arc<MemoryJournal>) {
    let settings = Settings { redactor: redactor.clone(), subagent_depth: 1, ..settings() };
    let journal = Arc::new(MemoryJournal::default());
    let mut parts = parts(model, &journal, settings);
    parts.tools = parts.tools.with_redactor(redactor);
    (Session::new(parts), journal)
}

#[tokio::test(start_paused = true)]
async fn secrets_are_redacted_in_messages_to_subagents() {
    let redactor = fabro_redact::Redactor::new([("KEY", "hunter2-hunter2")]);
    let model = Play::new(|_, request| {
        let asked = request.messages.iter().filter(|it| it.role == Role::User);
        let asked: Vec<_> = asked.map(|it| it.text()).collect();
        let results = request.messages.iter().filter(|it| it.role == Role::Tool).count();
        match (asked[0].as_str(), results) {
            ("go", 0) => call("spawn_agent", json!({"task": "log in with hunter2-hunter2"})),
            ("go", 1 | 3) => call("wait", json!({})),
            ("go", 2) => {
                call("send_input", json!({"agent_id": "build@1/a1", "text": "hunter2-hunter2!"}))
            }
            _ => say("done"),
        }
    });
    let (mut session, journal) = discreet(&model, redactor);
    session.send("go".to_owned(), &never()).await.unwrap();
    let records = format!("{:?}", journal.records());
    assert!(records.contains("log in with [redacted:KEY]"), "{records}");
    assert!(records.contains("[redacted:KEY]!"), "{records}");
    assert!(!records.contains("hunter2"), "{records}");
}

#[tokio::test(start_paused = true)]
async fn nothing_to_resume() {
    let model = Play::list(vec![say("x")]);
    let (mut session, journal) = session(&model, settings());
    assert_eq!(session.resume(&never()).await, Err(SessionError::NothingToResume));
    assert!(journal.records().is_empty());
}

/// Its calls last until they are canceled, and then notify another, which takes a while.
struct NotifyingTool {
    spec: ToolSpec,
    notified: Arc<AtomicUsize>,
    takes: Duration,
}

#[async_trait]
impl Tool for NotifyingTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn needs(&self) -> Permissions {
        Permissions::ReadOnly
    }

    fn ends_slowly(&self) -> bool {
        true
    }

    async fn call(&self, call: Call<'_>) -> Output {
        call.cancel.cancelled().await;
        tokio::time::sleep(self.takes).await;
        self.notified.fetch_add(1, Ordering::SeqCst);
        Output::error("canceled")
    }
}

#[tokio::test(start_paused = true)]
async fn a_canceled_call_may_notify_others() {
    for (millis, expect) in [(300, 1), (60_000, 0)] {
        let model = Play::list(vec![call("tell", json!({}))]);
        let journal = Arc::new(MemoryJournal::default());
        let notified = Arc::new(AtomicUsize::new(0));
        let spec = ToolSpec {
            name: "tell".to_owned(),
            description: String::new(),
            parameters: Arc::new(json!({"type": "object"})),
        };
        let takes = Duration::from_millis(millis);
        let tool = NotifyingTool { spec, notified: Arc::clone(&notified), takes };
        let tools = ToolSet::default().with(Arc::new(tool));
        let mut session = Session::new(Parts { tools, ..parts(&model, &journal, settings()) });
        let cancel = CancellationToken::new();
        let soon = async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            cancel.cancel();
            tokio::time::Instant::now()
        };
        let (end, canceled) = tokio::join!(session.send("one".to_owned(), &cancel), soon);
        assert_eq!((end, notified.load(Ordering::SeqCst)), (Err(SessionError::Canceled), expect));
        assert!(canceled.elapsed() < Duration::from_secs(3));
    }
}
