use std::cell::Cell;

/// How many names are compared with others in one workflow, in search of what was meant: with as many
/// wrong names as right ones the search would take the square of their number.
const MAX_COMPARISONS: usize = 200_000;

/// Looks for what was meant, up to a limit for the whole workflow.
#[derive(Debug)]
pub(crate) struct Nearby {
    left: Cell<usize>,
}

impl Nearby {
    pub(crate) fn new() -> Self {
        Self { left: Cell::new(MAX_COMPARISONS) }
    }

    /// [`nearest`]; after too many questions there is no answer.
    pub(crate) fn nearest<'n>(
        &self,
        word: &str,
        names: impl IntoIterator<Item = &'n str>,
    ) -> Option<&'n str> {
        let mut left = self.left.get();
        let names = names.into_iter().take_while(|_| {
            left = left.saturating_sub(1);
            left > 0
        });
        let found = nearest(word, names);
        self.left.set(left);
        found
    }
}

/// A word longer than this is compared with nothing.
const MAX_BYTES: usize = 64;

/// The name that was probably meant: the nearest, of equally near ones the first. Two letters may be
/// wrong, in a short name one.
pub(crate) fn nearest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > MAX_BYTES {
        return None;
    }
    let mut best: Option<(usize, &str)> = None;
    for name in names {
        let allowed = allowed(word, name);
        if name.len() > MAX_BYTES || name.len().abs_diff(word.len()) > allowed + 1 {
            continue;
        }
        let distance = match strsim::osa_distance(word, name) {
            _ if plain(word).eq(plain(name)) => 0,
            distance if distance <= allowed => distance,
            _ => continue,
        };
        if best.is_none_or(|(nearest, _)| distance < nearest) {
            best = Some((distance, name));
        }
    }
    best.map(|(_, name)| name)
}

fn allowed(word: &str, name: &str) -> usize {
    match word.len().min(name.len()) {
        0..=3 => 0,
        4..=6 => 1,
        _ => 2,
    }
}

/// Without what people vary: case and separators.
fn plain(word: &str) -> impl Iterator<Item = char> + '_ {
    word.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names() {
        let names = ["prompt", "goal_gate", "rag", "max_visits", "tools"];
        let near = |word| nearest(word, names);
        assert_eq!(near("promt"), Some("prompt"));
        assert_eq!(near("pormpt"), Some("prompt"));
        assert_eq!(near("Prompt"), Some("prompt"));
        assert_eq!(near("goalGate"), Some("goal_gate"));
        assert_eq!(near("goal-gate"), Some("goal_gate"));
        assert_eq!(near("max_visit"), Some("max_visits"));
        assert_eq!(near("tag"), None);
        assert_eq!(near("author"), None);
        assert_eq!(near(&"x".repeat(1000)), None);
    }
}
