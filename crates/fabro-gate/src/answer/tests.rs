use fabro_events::QuestionType::{Confirmation, Freeform, MultiSelect, MultipleChoice, YesNo};
use proptest::prelude::*;

use super::*;
use crate::options;

const GATE: [(&str, &str); 4] =
    [("[A] Approve", "ship"), ("[R] Revise", "plan"), ("Skip it", "end"), ("", "stop_all")];

#[track_caller]
fn check(edges: &[(&str, &str)], question_type: QuestionType, text: &str, expected: &str) {
    check_freeform(edges, false, question_type, text, expected);
}

#[track_caller]
fn check_freeform(
    edges: &[(&str, &str)],
    freeform: bool,
    question_type: QuestionType,
    text: &str,
    expected: &str,
) {
    let options = options(edges.iter().copied());
    let told = match match_answer(&options, freeform, None, question_type, text) {
        Ok(GateAnswer::Option(index)) => format!("{index}"),
        Ok(GateAnswer::Options(indexes)) => format!("{indexes:?}"),
        Ok(GateAnswer::Text(text)) => format!("text {text}"),
        Err(error) => error.to_string(),
    };
    assert_eq!(told, expected, "{text:?}");
}

#[test]
fn keys_labels_numbers_and_ids() {
    for (text, index) in [
        ("A", "0"),
        (" a \n", "0"),
        ("[a]", "0"),
        ("r)", "1"),
        ("approve", "0"),
        ("[R] REVISE", "1"),
        ("r - revise", "1"),
        ("s", "2"),
        ("skip it", "2"),
        ("3", "2"),
        ("T", "3"),
        ("stop_all", "3"),
        ("plan", "1"),
    ] {
        check(&GATE, MultipleChoice, text, index);
    }
}

#[test]
fn what_matches_nothing_lists_the_choices() {
    const LIST: &str = "choose [A] Approve, [R] Revise, [S] Skip it or [T] stop_all";
    for text in ["maybe", "0", "5", "-1", "PLAN", "[X] Approve", "99999999999999999999999"] {
        check(&GATE, MultipleChoice, text, &format!("\"{text}\" is not an answer: {LIST}"));
    }
    check(&GATE, MultipleChoice, "  ", &format!("\"\" is not an answer: {LIST}"));
    check(&[("Go", "a")], MultipleChoice, "x", "\"x\" is not an answer: choose [G] Go");
    check(&[], MultipleChoice, "x", "\"x\" is not an answer: nothing can be chosen here");
    let long = format!("\"{}…\" is not an answer: choose [G] Go", "é".repeat(60));
    check(&[("Go", "a")], MultipleChoice, &"é".repeat(1_000_000), &long);
}

#[test]
fn a_label_may_look_like_it_had_an_accelerator() {
    let edges = [("[X] [Y] foo", "a"), ("[Y] bar", "b")];
    check(&edges, MultipleChoice, "[Y] foo", "0");
    check(&edges, MultipleChoice, "[X] [y] foo", "0");
    check(&edges, MultipleChoice, "y", "1");
}

#[test]
fn a_key_goes_before_a_number() {
    let edges = [("[2] Two", "a"), ("[1] One", "b"), ("7) Seven", "c")];
    check(&edges, MultipleChoice, "1", "1");
    check(&edges, MultipleChoice, "2", "0");
    check(&edges, MultipleChoice, "3", "2");
    check(&edges, MultipleChoice, "7", "2");
}

#[test]
fn free_text_is_what_matches_nothing() {
    check_freeform(&GATE, true, MultipleChoice, " try\nagain ", "text try\nagain");
    check_freeform(&GATE, true, MultipleChoice, "a", "0");
    check_freeform(&GATE, true, Freeform, "a", "0");
    check_freeform(&[], true, Freeform, "", "\"\" is not an answer: write some text");
    check_freeform(
        &GATE[..1],
        true,
        Freeform,
        "",
        "\"\" is not an answer: choose [A] Approve or write some text",
    );
    check(&[("", "next")], Freeform, "n", "text n");
    check(
        &[("", "next")],
        Freeform,
        "",
        "\"\" is not an answer: choose [N] next or write some text",
    );
}

