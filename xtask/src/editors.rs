//! Highlighting of workflows in editors: `docs/editors`, made from the table of attributes, so that it
//! names what the language has.

use fabro_graph::NodeKind;
use fabro_graph::schema::{ATTRIBUTES, OLDER_NAMES, ValueType};
use serde_json::{Value, json};

mod highlight;

pub(crate) use highlight::complaints;

/// The files, by path from the root, with their texts.
pub(crate) fn files() -> Vec<(String, String)> {
    #[expect(clippy::expect_used, reason = "strings and arrays are valid JSON")]
    let grammar = serde_json::to_string_pretty(&grammar()).expect("a JSON value prints");
    vec![
        ("docs/editors/vscode/fabro.tmLanguage.json".to_owned(), grammar + "\n"),
        ("docs/editors/tree-sitter/highlights.scm".to_owned(), highlights()),
    ]
}

/// The names of all attributes, older ones too, without those whose last part the workflow chooses.
fn names() -> Vec<&'static str> {
    let own = ATTRIBUTES.iter().map(|attribute| attribute.name);
    let older = OLDER_NAMES.iter().map(|older| older.older);
    let mut names: Vec<_> = own.chain(older).filter(|name| !is_family(name)).collect();
    // The longest first: of `max_tokens` and `max_tokens_total` the whole name counts.
    names.sort_by_key(|name| (std::cmp::Reverse(name.len()), *name));
    names
}

/// `inputs.KEY` and the like.
fn is_family(name: &str) -> bool {
    let last = name.rsplit_once('.').map(|(_, last)| last);
    last.is_some_and(|last| last.chars().all(|c| c.is_ascii_uppercase()))
}

fn families() -> Vec<&'static str> {
    let families = ATTRIBUTES.iter().filter(|attribute| is_family(attribute.name));
    families.filter_map(|attribute| Some(attribute.name.rsplit_once('.')?.0)).collect()
}

/// The words that attributes take, and the shapes and types of nodes.
fn words() -> Vec<String> {
    let of = |value: ValueType| match value {
        ValueType::Words(words) => words.to_vec(),
        _ => Vec::new(),
    };
    let words = ATTRIBUTES.iter().flat_map(|attribute| of(attribute.value)).map(str::to_owned);
    let kinds = NodeKind::ALL.iter().flat_map(|kind| [kind.to_string(), kind.shape().to_owned()]);
    let mut words: Vec<_> = words.chain(kinds).collect();
    words.sort_by_key(|word| (std::cmp::Reverse(word.len()), word.clone()));
    words.dedup();
    words
}

/// A regular expression for one of these words.
fn one_of<'w>(words: impl IntoIterator<Item = &'w str>) -> String {
    words.into_iter().map(|word| word.replace('.', "\\.")).collect::<Vec<_>>().join("|")
}

