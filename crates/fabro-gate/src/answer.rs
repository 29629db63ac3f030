use fabro_events::{GateOption, QuestionType};
use fabro_types::accelerator;

/// The most characters of an answer that an error repeats.
const SHOWN_CHARS: usize = 60;

const YES: [&str; 8] = ["yes", "y", "true", "ok", "okay", "confirm", "continue", "proceed"];
const NO: [&str; 7] = ["no", "n", "false", "cancel", "abort", "stop", "decline"];

/// An answer, matched to the options of a gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GateAnswer {
    /// The option at this place, from 0.
    Option(usize),
    /// The options at these places, from 0, rising, at least one: a gate of type `multi_select`.
    Options(Vec<usize>),
    /// Free text, trimmed.
    Text(String),
}

/// A text that does not match a gate. Its message lists the options.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} is not an answer: {}", shown(answer), choices(options, *freeform))]
#[non_exhaustive]
pub struct NoMatch {
    /// The text.
    pub answer: String,
    /// The options of the gate.
    pub options: Vec<GateOption>,
    /// Free text is accepted, so the answer was empty.
    pub freeform: bool,
}

/// Finds the option that a text means, in this order: its key, its label (with or without an
/// accelerator), its number from 1, its target's id; for `yes_no` and `confirmation` also the words
/// for yes and no. Case matters only for ids. For `multi_select` the text may name several options,
/// separated by commas or semicolons, or keys and numbers separated by spaces.
///
/// With `freeform`, a text that does not match an option is free text. A gate of type `freeform`
/// without a freeform edge accepts every text as such.
///
/// # Errors
///
/// The text is empty, or does not match an option where free text is not accepted.
pub fn match_answer(
    options: &[GateOption],
    freeform: bool,
    question_type: QuestionType,
    text: &str,
) -> Result<GateAnswer, NoMatch> {
    let text = text.trim();
    let any_text = question_type == QuestionType::Freeform && !freeform;
    let matched = if text.is_empty() || any_text {
        None
    } else {
        match question_type {
            QuestionType::MultiSelect => several(options, text).map(GateAnswer::Options),
            QuestionType::YesNo | QuestionType::Confirmation => {
                one(options, text).or_else(|| by_word(options, text)).map(GateAnswer::Option)
            }
            _ => one(options, text).map(GateAnswer::Option),
        }
    };
    match matched {
        Some(answer) => Ok(answer),
        None if (freeform || any_text) && !text.is_empty() => Ok(GateAnswer::Text(text.to_owned())),
        None => Err(NoMatch {
            answer: text.to_owned(),
            options: options.to_vec(),
            freeform: freeform || any_text,
        }),
    }
}

fn one(options: &[GateOption], text: &str) -> Option<usize> {
    let (key, label) = accelerator(text);
    let bare = text.trim_start_matches('[').trim_end_matches([']', ')']);
    let position = |test: &dyn Fn(&GateOption) -> bool| options.iter().position(test);
    position(&|option| option.key == text)
        .or_else(|| position(&|option| same(&option.key, bare)))
        .or_else(|| position(&|option| same(&option.label, text)))
        .or_else(|| {
            let key_fits = |option: &GateOption| key.is_none_or(|key| same(key, &option.key));
            position(&|option| same(&option.label, label) && key_fits(option))
        })
        .or_else(|| bare.parse().ok().and_then(|number: usize| number.checked_sub(1)))
        .filter(|&index| index < options.len())
        .or_else(|| position(&|option| *option.to == *text))
}

fn several(options: &[GateOption], text: &str) -> Option<Vec<usize>> {
    if let Some(index) = one(options, text) {
        return Some(vec![index]);
    }
    let all = |parts: &mut dyn Iterator<Item = &str>| {
        let chosen: Option<Vec<_>> = parts
            .filter(|part| !part.trim().is_empty())
            .map(|part| one(options, part.trim()))
            .collect();
        chosen.filter(|chosen| !chosen.is_empty())
    };
    let mut chosen = all(&mut text.split([',', ';', '\n']))
        .or_else(|| all(&mut text.split_whitespace().map(|part| part.trim_matches([',', ';']))))?;
    chosen.sort_unstable();
    chosen.dedup();
    Some(chosen)
}

/// The option for a word for yes or no: the one whose label is such a word; of two options, the other
/// one when only one has such a label, and the first for yes when neither has.
fn by_word(options: &[GateOption], text: &str) -> Option<usize> {
    let labelled = |words: &[&str]| {
        options.iter().position(|option| words.iter().any(|word| same(word, &option.label)))
    };
    let (yes, no) = match (labelled(&YES), labelled(&NO)) {
        (None, None) if options.len() == 2 => (Some(0), Some(1)),
        (Some(yes), None) if options.len() == 2 => (Some(yes), Some(1 - yes)),
        (None, Some(no)) if options.len() == 2 => (Some(1 - no), Some(no)),
        (None, None) if options.len() == 1 => (Some(0), None),
        known => known,
    };
    if YES.iter().any(|word| same(word, text)) {
        yes
    } else if NO.iter().any(|word| same(word, text)) {
        no
    } else {
        None
    }
}

fn same(left: &str, right: &str) -> bool {
    left.eq_ignore_ascii_case(right) || left.to_lowercase() == right.to_lowercase()
}

fn shown(answer: &str) -> String {
    let cut: String = answer.chars().take(SHOWN_CHARS).collect();
    let more = if cut.len() < answer.len() { "…" } else { "" };
    format!("\"{cut}{more}\"")
}

fn choices(options: &[GateOption], freeform: bool) -> String {
    let mut names: Vec<_> =
        options.iter().map(|option| format!("[{}] {}", option.key, option.label)).collect();
    if freeform {
        names.push("write some text".to_owned());
    }
    match names.split_last() {
        None => "nothing can be chosen here".to_owned(),
        Some((only, [])) if freeform => only.clone(),
        Some((only, [])) => format!("choose {only}"),
        Some((last, others)) => format!("choose {} or {last}", others.join(", ")),
    }
}

#[cfg(test)]
mod tests;
