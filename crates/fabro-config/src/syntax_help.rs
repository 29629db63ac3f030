//! How to correct a syntax error of a TOML file.

const JSON: &str = r#"settings are TOML, not JSON: write {"run": {"goal": "x"}} as run.goal = "x""#;

const GENERAL: &str =
    r#"settings are lines such as `goal = "text"` below a `[table]`; a comment begins with `#`"#;

/// Fixes by the prefix of the message of the parser.
const FIXES: [(&str, &str); 15] = [
    ("unclosed table", "close the name of the table: `[run]`"),
    ("unclosed array table", "close the name of the table: `[[run.hooks]]`"),
    ("unclosed array", "close the list with `]`"),
    (
        "missing comma between array elements",
        "put a comma between the elements, or close the list with `]`",
    ),
    ("unclosed inline table", "close the table with `}`"),
    (
        "missing comma between key-value pairs",
        "put a comma between the entries, or close the table with `}`",
    ),
    ("invalid multi-line basic string", r#"close the text with `"""`"#),
    ("invalid multi-line literal string", "close the text with `'''`"),
    (
        "invalid basic string",
        r#"close the text with `"` on its line; text of several lines stands in `"""`"#,
    ),
    (
        "invalid literal string",
        "close the text with `'` on its line; text of several lines stands in `'''`",
    ),
    ("missing escaped value", BACKSLASH),
    ("too few unicode value digits", BACKSLASH),
    ("key with no value", "write `name = value`; a comment begins with `#`"),
    (
        "unexpected key or value",
        "write one setting a line; text that has a quote stands in quotes of the other kind",
    ),
    (
        "cannot extend value",
        "this name already has a value, so it cannot be a table: rename one of them",
    ),
];

const QUOTES: &str =
    r#"write text in quotes: `"text"`; entries of lists and tables are separated by commas"#;

const BACKSLASH: &str = r"write `\\` for a backslash, or put the text in single quotes";

/// The fix for a message of the parser about `text[at..]`.
pub(crate) fn fix(text: &str, message: &str, at: usize) -> String {
    if text.trim_start().starts_with('{') {
        return JSON.to_owned();
    }
    let (before, rest) = text.split_at_checked(at).unwrap_or((text, ""));
    let begun = before.rsplit('\n').next().unwrap_or_default().trim();
    let value = rest.lines().next().and_then(|line| line.split('#').next()).unwrap_or_default();
    let value = value.trim().trim_matches(['"', '\'', '“', '”']);
    if message.starts_with("string values must be quoted") {
        let is_text = !value.contains(['"', '\\']) && !value.contains(char::is_control);
        return match value {
            _ if !begun.ends_with('=') || !is_text => QUOTES.to_owned(),
            "" => format!("write a value behind it: `{begun} \"text\"`"),
            value => format!("write text in quotes: `{begun} \"{value}\"`"),
        };
    }
    if message.starts_with("duplicate key") {
        let fix = match begun {
            "[" => "a table stands once in a file: put its settings below its first `[…]`",
            "[[" => "this name is already a table: use `[…]`, or `[[…]]` at each place",
            _ => "keep one of the lines with this name",
        };
        return fix.to_owned();
    }
    if message.starts_with("invalid boolean") {
        return "write `true` or `false`".to_owned();
    }
    let known = FIXES.iter().find(|(beginning, _)| message.starts_with(beginning));
    known.map_or(GENERAL, |(_, fix)| *fix).to_owned()
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    #[test]
    fn each_syntax_error_has_a_fix_that_fits() {
        let mut seen = String::new();
        for text in [
            "[run",
            "[[hooks",
            "a = hello",
            "a =",
            "a = “x”",
            "a = \"x",
            "a = 'x",
            "a = \"\"\"x",
            "a = '''x",
            "a = 'it's'",
            "a = \"C:\\x\"",
            "a = \"C:\\dir\"",
            "a = 1\na = 2",
            "[run]\n[run]",
            "[run]\n[[run]]",
            "[[run]]\n[run]",
            "a 1",
            "a: 1",
            "// no",
            "a = [1, 2",
            "a = [1 2]",
            "a = {b = 1",
            "a = {b = 1 c = 2}",
            "a = True",
            "a = 1\n[a.b]",
            "a = 1_",
        ] {
            let errors = crate::parse_settings(text).unwrap_err();
            let [error] = &errors[..] else { panic!("{text}: {errors:?}") };
            let fix = error.fix.as_deref().unwrap_or("no fix");
            let _ = writeln!(seen, "{text:?}: {fix}");
        }
        insta::assert_snapshot!(seen, @r#"
        "[run": close the name of the table: `[run]`
        "[[hooks": close the name of the table: `[[run.hooks]]`
        "a = hello": write text in quotes: `a = "hello"`
        "a =": write a value behind it: `a = "text"`
        "a = “x”": write text in quotes: `a = "x"`
        "a = \"x": close the text with `"` on its line; text of several lines stands in `"""`
        "a = 'x": close the text with `'` on its line; text of several lines stands in `'''`
        "a = \"\"\"x": close the text with `"""`
        "a = '''x": close the text with `'''`
        "a = 'it's'": write one setting a line; text that has a quote stands in quotes of the other kind
        "a = \"C:\\x\"": write `\\` for a backslash, or put the text in single quotes
        "a = \"C:\\dir\"": write `\\` for a backslash, or put the text in single quotes
        "a = 1\na = 2": keep one of the lines with this name
        "[run]\n[run]": a table stands once in a file: put its settings below its first `[…]`
        "[run]\n[[run]]": this name is already a table: use `[…]`, or `[[…]]` at each place
        "[[run]]\n[run]": a table stands once in a file: put its settings below its first `[…]`
        "a 1": write `name = value`; a comment begins with `#`
        "a: 1": write `name = value`; a comment begins with `#`
        "// no": write `name = value`; a comment begins with `#`
        "a = [1, 2": close the list with `]`
        "a = [1 2]": write text in quotes: `"text"`; entries of lists and tables are separated by commas
        "a = {b = 1": close the table with `}`
        "a = {b = 1 c = 2}": settings are lines such as `goal = "text"` below a `[table]`; a comment begins with `#`
        "a = True": write `true` or `false`
        "a = 1\n[a.b]": this name already has a value, so it cannot be a table: rename one of them
        "a = 1_": settings are lines such as `goal = "text"` below a `[table]`; a comment begins with `#`
        "#);
    }
}
