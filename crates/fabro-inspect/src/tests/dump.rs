use std::collections::BTreeMap;
use std::io;

use serde_json::{Map, Value, json};

use super::{DumpRun, DumpWriter, WHOLE_CHECKPOINTS, dump_within};
use crate::tests::machine_run::{Bench, repaired};

#[derive(Default)]
struct InMemory(BTreeMap<String, String>);

impl DumpWriter for InMemory {
    fn write(&mut self, path: &str, bytes: &[u8]) -> io::Result<()> {
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        assert!(self.0.insert(path.to_owned(), text).is_none(), "{path} is written twice");
        Ok(())
    }
}

fn dumped(bench: &Bench, whole_checkpoints: usize) -> BTreeMap<String, String> {
    let run = DumpRun {
        events: &bench.events,
        is_driven: false,
        graph: "digraph {}",
        blobs: &bench.blobs,
        keep_references: false,
    };
    let mut files = InMemory::default();
    dump_within(&run, "", &mut files, whole_checkpoints).unwrap();
    files.0
}

fn checkpoints(files: &BTreeMap<String, String>) -> BTreeMap<String, Value> {
    let all = files.iter().filter_map(|(path, text)| {
        let name = path.strip_prefix("checkpoints/")?;
        Some((name.to_owned(), serde_json::from_str(text).unwrap()))
    });
    all.collect()
}

#[test]
fn a_run_as_files() {
    let files = dumped(&repaired(), WHOLE_CHECKPOINTS);
    let names: Vec<&str> = files.keys().map(String::as_str).collect();
    insta::assert_snapshot!(names.join("\n"));
    insta::assert_snapshot!(files["stages/003-test@1/status.json"]);
    let last = checkpoints(&files).pop_last().unwrap().1;
    insta::assert_snapshot!(serde_json::to_string_pretty(&last).unwrap());
}

/// A checkpoint with everything that it says by naming the one before.
fn restored(all: &BTreeMap<String, Value>, name: &str) -> Map<String, Value> {
    let mut whole = all[name].as_object().unwrap().clone();
    let removed = whole.remove("removed_from_context").unwrap_or(json!([]));
    let Some(since) = whole.remove("since") else { return whole };
    let before = restored(all, since.as_str().unwrap());
    for field in ["context", "retries", "outcomes", "failure_signatures"] {
        let mut values = before[field].as_object().unwrap().clone();
        values.extend(whole[field].as_object().unwrap().clone());
        for key in removed.as_array().unwrap().iter().filter(|_| field == "context") {
            values.remove(key.as_str().unwrap());
        }
        whole[field] = values.into();
    }
    let mut nodes = before["completed_nodes"].as_array().unwrap().clone();
    nodes.extend(whole["completed_nodes"].as_array().unwrap().clone());
    whole["completed_nodes"] = nodes.into();
    whole
}

#[test]
fn checkpoints_that_continue_others_say_the_same() {
    let bench = repaired();
    let whole = checkpoints(&dumped(&bench, WHOLE_CHECKPOINTS));
    let short = checkpoints(&dumped(&bench, 0));
    assert!(whole.values().all(|it| it.get("since").is_none()));
    assert!(short.values().any(|it| it.get("since").is_some()));
    for (name, expected) in &whole {
        assert_eq!(Value::from(restored(&short, name)), *expected, "{name}");
    }
}
