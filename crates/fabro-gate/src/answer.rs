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

/// A text that does not match a gate, or means an option that cannot be chosen. Its message lists the
/// options that can.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} {}: {}", shown(answer), problem(options, *refused), choices(options, *freeform))]
#[non_exhaustive]
pub struct NoMatch {
    /// The text.
    pub answer: String,
    /// The options of the gate.
    pub options: Vec<GateOption>,
    /// Free text is accepted, so the answer was empty or means an option that cannot be chosen.
    pub freeform: bool,
    /// The option that it means, which cannot be chosen.
    pub refused: Option<usize>,
}

/// Finds the option that a text means, in this order: its key, its label (with or without an
/// accelerator), its number from 1, its target's id; for `yes_no` and `confirmation` also the words
/// for yes and no. Case matters only for ids. For `multi_select` the text may name several options,
/// separated by commas or semicolons, or keys and numbers separated by spaces.
///
/// With `freeform`, a text that does not match an option is free text. The key or the label of
/// `text_option`, the edge for it, chooses that edge without a text, and its key before a text, as in
/// `[R] a text`, makes any text free text. A gate of type `freeform` without a freeform edge accepts
/// every text as such.
///
/// # Errors
///
/// The text is empty, does not match an option where free text is not accepted, or means an option
/// that cannot be chosen.
pub fn match_answer(
    options: &[GateOption],
    freeform: bool,
    text_option: Option<&GateOption>,
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
    let is_refused = |index: &usize| options[*index].unavailable.is_some();
    let refused = match &matched {
        Some(GateAnswer::Option(index)) => Some(*index).filter(is_refused),
        Some(GateAnswer::Options(indices)) => indices.iter().copied().find(is_refused),
        _ => None,
    };
    let free_text = || {
        let meant = text_option.and_then(|option| text_for(option, text));
        GateAnswer::Text(meant.unwrap_or(text).to_owned())
    };
    match matched {
        Some(answer) if refused.is_none() => Ok(answer),
        None if (freeform || any_text) && !text.is_empty() => Ok(free_text()),
        _ => Err(NoMatch {
            answer: text.to_owned(),
            options: options.to_vec(),
            freeform: freeform || any_text,
            refused,
        }),
    }
}

/// The text that an answer which names the edge for free text gives it: none but the key or the label,
/// or one behind the key.
fn text_for<'t>(option: &GateOption, text: &'t str) -> Option<&'t str> {
    if option.key.is_empty() {
        return None;
    }
    let (key, rest) = accelerator(text);
    let has_key = key.is_some_and(|key| same(key, &option.key));
    let names_it = same(&option.key, without_brackets(text))
        || same(&option.label, text)
        || (has_key && same(&option.label, rest));
    if names_it { Some("") } else { has_key.then_some(rest) }
}

fn without_brackets(text: &str) -> &str {
    text.trim_start_matches('[').trim_end_matches([']', ')'])
}

fn one(options: &[GateOption], text: &str) -> Option<usize> {
    let (key, label) = accelerator(text);
    let bare = without_brackets(text);
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

fn problem(options: &[GateOption], refused: Option<usize>) -> String {
    let option = refused.and_then(|index| options.get(index));
    match option.and_then(|option| option.unavailable.as_ref()) {
        Some(reason) => format!("cannot be chosen, because {reason}"),
        None => "is not an answer".to_owned(),
    }
}

fn choices(options: &[GateOption], freeform: bool) -> String {
    let can_be_chosen = options.iter().filter(|option| option.unavailable.is_none());
    let mut names: Vec<_> =
        can_be_chosen.map(|option| format!("[{}] {}", option.key, option.label)).collect();
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
