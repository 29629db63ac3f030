//! Values that reach a function which runs them by way of variables: `x = '…'; os.system(x)`.
//!
//! A script is read statement by statement. What a function that runs code gets is followed back through
//! assignments, loops, arguments and results of functions of the script. Attributes, files, other modules
//! and the environment are not followed.

use std::collections::{BTreeMap, BTreeSet};

use crate::shell::VALUE;

/// Functions whose result is no code.
const HARMLESS: [&str; 6] = ["bool", "float", "int", "len", "quote", "repr"];

/// A statement of more parts is not taken apart, so that the time stays in proportion to the script: each
/// name in it may get each value.
const MAX_TOKENS: usize = 400;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'t> {
    Name(&'t str),
    Text(&'t str),
    Sign(char),
    Value(usize),
    /// The end of a statement.
    End,
}

/// One statement, as far as it matters.
#[derive(Default)]
struct Statement<'t> {
    values: Vec<usize>,
    names: BTreeSet<&'t str>,
    targets: BTreeSet<&'t str>,
}

/// The values that reach such a function, with its name.
pub(crate) fn follow(text: &str, has_shell: bool) -> BTreeMap<usize, String> {
    let tokens = tokens(text);
    let mut runners: BTreeMap<&str, &str> = BTreeMap::new();
    let mut sinks: Vec<(&str, &str)> = Vec::new();
    let lines: Vec<&[Token<'_>]> = tokens.split(|token| *token == Token::End).collect();
    for line in &lines {
        sinks.extend(sinks_of(line, has_shell, &mut runners));
    }
    let mut refused = BTreeMap::new();
    if sinks.is_empty() {
        return refused;
    }
    let statements = statements(&lines);
    let mut by_target: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, statement) in statements.iter().enumerate() {
        for target in &statement.targets {
            by_target.entry(target).or_default().push(at);
        }
    }
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let mut is_followed = vec![false; statements.len()];
    while let Some((name, function)) = sinks.pop() {
        if !seen.insert(name) {
            continue;
        }
        for &at in by_target.get(name).into_iter().flatten() {
            let statement = &statements[at];
            if std::mem::replace(&mut is_followed[at], true) {
                continue;
            }
            for value in &statement.values {
                refused.entry(*value).or_insert_with(|| function.to_owned());
            }
            sinks.extend(statement.names.iter().map(|name| (*name, function)));
        }
    }
    refused
}

fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut at = 0;
    let mut values = 0;
    let mut depth = 0_usize;
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at..];
        let word = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let quote = rest[word..].chars().next().filter(|c| matches!(c, '"' | '\''));
        if let Some(quote) = quote.filter(|_| word < 3) {
            let inside = literal(&text[at + word..], quote);
            let start = at + word + inside.start;
            let body = &text[start..at + word + inside.end];
            tokens.push(Token::Text(body));
            let is_formatted = rest[..word].contains(['f', 'F', 't', 'T']);
            parts(body, is_formatted, &mut values, &mut tokens);
            at = (start + body.len() + inside.start).min(text.len());
        } else if word > 0 {
            tokens.push(Token::Name(&rest[..word]));
            at += word;
        } else {
            match c {
                VALUE => {
                    tokens.push(Token::Value(values));
                    values += 1;
                }
                '#' => {
                    let comment = &rest[..rest.find('\n').unwrap_or(rest.len())];
                    values += comment.matches(VALUE).count();
                    at += comment.len();
                    continue;
                }
                '\n' | ';' if depth == 0 => tokens.push(Token::End),
                '\\' if rest[1..].starts_with('\n') => at += 1,
                _ if c.is_whitespace() => {}
                _ => {
                    match c {
                        '(' | '[' | '{' => depth += 1,
                        ')' | ']' | '}' => depth = depth.saturating_sub(1),
                        _ => {}
                    }
                    tokens.push(Token::Sign(c));
                }
            }
            at += c.len_utf8();
        }
    }
    tokens
}

/// Where the text of the literal lies that begins here with its quotes.
fn literal(text: &str, quote: char) -> std::ops::Range<usize> {
    let triple = [quote; 3].iter().collect::<String>();
    let end = if text.starts_with(&triple) { triple } else { quote.to_string() };
    let mut at = end.len();
    while let Some(c) = text[at..].chars().next() {
        if text[at..].starts_with(&end) {
            return end.len()..at;
        }
        at += c.len_utf8();
        if c == '\\' {
            at += text[at..].chars().next().filter(|c| *c != VALUE).map_or(0, char::len_utf8);
        }
    }
    end.len()..text.len()
}

