use std::collections::BTreeSet;
use std::sync::Arc;

use crate::GateOption;
use fabro_types::{accelerator, strip_accelerator};

/// The choices that a gate's edges offer, in the order given: pairs of label and target. An edge
/// without a label goes by its target's id.
///
/// The key of a choice is its label's accelerator, case kept; without one, or when an earlier label
/// has the same, the first letter of the label that is no other choice's key, in upper case; and
/// when there is none, the first free number from the choice's own place on.
///
/// ```
/// let options = fabro_events::gate_options([("[Y] Yes", "go"), ("Yell", "shout"), ("Ye", "old")]);
/// let keys: Vec<_> = options.iter().map(|option| option.key.as_str()).collect();
/// assert_eq!(keys, ["Y", "E", "3"]);
/// ```
pub fn gate_options<'a, T: Into<Arc<str>>>(
    edges: impl IntoIterator<Item = (&'a str, T)>,
) -> Vec<GateOption> {
    let mut used = BTreeSet::new();
    let mut options: Vec<_> = edges
        .into_iter()
        .map(|(label, to)| {
            let to = to.into();
            let (key, label) = accelerator(if label.trim().is_empty() { &to } else { label });
            let key = key.filter(|key| used.insert(key.to_lowercase())).unwrap_or_default();
            GateOption { key: key.to_owned(), label: label.to_owned(), to, unavailable: None }
        })
        .collect();
    for (index, option) in options.iter_mut().enumerate() {
        if option.key.is_empty() {
            option.key = free_key(&option.label, index + 1, &mut used);
        }
    }
    options
}

/// The option that a gate takes when it times out: the one with this target, else the one
/// with this key, else the one with this label, in any case and with or without its accelerator.
pub fn default_option<'a>(
    options: &'a [GateOption],
    text_option: Option<&'a GateOption>,
    default_choice: Option<&str>,
) -> Option<&'a GateOption> {
    let default = default_choice?.trim();
    let lower = default.to_lowercase();
    let label = strip_accelerator(default).trim().to_lowercase();
    let all = || options.iter().chain(text_option);
    let by_key = || all().find(|option| !lower.is_empty() && option.key.to_lowercase() == lower);
    let by_label =
        || all().find(|option| !label.is_empty() && option.label.trim().to_lowercase() == label);
    all().find(|option| *option.to == *default).or_else(by_key).or_else(by_label)
}

fn free_key(label: &str, place: usize, used: &mut BTreeSet<String>) -> String {
    let letters = label.chars().filter(|c| c.is_alphabetic());
    let letters = letters.map(|letter| letter.to_uppercase().to_string());
    let mut keys = letters.chain((place..).map(|number| number.to_string()));
    // There is always a free number, so the default is never taken.
    keys.find(|key| used.insert(key.to_lowercase())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(labels: &[&str], expected: &str) {
        let options = gate_options(labels.iter().map(|&label| (label, "target")));
        let shown: Vec<_> =
            options.iter().map(|option| format!("{}={}", option.key, option.label)).collect();
        assert_eq!(shown.join(" "), expected);
    }

    #[test]
    fn keys_come_from_accelerators_then_letters_then_numbers() {
        check(&["[A] Approve", "r) Revise", "S - Stop"], "A=Approve r=Revise S=Stop");
        check(&["Approve", "Again", "AA"], "A=Approve G=Again 3=AA");
        check(&["", "", ""], "T=target A=target R=target");
        check(&["1", "2", "10%"], "1=1 2=2 3=10%");
        check(&["Éclair", "été"], "É=Éclair T=été");
        check(&[], "");
    }

    #[test]
    fn a_default_is_a_target_a_key_or_a_label() {
        let edges = [("[A] Approve", "ship"), ("Reject it", "plan"), ("[S] a", "Approve")];
        let options = gate_options(edges);
        let default = |name| default_option(&options, None, Some(name)).map(|it| it.to.to_string());
        for (name, to) in [
            ("ship", "ship"),
            ("a", "ship"),
            ("Approve", "Approve"),
            ("approve", "ship"),
            ("[A] Approve", "ship"),
            ("r", "plan"),
            (" reject IT ", "plan"),
            ("[X] Reject it", "plan"),
        ] {
            assert_eq!(default(name).as_deref(), Some(to), "{name}");
        }
        for name in ["", "Ship", "rej", "[A]"] {
            assert_eq!(default(name), None, "{name}");
        }
        let text = GateOption { key: String::new(), label: String::new(), ..options[0].clone() };
        assert_eq!(default_option(&[], Some(&text), Some("")), None);
        assert!(default_option(&[], Some(&text), Some("ship")).is_some());
    }

    #[test]
    fn accelerators_go_before_letters() {
        check(&["Approve", "[A] Abort"], "P=Approve A=Abort");
        check(&["??", "1) One", "2) Two", "!!"], "3=?? 1=One 2=Two 4=!!");
    }

    #[test]
    fn a_second_accelerator_of_the_same_key_is_replaced() {
        check(&["[a] One", "[A] Two", "[A] A"], "a=One T=Two 3=A");
    }

    #[test]
    fn a_thousand_options_have_a_thousand_keys() {
        let labels = vec!["a"; 1000];
        let options = gate_options(labels.into_iter().map(|label| (label, "target")));
        let keys: BTreeSet<_> = options.iter().map(|option| &option.key).collect();
        assert_eq!(keys.len(), 1000);
    }
}
