//! "Did you mean …": the known name that a misspelled one is nearest to.

/// A word longer than this is compared with nothing: that would take seconds for a long text.
const MAX_BYTES: usize = 64;

/// The name that was probably meant: the nearest, of equally near ones the first. Two letters may be
/// wrong, in a short name one; case and separators do not count.
///
/// ```
/// use fabro_types::nearest;
///
/// assert_eq!(nearest("retry_polcy", ["retry_policy", "retry_target"]), Some("retry_policy"));
/// assert_eq!(nearest("GoalGate", ["goal", "goal_gate"]), Some("goal_gate"));
/// assert_eq!(nearest("author", ["goal", "goal_gate"]), None);
/// ```
pub fn nearest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let distances = names.into_iter().filter_map(|name| Some((distance(word, name)?, name)));
    distances.min_by_key(|(distance, _)| *distance).map(|(_, name)| name)
}

fn distance(word: &str, name: &str) -> Option<usize> {
    let allowed = match word.len().min(name.len()) {
        0..=3 => 0,
        4..=6 => 1,
        _ => 2,
    };
    if word.len().max(name.len()) > MAX_BYTES || name.len().abs_diff(word.len()) > allowed + 1 {
        return None;
    }
    if plain(word).eq(plain(name)) {
        return Some(0);
    }
    Some(strsim::osa_distance(word, name)).filter(|distance| *distance <= allowed)
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