/// The values in a literal, and the names in the braces of an f-string.
fn parts<'t>(body: &'t str, is_formatted: bool, values: &mut usize, tokens: &mut Vec<Token<'t>>) {
    let mut depth = 0_usize;
    let mut from = 0;
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    for (at, c) in body.char_indices() {
        if c == VALUE {
            tokens.push(Token::Value(*values));
            *values += 1;
        }
        let ends = is_name(c) && !body[at + c.len_utf8()..].starts_with(is_name);
        if ends && is_formatted && depth > 0 {
            tokens.push(Token::Name(&body[from..at + c.len_utf8()]));
        }
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            '(' | ')' if is_formatted && depth > 0 => tokens.push(Token::Sign(c)),
            _ => {}
        }
        if !is_name(c) {
            from = at + c.len_utf8();
        }
    }
}

/// Up to the bracket that closes the one before these tokens.
fn inside<'a, 't>(tokens: &'a [Token<'t>]) -> &'a [Token<'t>] {
    let mut depth = 1_usize;
    let end = tokens.iter().position(|token| {
        match token {
            Token::Sign('(' | '[' | '{') => depth += 1,
            Token::Sign(')' | ']' | '}') => depth -= 1,
            _ => {}
        }
        depth == 0
    });
    &tokens[..end.unwrap_or(tokens.len())]
}

/// The names in a call of a function that runs code. A statement that gives such a function another name
/// adds to them.
fn sinks_of<'t>(
    line: &[Token<'t>],
    has_shell: bool,
    runners: &mut BTreeMap<&'t str, &'t str>,
) -> Vec<(&'t str, &'t str)> {
    if line.len() > MAX_TOKENS {
        let function = line.iter().find_map(|token| match token {
            Token::Name(name) | Token::Text(name) if evaluates(name, has_shell) => Some(*name),
            Token::Text(text) if is_code_option(text) => Some("-c"),
            _ => None,
        });
        let names = function.map(|function| (names_of(line).0, function)).into_iter();
        return names
            .flat_map(|(names, it)| names.into_iter().map(move |name| (name, it)))
            .collect();
    }
    let mut sinks = Vec::new();
    for (at, token) in line.iter().enumerate() {
        match token {
            Token::Name(name) | Token::Text(name)
                if runners.contains_key(name) || evaluates(name, has_shell) =>
            {
                let module = at.checked_sub(2).map(|before| line[before]);
                if *name == "compile" && module == Some(Token::Name("re")) {
                    continue;
                }
                let function = runners.get(name).copied().unwrap_or(name);
                let after = &line[at + 1..];
                // `getattr(os, 'system')(…)`
                let opens = after.iter().position(|token| *token != Token::Sign(')'));
                match opens.map(|opens| (after[opens], &after[opens + 1..])) {
                    Some((Token::Sign('('), arguments)) => {
                        let names = arguments_of(inside(arguments));
                        sinks.extend(names.into_iter().map(|name| (name, function)));
                    }
                    _ => {
                        if let [Token::Name(alias), Token::Sign('='), ..] = line {
                            runners.insert(alias, function);
                        }
                    }
                }
            }
            Token::Text(text) if is_code_option(text) => {
                let rest = names_of(inside(&line[at + 1..])).0;
                sinks.extend(rest.into_iter().map(|name| (name, "-c")));
            }
            _ => {}
        }
    }
    sinks
}

/// The names in the arguments of a call that may be code: not those of options such as `cwd=…`.
fn arguments_of<'t>(tokens: &[Token<'t>]) -> BTreeSet<&'t str> {
    const CODE: [&str; 6] = ["args", "cmd", "command", "executable", "name", "source"];
    let mut depth = 0_usize;
    let pieces = tokens.split(|token| {
        match token {
            Token::Sign('(' | '[' | '{') => depth += 1,
            Token::Sign(')' | ']' | '}') => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && *token == Token::Sign(',')
    });
    let is_code = |piece: &&[Token<'_>]| match piece {
        [Token::Name(name), Token::Sign('='), second, ..] => {
            CODE.contains(name) || *second == Token::Sign('=')
        }
        _ => true,
    };
    pieces.filter(is_code).flat_map(|piece| names_of(piece).0).collect()
}

