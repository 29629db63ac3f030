//! Inputs that a run is given and that nothing in it reads: probably misspelled.

use std::collections::BTreeSet;

use fabro_types::nearest;
use serde_json::{Map, Value};

/// How many names a warning lists.
const LISTED: usize = 8;

/// An input that nothing reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnreadInput {
    /// Its name.
    pub(crate) name: String,
    /// What was probably meant.
    pub(crate) fix: String,
}

impl UnreadInput {
    /// What is odd about it.
    pub(crate) fn message(&self) -> String {
        format!("nothing reads the input `{}`", self.name)
    }
}

/// The inputs that none of these texts reads: the workflow, the files that it names, the goal. Where
/// a text reads all inputs at once there are none.
pub(crate) fn unread_inputs<'t>(
    inputs: &Map<String, Value>,
    texts: impl IntoIterator<Item = &'t str>,
) -> Vec<UnreadInput> {
    if inputs.is_empty() {
        return Vec::new();
    }
    let mut read = ReadInputs::default();
    for text in texts {
        read.scan(text);
    }
    if read.all {
        return Vec::new();
    }
    let unread = inputs.keys().filter(|name| !read.reads(name));
    unread.map(|name| UnreadInput { name: name.clone(), fix: read.instead(name) }).collect()
}

/// The inputs that these texts read by name.
pub(crate) fn read_names<'t>(texts: impl IntoIterator<Item = &'t str>) -> BTreeSet<String> {
    let mut read = ReadInputs::default();
    for text in texts {
        read.scan(text);
    }
    // What follows a dot is a part of the input.
    let input = |name: &&str| name.split('.').next().unwrap_or_default().to_owned();
    read.names.iter().map(input).collect()
}

/// What the tags of templates read of the inputs.
#[derive(Default)]
struct ReadInputs<'t> {
    /// Names, with the path into the input that may follow.
    names: BTreeSet<&'t str>,
    /// Something reads all of them, or one whose name is computed.
    all: bool,
}

impl<'t> ReadInputs<'t> {
    /// Looks through the tags of a text, `{{ … }}` and `{% … %}`.
    fn scan(&mut self, text: &'t str) {
        let mut rest = text;
        while let Some(open) = rest.find('{') {
            rest = &rest[open + 1..];
            let close = match rest.chars().next() {
                Some('{') => "}}",
                Some('%') => "%}",
                _ => continue,
            };
            let end = rest.find(close).unwrap_or(rest.len());
            self.scan_tag(&rest[1..end.max(1)]);
            rest = &rest[end..];
        }
    }

    fn scan_tag(&mut self, tag: &'t str) {
        const ROOT: &str = "inputs";
        for (at, _) in tag.match_indices(ROOT) {
            let is_part_of_name = |c: char| c.is_alphanumeric() || c == '_';
            let before = tag[..at].trim_end().chars().next_back();
            let after = tag[at + ROOT.len()..].trim_start();
            if tag[..at].ends_with(is_part_of_name)
                || before == Some('.')
                || tag[at + ROOT.len()..].starts_with(is_part_of_name)
            {
                continue;
            }
            match name_after(after) {
                Some(name) => {
                    self.names.insert(name);
                }
                None => self.all = true,
            }
        }
    }

    fn reads(&self, input: &str) -> bool {
        let is_path = |rest: &str| rest.is_empty() || rest.starts_with('.');
        self.names.iter().any(|name| name.strip_prefix(input).is_some_and(is_path))
    }

    /// What the author of the input probably meant.
    fn instead(&self, input: &str) -> String {
        if let Some(near) = nearest(input, self.names.iter().copied()) {
            return format!("did you mean `{near}`?");
        }
        if self.names.is_empty() {
            return "the workflow reads no inputs".to_owned();
        }
        let names: Vec<&str> = self.names.iter().take(LISTED).copied().collect();
        let more = if self.names.len() > LISTED { ", …" } else { "" };
        format!("the workflow reads {}{more}", names.join(", "))
    }
}

/// The name in `.NAME` or `["NAME"]`.
fn name_after(text: &str) -> Option<&str> {
    if let Some(name) = text.strip_prefix('.') {
        let name = name.trim_start();
        let end = name.find(|c: char| !(c.is_alphanumeric() || "_.".contains(c)));
        let name = name[..end.unwrap_or(name.len())].trim_end_matches('.');
        return (!name.is_empty()).then_some(name);
    }
    let index = text.strip_prefix('[')?.trim_start();
    let quote = index.chars().next().filter(|c| *c == '"' || *c == '\'')?;
    index[1..].split(quote).next()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn inputs_that_nothing_reads_are_named() {
        let check = |inputs: Value, texts: &[&str]| {
            let inputs = inputs.as_object().unwrap();
            let unread = unread_inputs(inputs, texts.iter().copied()).into_iter();
            unread.map(|it| format!("{}: {}", it.message(), it.fix)).collect::<Vec<_>>().join("\n")
        };
        let branch = r#"a [prompt="Work on {{ inputs.branch | default('main') }}"]"#;
        insta::assert_snapshot!(check(json!({"brnch": 1}), &[branch]), @"nothing reads the input `brnch`: did you mean `branch`?");
        insta::assert_snapshot!(check(json!({"depth": 1}), &[branch, "{{inputs.repo.url}}"]), @"nothing reads the input `depth`: the workflow reads branch, repo.url");
        insta::assert_snapshot!(check(json!({"a": 1}), &["inputs.a is prose, { inputs.a } too"]), @"nothing reads the input `a`: the workflow reads no inputs");
        for read in [
            "{{ inputs.a }}",
            "{{inputs.a.b}}",
            "{{ inputs['a'] }}",
            "{{ inputs[\"a\"] | upper }}",
            "{% for x in inputs.a %}{% endfor %}",
            "{% if context.x and inputs . a %}",
            "{{ inputs }}",
            "{{ inputs | tojson }}",
            "{{ inputs[context.key] }}",
            "{{ inputs.a",
        ] {
            assert_eq!(check(json!({"a": 1}), &["{{ goal }}", read]), "", "{read}");
        }
        for unread in [
            "{{ inputs.ab }}",
            "{{ my_inputs.a }}",
            "{{ context.inputs.a }}",
            "{{ inputs.b.a }}",
            "{",
            "{{",
            "{%",
        ] {
            assert_ne!(check(json!({"a": 1}), &[unread]), "", "{unread}");
        }
        assert_eq!(check(json!({}), &[]), "");
        let names =
            read_names([branch, "{{ inputs.repo.url }} {{ inputs['depth'] }} {{ inputs }}"]);
        assert_eq!(names.into_iter().collect::<Vec<_>>(), ["branch", "depth", "repo"]);
    }
}
