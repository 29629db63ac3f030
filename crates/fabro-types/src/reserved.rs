const PREFIXES: [&str; 10] = [
    "internal.",
    "graph.",
    "human.",
    "parallel.",
    "command.",
    "output.",
    "response.",
    "child.",
    "failure_",
    "last_",
];
const KEYS: [&str; 3] = ["outcome", "preferred_label", "current_node"];

/// Why an agent may not write this context key; `None` when it may.
///
/// Keys that the engine and its handlers write are theirs alone, so that no model can forge the
/// exit code of a command or the answer of a person. The same key with `context.` before it is
/// refused too: conditions and templates would read that one first. And so is the object that a
/// dotted key leads into, such as `human` with a `gate` in it: it is read where the flat key is not
/// there.
pub fn key_refusal(key: &str) -> Option<String> {
    if key.is_empty() {
        return Some("a key may not be empty".to_owned());
    }
    if key == "context" {
        return Some(format!("`{key}` stands for all keys: name one"));
    }
    let key = key.strip_prefix("context.").unwrap_or(key);
    if KEYS.contains(&key) {
        return Some(format!("`{key}` is written by the engine"));
    }
    let leads_in = |prefix: &&&str| prefix.strip_suffix('.') == Some(key);
    if PREFIXES.iter().any(|prefix| leads_in(&prefix)) {
        return Some(format!(
            "`{key}` and the keys below it are written by the engine and its handlers"
        ));
    }
    let prefix = PREFIXES.iter().find(|prefix| key.starts_with(**prefix))?;
    Some(format!("keys that start with `{prefix}` are written by the engine and its handlers"))
}