/// The names and values in a part of a statement, without what harmless functions get.
fn names_of<'t>(tokens: &[Token<'t>]) -> (BTreeSet<&'t str>, Vec<usize>) {
    const KEYWORDS: [&str; 18] = [
        "False",
        "None",
        "True",
        "and",
        "as",
        "cls",
        "def",
        "else",
        "for",
        "if",
        "in",
        "is",
        "lambda",
        "not",
        "or",
        "os",
        "self",
        "subprocess",
    ];
    let mut names = BTreeSet::new();
    let mut values = Vec::new();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        at += 1;
        match token {
            Token::Name(name)
                if HARMLESS.contains(name) && tokens.get(at) == Some(&Token::Sign('(')) =>
            {
                at += 1 + inside(&tokens[at + 1..]).len();
            }
            Token::Name(name) if !KEYWORDS.contains(name) => drop(names.insert(*name)),
            Token::Value(value) => values.push(*value),
            _ => {}
        }
    }
    (names, values)
}

/// What each statement takes and gives, calls of the script's own functions among it.
fn statements<'t>(lines: &[&[Token<'t>]]) -> Vec<Statement<'t>> {
    let mut parameters: BTreeMap<&str, BTreeSet<&'t str>> = BTreeMap::new();
    for line in lines {
        for (at, token) in line.iter().enumerate() {
            if let (Token::Name("def"), Some(Token::Name(name))) = (token, line.get(at + 1)) {
                let names = names_of(inside(line.get(at + 3..).unwrap_or_default())).0;
                parameters.entry(name).or_default().extend(names);
            }
        }
    }
    let mut function = None;
    let mut statements = Vec::new();
    for line in lines {
        let (names, values) = names_of(line);
        let mut statement = Statement { values, names, ..Statement::default() };
        if line.len() > MAX_TOKENS {
            statement.targets.clone_from(&statement.names);
            statements.push(statement);
            continue;
        }
        let targets = &mut statement.targets;
        for (at, token) in line.iter().enumerate() {
            let after = line.get(at + 1);
            match token {
                Token::Name("def") => {
                    function = match after {
                        Some(Token::Name(name)) => Some(*name),
                        _ => None,
                    };
                }
                Token::Name("return" | "yield") => targets.extend(function),
                Token::Name("for") => {
                    let until = line[at..].iter().position(|it| *it == Token::Name("in"));
                    targets.extend(names_of(&line[at..at + until.unwrap_or_default()]).0);
                }
                Token::Name("as") => targets.extend(match after {
                    Some(Token::Name(name)) => Some(*name),
                    _ => None,
                }),
                Token::Name(name) if after == Some(&Token::Sign('(')) => {
                    targets.extend(parameters.get(name).into_iter().flatten());
                }
                // `NAME.append(…)`
                Token::Name(name) if at == 0 && after == Some(&Token::Sign('.')) => {
                    targets.extend((!["os", "subprocess"].contains(name)).then_some(*name));
                }
                // `a = …`, `a += …`, `(a := …)`, and no comparison.
                Token::Sign('=') if after != Some(&Token::Sign('=')) => {
                    let before = at.checked_sub(1).map(|before| line[before]);
                    let is_other =
                        [Some(Token::Sign('=')), Some(Token::Sign('!'))].contains(&before);
                    if !is_other {
                        targets.extend(names_of(&line[..at]).0);
                    }
                }
                _ => {}
            }
        }
        statements.push(statement);
    }
    statements
}

/// Functions that run a text as Python or as a shell script.
const EVALUATING: [&str; 14] = [
    "__import__",
    "check_call_shell",
    "compile",
    "create_subprocess_shell",
    "eval",
    "exec",
    "execfile",
    "getoutput",
    "getstatusoutput",
    "import_module",
    "literal_exec",
    "popen",
    "run_path",
    "system",
];

/// Functions that do so with `shell=True`.
const WITH_SHELL: [&str; 5] = ["Popen", "call", "check_call", "check_output", "run"];

/// A function of this name runs a text as code, or does so when a shell is asked for.
pub(crate) fn evaluates(name: &str, has_shell: bool) -> bool {
    EVALUATING.contains(&name) || has_shell && WITH_SHELL.contains(&name)
}

/// An option of a shell or of Python that code follows: `-c`, `-lc`.
pub(crate) fn is_code_option(text: &str) -> bool {
    text.strip_prefix('-').and_then(|it| it.strip_suffix('c')).is_some_and(|letters| {
        letters.len() < 4 && letters.bytes().all(|byte| b"aefilnuvx".contains(&byte))
    })
}
