//! Any text: reading a file of answers ends; the first line as labels of a gate and the rest as an
//! answer, matching ends, names options that there are, and keys differ.
#![no_main]

use std::collections::BTreeSet;

use fabro_events::QuestionType;
use fabro_gate::{GateAnswer, QueueInterviewer, match_answer, options};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if text.len() > fabro_fuzz::MAX_INPUT {
        return;
    }
    let _ = QueueInterviewer::from_json(text);
    let (labels, answer) = text.split_once('\n').unwrap_or((text, ""));
    let options = options(labels.split(',').map(|label| (label, "target")));
    let keys: BTreeSet<_> = options.iter().map(|option| option.key.to_lowercase()).collect();
    assert_eq!(keys.len(), options.len());
    for question_type in [
        QuestionType::YesNo,
        QuestionType::Confirmation,
        QuestionType::MultipleChoice,
        QuestionType::MultiSelect,
        QuestionType::Freeform,
    ] {
        for (freeform, text_option) in [(true, options.last()), (true, None), (false, None)] {
            match match_answer(&options, freeform, text_option, question_type, answer) {
                Ok(GateAnswer::Option(at)) => assert!(at < options.len()),
                Ok(GateAnswer::Options(all)) => assert!(all.iter().all(|at| *at < options.len())),
                Ok(GateAnswer::Text(_)) | Err(_) => {}
            }
        }
    }
});
