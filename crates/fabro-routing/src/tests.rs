mod validated;

use std::ops::Range;

use proptest::prelude::*;

use super::*;

/// What is found, as text: the directives' JSON-like debug form, then the warnings.
#[track_caller]
fn check(text: &str, expect: &str) {
    let found = extract(text).map_or_else(
        || "nothing".to_owned(),
        |found| {
            let Directives {
                outcome,
                failure_reason,
                preferred_next_label,
                suggested_next_ids,
                context_updates,
            } = found.directives;
            let mut words = Vec::new();
            words.extend(outcome.map(|outcome| match outcome {
                OutcomeWord::Status(status) => status.to_string(),
                OutcomeWord::Custom(word) => format!("custom {word}"),
            }));
            words.extend(failure_reason.map(|reason| format!("because {reason}")));
            words.extend(preferred_next_label.map(|label| format!("label {label}")));
            words.extend(suggested_next_ids.iter().map(|id| format!("to {id}")));
            words.extend(context_updates.iter().map(|(key, value)| format!("{key} = {value}")));
            words.extend(found.warnings.into_iter().map(|warning| warning.message));
            words.extend(found.unreadable.map(|it| {
                let states = if it.states_outcome { "outcome" } else { "other" };
                format!("unreadable {states} {}:{} {}", it.line, it.column, it.message)
            }));
            words.join("; ")
        },
    );
    assert_eq!(found, expect, "{text}");
}

