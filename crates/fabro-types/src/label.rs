/// The longest key between brackets, in characters; a longer word there is part of the text (`[needs review] x`).
const BRACKETED_CHARS: usize = 8;

/// Splits a label into its accelerator key and the text after it, both trimmed, case kept.
/// Rules: `docs/workflow-language.md`, "Labels and accelerators".
///
/// Three forms carry a key: `[K] text`, `K) text` and `K - text`. Between brackets a key is one to
/// eight letters or digits; in the other two it is one letter or digit, or a number of two or three
/// digits, so that `Plan - review` keeps its first word. A label that would be left without a text
/// has no accelerator.
///
/// ```
/// use fabro_types::accelerator;
///
/// assert_eq!(accelerator("[A] Approve"), (Some("A"), "Approve"));
/// assert_eq!(accelerator("r) Revise"), (Some("r"), "Revise"));
/// assert_eq!(accelerator("S - Skip it"), (Some("S"), "Skip it"));
/// assert_eq!(accelerator(" Plan - review "), (None, "Plan - review"));
/// ```
pub fn accelerator(label: &str) -> (Option<&str>, &str) {
    let label = label.trim();
    match bracketed(label).or_else(|| prefixed(label)) {
        Some((key, rest)) if !rest.trim().is_empty() => (Some(key), rest.trim()),
        _ => (None, label),
    }
}

/// The label trimmed and without its accelerator, case kept: see [`accelerator`].
///
/// ```
/// assert_eq!(fabro_types::strip_accelerator("[A] Approve"), "Approve");
/// assert_eq!(fabro_types::strip_accelerator("Approve"), "Approve");
/// ```
pub fn strip_accelerator(label: &str) -> &str {
    accelerator(label).1
}

/// Whether a label is meant by this text: it is the label, in any case and with or without its accelerator, or the
/// accelerator alone.
///
/// ```
/// use fabro_types::label_matches;
///
/// assert!(label_matches("[A] Approve", "approve") && label_matches("[A] Approve", "a"));
/// assert!(!label_matches("[A] Approve", "Revise"));
/// ```
pub fn label_matches(label: &str, text: &str) -> bool {
    let (key, plain) = accelerator(label);
    let is_key = key.is_some_and(|key| key.to_lowercase() == text.trim().to_lowercase());
    is_key || plain.to_lowercase() == strip_accelerator(text).to_lowercase()
}

fn bracketed(label: &str) -> Option<(&str, &str)> {
    let (key, rest) = label.strip_prefix('[')?.split_once(']')?;
    let fits = !key.is_empty()
        && key.chars().all(char::is_alphanumeric)
        && key.chars().count() <= BRACKETED_CHARS;
    fits.then_some((key, rest))
}

fn prefixed(label: &str) -> Option<(&str, &str)> {
    let end = label.find(|c: char| !c.is_alphanumeric())?;
    let (key, rest) = label.split_at(end);
    let number = key.len() <= 3 && key.bytes().all(|b| b.is_ascii_digit());
    if key.is_empty() || !(number || key.chars().nth(1).is_none()) {
        return None;
    }
    if let Some(text) = rest.strip_prefix(')') {
        return Some((key, text));
    }
    let text = rest.trim_start().strip_prefix('-')?;
    let spaced = rest.starts_with(char::is_whitespace) && text.starts_with(char::is_whitespace);
    spaced.then_some((key, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(label: &str, key: Option<&str>, text: &str) {
        assert_eq!(accelerator(label), (key, text), "{label:?}");
        assert_eq!(strip_accelerator(label), text, "{label:?}");
    }

    #[test]
    fn three_forms_carry_a_key() {
        check("[A] Approve", Some("A"), "Approve");
        check("[A]Approve", Some("A"), "Approve");
        check("  [ok]   Go on  ", Some("ok"), "Go on");
        check("y) Yes", Some("y"), "Yes");
        check("12) Twelfth", Some("12"), "Twelfth");
        check("N - No", Some("N"), "No");
        check("N  -  No - really", Some("N"), "No - really");
        check("[é] Élever", Some("é"), "Élever");
    }

    #[test]
    fn other_labels_are_all_text() {
        for label in [
            "",
            "Approve",
            "Plan - review",
            "A-team",
            "A -x",
            "A- x",
            "f(x) = y",
            "maybe) no",
            "2024 - done",
            "[needs review] x",
            "[toolongakey] x",
            "[] x",
            "[A",
            ") x",
            "- x",
        ] {
            check(label, None, label);
        }
    }

    #[test]
    fn a_key_alone_is_the_text() {
        check("[A]", None, "[A]");
        check("A)", None, "A)");
        check("A -", None, "A -");
        check("[A]   ", None, "[A]");
    }

    #[test]
    fn stripping_takes_one_accelerator() {
        check("[A] [B] x", Some("A"), "[B] x");
    }
}
