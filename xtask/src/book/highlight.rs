//! Colors for blocks of code, by one scanner for all languages of the pages: comments, strings, numbers and the names
//! that a language knows.

use std::fmt::Write as _;

/// What a language looks like.
struct Language {
    /// What begins a comment that ends with the line.
    comments: &'static [&'static str],
    quotes: &'static [char],
    keywords: &'static [&'static str],
    /// Whether the name before a `=` is a key.
    has_keys: bool,
}

const DOT: Language = Language {
    comments: &["//"],
    quotes: &['"'],
    keywords: &["digraph", "subgraph", "graph", "node", "edge", "strict", "true", "false"],
    has_keys: true,
};
const TOML: Language = Language {
    comments: &["#"],
    quotes: &['"', '\''],
    keywords: &["true", "false"],
    has_keys: true,
};
const JSON: Language = Language {
    comments: &[],
    quotes: &['"'],
    keywords: &["true", "false", "null"],
    has_keys: false,
};
const SHELL: Language = Language {
    comments: &["# "],
    quotes: &['"', '\''],
    keywords: &[
        "if", "then", "else", "fi", "for", "in", "do", "done", "while", "case", "esac", "exec",
        "set",
    ],
    has_keys: false,
};
const PYTHON: Language = Language {
    comments: &["#"],
    quotes: &['"', '\''],
    keywords: &[
        "and", "as", "class", "def", "elif", "else", "for", "from", "if", "import", "in", "None",
        "not", "or", "pass", "return", "self", "True", "False", "try", "except", "while", "with",
        "yield", "lambda", "raise",
    ],
    has_keys: false,
};
const RUST: Language = Language {
    comments: &["//"],
    quotes: &['"'],
    keywords: &[
        "as", "async", "await", "const", "else", "enum", "false", "fn", "for", "if", "impl", "in",
        "let", "match", "mod", "mut", "pub", "ref", "return", "self", "Self", "static", "struct",
        "super", "trait", "true", "type", "use", "where", "while",
    ],
    has_keys: false,
};

/// A block of code as HTML.
pub(super) fn html(language: &str, code: &str) -> String {
    let language = match language {
        "dot" => DOT,
        "toml" => TOML,
        "json" => JSON,
        "sh" | "bash" => SHELL,
        "python" => PYTHON,
        "rust" => RUST,
        "console" => return console(code),
        _ => return escape(code),
    };
    scan(&language, code)
}

/// Commands stand out; what they print does not.
fn console(code: &str) -> String {
    let lines = code.lines().map(|line| match line.strip_prefix("$ ") {
        Some(command) => format!("<span class=\"p\">$ </span><b>{}</b>\n", scan(&SHELL, command)),
        None => format!("<span class=\"o\">{}</span>\n", escape(line)),
    });
    lines.collect()
}

fn scan(language: &Language, code: &str) -> String {
    let mut html = String::new();
    let mut rest = code;
    while let Some(first) = rest.chars().next() {
        let (class, length) = token(language, rest, first);
        let (text, after) = rest.split_at(length);
        if class.is_empty() {
            html.push_str(&escape(text));
        } else {
            let _ = write!(html, "<span class=\"{class}\">{}</span>", escape(text));
        }
        rest = after;
    }
    html
}

/// The class and the length of the token at the start of `rest`: at least its first character.
fn token(language: &Language, rest: &str, first: char) -> (&'static str, usize) {
    if language.comments.iter().any(|comment| rest.starts_with(comment)) {
        return ("c", rest.find('\n').unwrap_or(rest.len()));
    }
    if language.quotes.contains(&first) {
        return ("s", string(rest, first));
    }
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '-');
    if first.is_alphanumeric() || first == '_' {
        let length = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        // An arrow is no part of a name.
        let length = rest[..length].trim_end_matches('-').len();
        let (word, after) = rest.split_at(length);
        let after = after.trim_start_matches(' ');
        let is_key = language.has_keys && after.starts_with('=') && !after.starts_with("==");
        let class = match first {
            _ if is_key => "k",
            '0'..='9' => "n",
            _ if language.keywords.contains(&word) => "w",
            _ => "",
        };
        return (class, length);
    }
    ("", first.len_utf8())
}

/// The length of a string with its quotes; one without an end ends with the text.
fn string(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Text as HTML.
pub(super) fn escape(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            c => html.push(c),
        }
    }
    html
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    #[test]
    fn tokens_get_classes() {
        assert_snapshot!(html("dot", "digraph A { a -> b [script=\"echo \\\"1\\\"\", x=5m] // c\n}"), @r#"
        <span class="w">digraph</span> A { a -&gt; b [<span class="k">script</span>=<span class="s">&quot;echo \&quot;1\&quot;&quot;</span>, <span class="k">x</span>=<span class="n">5m</span>] <span class="c">// c</span>
        }
        "#);
        assert_snapshot!(html("toml", "[run]\n# c\na = 'b' # d"), @r#"
        [run]
        <span class="c"># c</span>
        <span class="k">a</span> = <span class="s">'b'</span> <span class="c"># d</span>
        "#);
        assert_snapshot!(html("console", "$ fabro run \"a b\"\n<done>\n"), @r#"
        <span class="p">$ </span><b>fabro run <span class="s">&quot;a b&quot;</span></b>
        <span class="o">&lt;done&gt;</span>
        "#);
        assert_snapshot!(html("text", "a < b"), @"a &lt; b");
    }

    #[test]
    fn no_character_is_lost() {
        for code in ["\"open", "'", "é-", "a--", "#", "1.5e3", "\\"] {
            for language in ["dot", "toml", "sh", "python", "json", "rust"] {
                let text = html(language, code);
                let mut plain = String::new();
                let mut is_tag = false;
                for c in text.chars() {
                    match c {
                        '<' => is_tag = true,
                        '>' => is_tag = false,
                        c if !is_tag => plain.push(c),
                        _ => {}
                    }
                }
                assert_eq!(plain.replace("&quot;", "\""), code, "{language}");
            }
        }
    }
}