#[test]
fn large_integers_keep_their_digits() {
    check(
        r#"{"context_updates": {"id": 123456789012345678901, "small": 18446744073709551615}}"#,
        r#"id = "123456789012345678901"; small = 18446744073709551615"#,
    );
    let schema = r#"{"type": "object", "properties": {"id": {"type": "integer"}}}"#;
    let schema = Schema::compile(schema).unwrap();
    let checked = super::check(r#"{"id": 123456789012345678901}"#, Expected::Schema(&schema));
    let expect = serde_json::json!({"id": "123456789012345678901"});
    assert_eq!(checked, Checked::Valid(expect));
}

#[test]
fn all_fields_are_read() {
    check(
        r#"{"outcome": "failed", "failure_reason": "tests failed", "preferred_next_label": "fix",
            "suggested_next_ids": ["implement", "review"],
            "context_updates": {"tests_passed": true, "coverage": 85}}"#,
        "failed; because tests failed; label fix; to implement; to review; coverage = 85; \
         tests_passed = true",
    );
    check(r#"{"outcome":"success"}"#, "succeeded");
    check(r#"{"outcome":"needs_dod"}"#, "custom needs_dod");
    check(r#"{"outcome":" ","preferred_next_label":"","failure_reason":"\n"}"#, "");
    check(r#"{"outcome":"failed","outcome":"succeeded"}"#, "succeeded");
    check(r#"{"\u006futcome":"failed"}"#, "failed");
}

#[test]
fn the_last_object_with_a_recognised_field_counts() {
    check(r#"{"outcome":"failed"} then {"outcome":"succeeded"}"#, "succeeded");
    check(r#"{"outcome":"failed"} then {"other":1}"#, "failed");
    check(
        r#"{"outcome":"failed"} then {"outcome":}"#,
        "failed; unreadable outcome 1:38 expected value",
    );
    check("```json\n{\"preferred_next_label\": \"fix\"}\n```\n", "label fix");
    check(r#"{"other":1} {}"#, "nothing");
    check("", "nothing");
}

#[test]
fn an_object_inside_another_is_never_taken_alone() {
    check(
        r#"{"preferred_next_label":"a","context_updates":{"outcome":"failed"}}"#,
        r#"label a; outcome = "failed""#,
    );
    check(r#"{"result":{"outcome":"failed"}}"#, "nothing");
    check(r#"{"result":{"outcome":"failed"},}"#, "nothing");
    check(r#"{result:{"outcome":"failed"}}"#, "nothing");
    check(r#"fn f() { return {"outcome":"failed"} }"#, "nothing");
    check(r#"{"reason":"{"outcome":"failed"}"}"#, "nothing");
    check(r#"{"reason":"{\"outcome\":\"failed\"}"}"#, "nothing");
    check(
        r#"{"preferred_next_label":"a","context_updates":{"outcome":"failed"}"#,
        "unreadable other 1:1 it breaks off before its closing brace",
    );
    check(r#"{"a":[{"outcome":"failed"}, {"outcome":"failed"}"#, "nothing");
}

#[test]
fn control_characters_inside_strings_are_accepted() {
    let failed = "failed; because red:\n\t2 of 3";
    check("{\"outcome\":\"failed\",\"failure_reason\":\"red:\n\t2 of 3\"}", failed);
    check("{\"outcome\": \"failed\",\r\n \"failure_reason\": \"red:\n\t2 of 3\"\r\n}", failed);
    check("{\"failure_reason\":\"a\u{0}b\",\"outcome\":\"failed\"}", "failed; because a\u{0}b");
    check(
        "{\"outcome\":\"failed\",\"context_updates\":{\"a\":\"x\ny\",\"id\":123456789012345678901}}",
        r#"failed; a = "x\ny"; id = "123456789012345678901""#,
    );
    let schema = Schema::compile(r#"{"type": "object", "required": ["a"]}"#).unwrap();
    let checked = super::check("{\"a\":\"x\ny\"}", Expected::Schema(&schema));
    assert_eq!(checked, Checked::Valid(serde_json::json!({"a": "x\ny"})));
}

#[test]
fn an_invalid_object_is_reported_with_line_and_column() {
    check("Done.\n{\"outcome\": \"failed\",}", "unreadable outcome 2:22 trailing comma");
    check(
        r#"{"outcome":"failed","failure_reason":"C:\Users"}"#,
        "unreadable outcome 1:42 invalid escape",
    );
    check(
        r#"{"outcome":"failed","failure_reason":"\ud800"}"#,
        "unreadable outcome 1:45 unexpected end of hex escape",
    );
    check(
        "{\"failure_reason\":\"a\nb\",\n\"outcome\":\"failed\",\"n\":NaN}",
        "unreadable outcome 3:24 expected value",
    );
    check(r#"{"outcome":"failed","n":1e400}"#, "unreadable outcome 1:29 number out of range");
    check(
        r#"é {"outcome":"failed","failure_reason":"2 of"#,
        "unreadable outcome 1:3 it breaks off before its closing brace",
    );
    check(
        r#"{"outcome":"succeeded"} no: {"outcome":"failed",}"#,
        "succeeded; unreadable outcome 1:49 trailing comma",
    );
    check(r#"{"outcome":"succeeded",} no: {"outcome":"failed"}"#, "failed");
    check(
        r#"{"outcome":"succeeded"} {"preferred_next_label":fix}"#,
        "succeeded; unreadable other 1:50 expected ident",
    );
    check(r#"{"outcome":"succeeded"} {"other":fix}"#, "succeeded");
}

#[test]
fn a_later_object_without_an_outcome_does_not_hide_a_broken_one() {
    let broken = r#"{"outcome":"failed",}"#;
    let unreadable = "unreadable outcome 1:21 trailing comma";
    check(&format!(r#"{broken} {{"context_updates":{{"a":1}}}}"#), &format!("a = 1; {unreadable}"));
    check(
        &format!(r#"{broken} {{"preferred_next_label":fix}} {{"failure_reason":"x"}}"#),
        &format!("because x; {unreadable}"),
    );
    check(
        &format!(r#"{broken} {{"failure_reason":"x","status":"succeeded"}}"#),
        "succeeded; because x; `status` is read as `outcome`, which is absent",
    );
    let after = r#"{"preferred_next_label":a,} {"context_updates":{}}"#;
    check(after, "");
    let invalid =
        |text: &str| matches!(super::check(text, Expected::Routing), Checked::Invalid { .. });
    assert!(invalid(&format!(r#"{broken} {{"context_updates":{{"a":1}}}}"#)));
    assert!(!invalid(&format!(r#"{broken} {{"outcome":"succeeded"}}"#)));
    assert!(!invalid(after));
}

#[test]
fn an_outcome_in_another_notation_is_reported() {
    let reported = |text: &str| {
        let unreadable = extract(text).and_then(|found| found.unreadable);
        let invalid = matches!(super::check(text, Expected::Routing), Checked::Invalid { .. });
        assert_eq!(unreadable.is_some(), invalid, "{text}");
        unreadable.is_some_and(|it| it.states_outcome)
    };
    for text in [
        "{'outcome':'failed','failure_reason':'x'}",
        "Done. {outcome:\"failed\"}",
        "{ outcome: failed }",
        "{\u{201c}outcome\u{201d}: \u{201c}failed\u{201d}}",
        "{\u{201c}outcome\u{201d}\u{ff1a}\u{201c}failed\u{201d}}",
        r#"{"outcome" "failed"}"#,
        r#"{"outcome"="failed"}"#,
        r#"{"outcome" => "failed"}"#,
        r#"a 5" pipe: {"failure_reason":"x", "outcome"="failed"}"#,
        "{\n  'failure_reason': 'x',\n  'outcome': 'failed'\n}",
        "{'outcome': 'failed', 'failure_reason': 'a 5\" pipe'}",
        "{'outcome': 'failed', 'failure_rea",
        "{\"outcome\":\"succeeded\"} no: {'outcome':'failed'}",
        "{'outcome':'failed'} {\"context_updates\":{}}",
    ] {
        assert!(reported(text), "{text}");
    }
    for text in [
        "outcome: 'failed', \"outcome\" \"failed\"",
        "{the outcome: 'failed'}",
        "{outcomes: 'failed'}",
        "{outcome}, {outcome:?} and {outcome: Outcome}",
        "let Done { outcome, failure_reason } = done;",
        "if red { outcome = \"failed\"; }",
        "fn f() { return { outcome: 'failed' } }",
        "{'result': {'outcome': 'failed'}}",
        r#"{"failure_reason":"{outcome:'failed'}"}"#,
        r#"["outcome" "failed"] {"a": ["outcome" "failed"]}"#,
        r#"{'outcome':'failed'} {"outcome":"succeeded"}"#,
    ] {
        assert!(!reported(text), "{text}");
    }
}

#[test]
fn braces_and_quotes_in_prose_hide_nothing() {
    check(r#"use {braces like this and then {"outcome":"failed"}"#, "failed");
    check(r#"a 5" pipe, then {"outcome":"failed"}"#, "failed");
    check(r#"it's {5" wide}. {"outcome":"failed"} for 5" pipes, see}"#, "failed");
    check(r#"use {"braces": like this and then {"outcome":"failed"}"#, "failed");
    check(r#"broke off: {"outcome": "succ... Again: {"outcome":"failed"}"#, "failed");
    check(r#"}} {{ x: {"outcome":"failed"}"#, "failed");
    check(r#"match c { '"' => 1, } {"outcome":"failed"} match c { '"' => 2, }"#, "failed");
    check(
        r#"C:\dir\"x" {"outcome":"failed","failure_reason":"a } \" { b\\"}"#,
        r#"failed; because a } " { b\"#,
    );
}

#[test]
fn wrong_types_are_ignored_field_by_field() {
    check(
        r#"{"outcome":1,"failure_reason":null,"preferred_next_label":["a"],"suggested_next_ids":"b",
            "context_updates":[1]}"#,
        "`outcome` is ignored: it must be a string, not a number; \
         `failure_reason` is ignored: it must be a string, not null; \
         `preferred_next_label` is ignored: it must be a string, not an array; \
         `suggested_next_ids` is ignored: it must be an array of strings, not a string; \
         `context_updates` is ignored: it must be an object, not an array",
    );
    check(
        r#"{"outcome":"failed","suggested_next_ids":["a",{}]}"#,
        "failed; `suggested_next_ids` is ignored: it must be an array of strings, not an array \
         with an object",
    );
}

#[test]
fn hostile_texts_end() {
    let mega = 1 << 20;
    for piece in [
        "{outcome:'",
        "{'outcome'",
        ",\"outcome\" ",
        "outcome ",
        "{",
        "}",
        "\"",
        "\\",
        "\\\"",
        "{\"a\":",
        "{}",
        "{\"a\":[{},",
        "[",
        "{ ",
        "{\"",
    ] {
        let found = extract(&piece.repeat(mega / piece.len()));
        assert!(found.is_none_or(|found| found.directives == Directives::default()), "{piece}");
    }
    for piece in
        ["{\"outcome\":", "{\"outcome\":\n},", "{\"outcome\":\"\n\"\u{1}", "\"outcome\":\u{1}"]
    {
        let found = extract(&piece.repeat(mega / piece.len()));
        assert!(found.is_none_or(|found| found.directives == Directives::default()), "{piece}");
    }
    let deep = format!("{}1{}", "{\"outcome\":".repeat(9_999), "}".repeat(9_999));
    check(&deep, "unreadable outcome 1:1398 it is nested deeper than 127 levels");
    check(&format!("{deep} {{\"outcome\":\"failed\"}}"), "failed");
}

/// The same rules with nothing clever: every `{` is read from its own start.
fn slow_objects(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut covers: Vec<(Range<usize>, bool)> = Vec::new();
    let mut broken_off: Vec<usize> = Vec::new();
    for (at, _) in text.match_indices('{') {
        let hidden = covers.iter().any(|(cover, is_object)| {
            cover.contains(&at) && (*is_object || outside_strings(text, cover.start, at))
        });
        if hidden {
            continue;
        }
        let like_object = text[at + 1..].trim_start().starts_with(['"', '}']);
        let Some(end) = slow_end(text, at) else {
            broken_off.extend(like_object.then_some(at));
            continue;
        };
        let before: String = text[..at].split_whitespace().collect();
        let is_value = before.ends_with("\":") || before.ends_with("},") || before.ends_with('[');
        let is_part = is_value && broken_off.iter().any(|from| outside_strings(text, *from, at));
        covers.push((at..end, like_object && !is_part));
        if like_object && !is_part {
            found.push(at..end);
        }
    }
    found
}

/// One past the `}` that closes the `{` at `start`.
fn slow_end(text: &str, start: usize) -> Option<usize> {
    let mut depth = 0_u32;
    for (at, brace) in text.char_indices().skip_while(|(at, _)| *at < start) {
        if !outside_strings(text, start, at) {
            continue;
        }
        match brace {
            '{' => depth += 1,
            '}' if depth == 1 => return Some(at + 1),
            '}' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Whether `at` is outside every string when reading starts at `start`.
fn outside_strings(text: &str, start: usize, at: usize) -> bool {
    let quotes = text[start..at].match_indices('"').filter(|(quote, _)| {
        let before = &text[..start + quote];
        (before.len() - before.trim_end_matches('\\').len()).is_multiple_of(2)
    });
    quotes.count() % 2 == 0
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn equals_the_slow_reading(
        pieces in proptest::collection::vec(
            proptest::sample::select(vec![
                "{", "}", "\"", ":", "\\", ",", "a", "[", "]", " ", "outcome", "{\"outcome\":\"failed\"}", "\n", "é",
            ]),
            0..30,
        ),
    ) {
        let text = pieces.concat();
        let found: Vec<_> = json_objects(&text).map(|(range, _)| range).collect();
        prop_assert_eq!(found, slow_objects(&text));
        let _ = extract(&text);
    }

    /// A corrupted failure is parsed or reported, never ignored.
    #[test]
    fn a_corrupted_failure_is_never_ignored(
        at in 12_usize..60,
        damage in proptest::sample::select(vec!["\n", "\u{0}", "\\", "\"", ",", "{", "}", "\\u", "é"]),
        is_cut in any::<bool>(),
    ) {
        let good = r#"{"outcome": "failed", "failure_reason": "two of the three tests are red"}"#;
        let tail = if is_cut { "" } else { &good[at..] };
        let text = format!("{{\"outcome\":\"succeeded\"}} no: {}{damage}{tail}", &good[..at]);
        let found = extract(&text).unwrap();
        let stated = found.directives.outcome;
        prop_assert!(
            found.unreadable.is_some() || stated != Some(OutcomeWord::Status(fabro_types::Status::Succeeded)),
            "{text}"
        );
    }

    /// So is one that is no JSON, with any quotation marks, separators and spaces.
    #[test]
    fn a_failure_in_another_notation_is_never_ignored(
        prose in "[^{}]{0,40}",
        marks in proptest::sample::select(vec![("'", "'"), ("", ""), ("“", "”"), ("`", "`"), ("\"", "\"")]),
        separator in proptest::sample::select(vec![":", " : ", ":\n"]),
        rest in proptest::sample::select(vec!["", ", \"a\": 1", ", 'b': {}", ", \"c"]),
        later in proptest::sample::select(vec!["", "{\"context_updates\":{}}", "}"]),
    ) {
        let (open, close) = marks;
        let text = format!("{prose}{{{open}outcome{close}{separator}'failed'{rest}}} {later}");
        let found = extract(&text).unwrap();
        prop_assert!(found.unreadable.is_some_and(|it| it.states_outcome), "{text}");
    }

    #[test]
    fn a_well_formed_directive_is_found_after_any_prose(prose in "[^{}]{0,60}") {
        let text = format!("{prose} {{\"outcome\":\"failed\"}}");
        prop_assert!(extract(&text).is_some());
    }

    #[test]
    fn anything_is_read_without_panic(text in any::<String>()) {
        let _ = extract(&text);
    }
}

#[test]
fn a_failure_that_a_later_object_leaves_out_is_told() {
    let warned = |text: &str| {
        let found = extract(text).unwrap();
        found.warnings.into_iter().map(|warning| warning.message).collect::<Vec<_>>().join("; ")
    };
    insta::assert_snapshot!(warned("{\"outcome\":\"failed\"}\n{\"context_updates\":{\"a\":1}}"), @"line 1 states a failure, but a later object has no `outcome`: only the last one counts");
    assert_eq!(warned("{\"outcome\":\"failed\"} {\"outcome\":\"succeeded\"}"), "");
    assert_eq!(
        warned("{\"outcome\":\"failed\"} {\"outcome\":\"success\"} {\"context_updates\":{}}"),
        ""
    );
    assert_eq!(warned("{\"outcome\":\"done\"} {\"context_updates\":{}}"), "");
}
