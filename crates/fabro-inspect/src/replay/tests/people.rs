use insta::assert_snapshot;

use super::{Taped, summary};

const GATE: &str = r#"digraph {
    start -> plan -> ship
    plan [shape=tab, prompt="Plan.", thread_id=t, fidelity=full]
    ship [shape=hexagon, label="Ship it?"]
    ship -> exit [label="[Y] Yes"]
    ship -> plan [label="[N] No"]
}"#;

const MODEL: &str = r#"{"plan": [{"text": "One."}, {"text": "Two."}]}"#;

#[test]
fn people_answer_as_they_did() {
    let taped = Taped::new(GATE).model(MODEL).answers(r#"{"ship": ["N", "yes"]}"#).record();
    assert_snapshot!(summary(&taped.replay()), @"26 compared");
    assert_snapshot!(summary(&taped.with("Ship it?", "Send it?")), @r#"
    26 compared
    gate ship@1
    @@ -1,3 +1,3 @@
    -Ship it?
    +Send it?
     [Y] Yes → exit
     [N] No → plan
    context ship@1
    @@ -4,4 +4,4 @@
       "human.gate.ship.answer": "N",
       "human.gate.ship.label": "[N] No",
    -  "human.gate.ship.question": "Ship it?"
    +  "human.gate.ship.question": "Send it?"
     }
    gate ship@2
    @@ -1,3 +1,3 @@
    -Ship it?
    +Send it?
     [Y] Yes → exit
     [N] No → plan
    context ship@2
    @@ -4,4 +4,4 @@
       "human.gate.ship.answer": "Y",
       "human.gate.ship.label": "[Y] Yes",
    -  "human.gate.ship.question": "Ship it?"
    +  "human.gate.ship.question": "Send it?"
     }
    "#);
    assert_snapshot!(summary(&taped.with("[N] No", "[A] Again")), @r#"
    11 compared
    gate ship@1
    @@ -1,3 +1,3 @@
     Ship it?
     [Y] Yes → exit
    -[N] No → plan
    +[A] Again → plan
    event ship@1
    - Some("gate.answered ship@1: [N] No")
    + None
    ship@1 needs something that was not recorded
    "#);
    // The choice was the edge with this label, with any key.
    assert_snapshot!(summary(&taped.with("[Y] Yes", "[O] Yes")), @r#"
    26 compared
    gate ship@1
    @@ -1,3 +1,3 @@
     Ship it?
    -[Y] Yes → exit
    +[O] Yes → exit
     [N] No → plan
    gate ship@2
    @@ -1,3 +1,3 @@
     Ship it?
    -[Y] Yes → exit
    +[O] Yes → exit
     [N] No → plan
    gate ship@2
    - Some("[Y] Yes")
    + Some("[O] Yes")
    edge ship@2
    - Some("ship@2 → exit \"[Y] Yes\"")
    + Some("ship@2 → exit \"[O] Yes\"")
    "#);
}

#[test]
fn a_run_that_waits_is_replayed_up_to_the_question() {
    let taped = Taped::new(GATE).model(MODEL).record();
    assert_snapshot!(summary(&taped.replay()), @"10 compared, without an end");
    // Answered after a pause, the next stage receives the thread in another form.
    let taped = Taped { answers: r#"{"ship": ["N", "Y"]}"#.to_owned(), ..taped }.resume();
    let report = taped.replay();
    assert!(report.is_same() && report.is_whole, "{}", summary(&report));
}