/// The `TextMate` grammar. Its expressions use nothing but what every engine has: no lookaround.
fn grammar() -> Value {
    let attribute = "support.type.property-name.fabro";
    let assign = "keyword.operator.assignment.fabro";
    let key = |expression: &str, scope: &str| {
        json!({
            "match": format!("({expression})(\\s*)(=)"),
            "captures": {"1": {"name": scope}, "3": {"name": assign}}
        })
    };
    let quoted_key = |name: &str, scope: &str, pattern: &str| {
        json!({
            "begin": format!("\\b({name})(\\s*)(=)(\\s*)(\")"),
            "end": "\"",
            "beginCaptures": {"1": {"name": attribute}, "3": {"name": assign},
                "5": {"name": "punctuation.definition.string.begin.fabro"}},
            "endCaptures": {"0": {"name": "punctuation.definition.string.end.fabro"}},
            "name": scope,
            "patterns": [{"include": "#escape"}, {"include": pattern}]
        })
    };
    let names = one_of(names());
    let families = one_of(families());
    let words = words();
    let words = one_of(words.iter().map(String::as_str));
    json!({
        "$schema": "https://raw.githubusercontent.com/martinring/tmlanguage/master/tmlanguage.json",
        "name": "Fabro workflow",
        "scopeName": "source.fabro",
        "fileTypes": ["fabro"],
        "patterns": [
            {"include": "#comment"},
            {"include": "#keyword"},
            quoted_key("condition|manager\\.stop_condition", "meta.condition.fabro", "#condition"),
            quoted_key("model_stylesheet", "meta.stylesheet.fabro", "#stylesheet"),
            key(&format!("\\b(?:{names})"), attribute),
            key(&format!("\"(?:{names})\""), attribute),
            key(&format!("\\b(?:{families})\\.[\\w.-]+"), attribute),
            key("[A-Za-z_][\\w.-]*", "variable.other.property.fabro"),
            {"include": "#string"},
            {"include": "#value"},
            {"match": "->", "name": "keyword.operator.arrow.fabro"},
            {"match": "[\\[\\]{}]", "name": "punctuation.section.fabro"},
            {"match": "[,;]", "name": "punctuation.separator.fabro"}
        ],
        "repository": {
            "comment": {"patterns": [
                {"match": "^\\s*#.*$", "name": "comment.line.number-sign.fabro"},
                {"match": "//.*$", "name": "comment.line.double-slash.fabro"},
                {"begin": "/\\*", "end": "\\*/", "name": "comment.block.fabro"}
            ]},
            "keyword": {"patterns": [
                {"match": "\\b(?i:strict|digraph|subgraph)\\b", "name": "storage.type.fabro"},
                {"match": "\\b(?i:(graph|node|edge))(\\s*)(\\[)", "captures": {
                    "1": {"name": "storage.type.fabro"},
                    "3": {"name": "punctuation.section.fabro"}}}
            ]},
            "string": {
                "begin": "\"", "end": "\"", "name": "string.quoted.double.fabro",
                "patterns": [{"include": "#escape"}, {"include": "#template"}]
            },
            "escape": {"match": "\\\\.", "name": "constant.character.escape.fabro"},
            "template": {
                "begin": "\\{\\{", "end": "\\}\\}", "name": "meta.template.expression.fabro",
                "patterns": [
                    {"include": "#escape"},
                    {"match": "\\b(?:goal|inputs|context)\\b", "name": "variable.language.fabro"},
                    {"match": "(\\|)(\\s*)(\\w+)", "captures": {
                        "1": {"name": "keyword.operator.fabro"},
                        "3": {"name": "support.function.fabro"}}}
                ]
            },
            "condition": {"patterns": [
                {"match": "\\b(?:outcome|preferred_label)\\b", "name": "variable.language.fabro"},
                {"match": "&&|\\|\\||!?\\b(?:contains|matches)\\b|[!=<>]=|[!=<>]",
                 "name": "keyword.operator.logical.fabro"},
                {"match": "\\b(?:succeeded|partially_succeeded|partial_success|success|skipped|skip|failed|failure|fail|true|false)\\b",
                 "name": "constant.language.fabro"},
                {"match": "-?\\b\\d+(?:\\.\\d+)?\\b", "name": "constant.numeric.fabro"},
                {"match": "[A-Za-z_][\\w.-]*", "name": "variable.other.fabro"}
            ]},
            "stylesheet": {"patterns": [
                {"match": "\\b(model|provider|reasoning_effort|speed|backend|max_tokens|llm_model|llm_provider)(\\s*)(:)([^;}\"]*)",
                 "captures": {"1": {"name": "support.type.property-name.css.fabro"},
                    "4": {"name": "string.unquoted.fabro"}}},
                {"match": "[.#][\\w-]+|\\*|\\b\\w+\\b", "name": "entity.name.tag.css.fabro"}
            ]},
            "value": {"patterns": [
                {"match": "\\b(?:true|false)\\b", "name": "constant.language.boolean.fabro"},
                {"match": "\\b\\d+(?:ms|s|m|h|d)\\b", "name": "constant.numeric.duration.fabro"},
                {"match": "-?(?:\\d+(?:\\.\\d*)?|\\.\\d+)\\b", "name": "constant.numeric.fabro"},
                {"match": format!("(=)(\\s*)({words})\\b"), "captures": {
                    "3": {"name": "support.constant.fabro"}}},
                {"match": format!("\\b(?:{words})\\b"), "name": "support.constant.fabro"},
                {"match": "\\b\\w[\\w.:/-]*", "name": "variable.other.node.fabro"}
            ]}
        }
    })
}

/// The queries for the grammar `tree-sitter-dot`.
fn highlights() -> String {
    let names: Vec<_> = names().iter().map(|name| format!("\"{name}\"")).collect();
    let lines = names.chunks(4).map(|line| format!("\n    {}", line.join(" ")));
    let lists: String = lines.collect();
    format!(
        "; Highlights of Fabro workflows for the grammar tree-sitter-dot.
; Made by `cargo xtask fixtures --bless` from the table of attributes.

(comment) @comment
(preproc) @comment

(keyword) @keyword

(string_literal) @string
(number_literal) @number
[(edgeop) (operator)] @operator
[\"{{\" \"}}\" \"[\" \"]\"] @punctuation.bracket
[\",\" \";\"] @punctuation.delimiter

(node_id (id (identifier) @variable))
(subgraph id: (id (identifier) @module))
(attribute value: (id (identifier) @constant))

; Attributes of other tools are kept, and have no effect.
(attribute name: (id) @property)

((attribute name: (id) @attribute)
  (#any-of? @attribute{lists}))

((attribute
   name: (id) @_name
   value: (id (string_literal) @string.special))
  (#any-of? @_name \"condition\" \"model_stylesheet\" \"manager.stop_condition\"))

((attribute value: (id (identifier) @boolean))
  (#any-of? @boolean \"true\" \"false\"))
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_are_those_of_the_language() {
        for (path, text) in files() {
            let written = std::fs::read_to_string(crate::root().join(&path)).unwrap_or_default();
            assert_eq!(written, text, "{path}: run `cargo xtask fixtures --bless`");
        }
    }

    #[test]
    fn workflows_of_the_documentation_are_highlighted() {
        let docs =
            std::fs::read_to_string(crate::root().join("docs/workflow-language.md")).unwrap();
        let mut blocks = docs.split("```dot\n").skip(1).filter_map(|rest| rest.split("```").next());
        let found: Vec<_> = blocks.by_ref().flat_map(|block| complaints("docs", block)).collect();
        assert_eq!(found, Vec::<String>::new());
    }
}