#[test]
fn the_edge_for_free_text_has_a_key() {
    let mut all = options([("[A] Approve", "ship"), ("[R] Revise it", "plan")]);
    let edge = all.pop();
    let check = |text: &str, expected: Option<&str>| {
        let answer = match_answer(&all, true, edge.as_ref(), MultipleChoice, text);
        let expected = match expected {
            Some(text) => GateAnswer::Text(text.to_owned()),
            None => GateAnswer::Option(0),
        };
        assert_eq!(answer, Ok(expected), "{text:?}");
    };
    for text in ["r", "[R]", "R)", "revise it", "[r] Revise it"] {
        check(text, Some(""));
    }
    check("[R] shorter", Some("shorter"));
    check("r - a", Some("a"));
    check("[R] A", Some("A"));
    check("rather not", Some("rather not"));
    check("[X] other", Some("[X] other"));
    check("a", None);
}

#[test]
fn an_option_that_cannot_be_chosen_is_refused_with_its_reason() {
    let mut options = options(GATE);
    options[0].unavailable = Some("tests is \"failed\"".to_owned());
    for (question_type, text) in [(MultipleChoice, "approve"), (MultiSelect, "r, a"), (YesNo, "1")]
    {
        let error = match_answer(&options, false, None, question_type, text).unwrap_err();
        assert_eq!(error.refused, Some(0));
        assert_eq!(
            error.to_string(),
            format!(
                "\"{text}\" cannot be chosen, because tests is \"failed\": \
                 choose [R] Revise, [S] Skip it or [T] stop_all"
            )
        );
    }
    // Nor is it free text.
    assert!(match_answer(&options, true, None, MultipleChoice, "a").is_err());
}

#[test]
fn several_options_at_once() {
    check(&GATE, MultiSelect, "a", "[0]");
    check(&GATE, MultiSelect, "S, a,a", "[0, 2]");
    check(&GATE, MultiSelect, "approve; skip it", "[0, 2]");
    check(&GATE, MultiSelect, "a r", "[0, 1]");
    check(&GATE, MultiSelect, "1 3,", "[0, 2]");
    check(&[("Now, or never", "a"), ("Never", "b")], MultiSelect, "now, or never", "[0]");
    check_freeform(&GATE, true, MultiSelect, "a, x", "text a, x");
    check(&GATE[..2], MultiSelect, ",", "\",\" is not an answer: choose [A] Approve or [R] Revise");
}

#[test]
fn words_for_yes_and_no() {
    let plain = [("Ship", "a"), ("Hold", "b")];
    check(&plain, YesNo, "yes", "0");
    check(&plain, YesNo, "N", "1");
    check(&plain, Confirmation, "ok", "0");
    check(&plain, MultipleChoice, "yes", "\"yes\" is not an answer: choose [S] Ship or [H] Hold");
    let turned = [("[N] No", "a"), ("Certainly", "b")];
    check(&turned, YesNo, "y", "1");
    check(&turned, YesNo, "false", "0");
    let three = [("Yes", "a"), ("No", "b"), ("Later", "c")];
    check(&three, YesNo, "true", "0");
    check(&three, YesNo, "cancel", "1");
    check(&[("Go on", "a")], Confirmation, "y", "0");
    check(&[("Go on", "a")], Confirmation, "n", "\"n\" is not an answer: choose [G] Go on");
}

proptest! {
    #[test]
    fn every_option_answers_to_its_key(labels in prop::collection::vec("\\PC{0,12}|[A-Ca-c\\[\\]) 1-3-]{0,8}", 0..12)) {
        let options = options(labels.iter().map(|label| (label.as_str(), "t")));
        for (index, option) in options.iter().enumerate() {
            let answer = match_answer(&options, true, None, MultipleChoice, &option.key);
            prop_assert_eq!(answer, Ok(GateAnswer::Option(index)), "{:?}", option);
        }
    }

    #[test]
    fn any_text_has_an_answer(text in "\\PC*", freeform: bool) {
        let options = options(GATE);
        for question_type in [YesNo, MultipleChoice, MultiSelect, Freeform] {
            match match_answer(&options, freeform, None, question_type, &text) {
                Ok(GateAnswer::Option(index)) => prop_assert!(index < options.len()),
                Ok(GateAnswer::Options(indexes)) => prop_assert!(!indexes.is_empty()),
                Ok(GateAnswer::Text(_)) => prop_assert!(freeform || question_type == Freeform),
                Err(_) => prop_assert!(!freeform || text.trim().is_empty()),
            }
        }
    }
}
