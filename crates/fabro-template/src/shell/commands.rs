//! What commands do with their arguments: which of them they evaluate.

mod interpreters;

use std::collections::BTreeSet;
use std::ops::Range;

use super::flow;
use super::lists;
use super::scanner::MAX_DEPTH;
use super::word::{Word, is_name, unclear};
use crate::code_variables::is_code_variable;
use crate::misplaced::{Advice, Misplaced};

/// What a command does with its words.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "what is known of a command is independent")]
pub(super) struct Verdict {
    /// Words that take no value, by their index.
    pub(super) refused: Vec<(Range<usize>, Misplaced)>,
    /// The command runs what it reads from standard input.
    pub(super) runs_input: Option<String>,
    /// After this command shells may read the script in another way.
    pub(super) unclear: Option<Misplaced>,
    /// Its words `NAME=…` are declarations.
    pub(super) declares: bool,
    /// Variables that evaluate what is assigned to them.
    pub(super) attributed: Vec<String>,
    pub(super) arrays: Vec<String>,
    pub(super) any_attributed: bool,
    /// The words that name what runs and are not fixed.
    pub(super) names: Vec<usize>,
    /// Variables in the words that it refuses become code.
    pub(super) evaluates_reads: bool,
    /// Variables that a script in its words evaluates, and files that it runs.
    pub(super) evaluated: BTreeSet<String>,
    /// It is to run a command and has none.
    pub(super) lacks_command: bool,
}

impl Verdict {
    pub(super) fn refusing(words: Range<usize>, why: Misplaced) -> Self {
        Self { refused: vec![(words, why)], ..Self::default() }
    }

    /// That of a command inside this one, from its first word on.
    pub(super) fn of_inner(words: &[Word], from: usize, depth: usize) -> Self {
        let mut inner = judge(&words[from..], depth + 1);
        for (range, _) in &mut inner.refused {
            *range = range.start + from..range.end + from;
        }
        for name in &mut inner.names {
            *name += from;
        }
        inner
    }
}

const COMMAND_NAME: Misplaced = Misplaced::new("as the name of a command", Advice::Name);
const UNKNOWN: Misplaced = Misplaced::new(
    "in a command whose name is not fixed, for it may evaluate it",
    Advice::Variable,
);
const OPERAND: Misplaced = Misplaced::new(
    "in this place of a test, where it may be read as an operator",
    Advice::Variable,
);
const OPTION: Misplaced =
    Misplaced::new("where it may be read as an option of `printf`", Advice::Variable);
const DECLARATION: Misplaced = Misplaced::new(
    "in a declaration that is not `NAME=…` with a fixed name, or that sets attributes",
    Advice::Number,
);

/// Builtins that take any words as values.
const PLAIN: [&str; 20] = [
    ":", "break", "cd", "continue", "dirs", "echo", "exit", "false", "help", "kill", "logout",
    "popd", "pushd", "pwd", "return", "shift", "suspend", "times", "true", "umask",
];

/// Builtins that evaluate words, or take them for names of variables.
const EVALUATING: [&str; 27] = [
    ".",
    "bg",
    "bind",
    "caller",
    "compgen",
    "complete",
    "compopt",
    "disown",
    "enable",
    "eval",
    "fc",
    "fg",
    "getopts",
    "hash",
    "history",
    "jobs",
    "let",
    "mapfile",
    "read",
    "readarray",
    "shopt",
    "source",
    "trap",
    "ulimit",
    "unalias",
    "unset",
    "wait",
];

/// Builtins that declare variables.
pub(super) fn is_declaration(name: &str) -> bool {
    ["declare", "export", "local", "readonly", "typeset"].contains(&name)
}

/// What the command does with these words, of which the first is its name. `depth` counts the commands,
/// scripts, brackets and quotes that it stands in.
pub(super) fn judge(words: &[Word], depth: usize) -> Verdict {
    if depth > MAX_DEPTH {
        let unclear = unclear("in a command inside so many others");
        return Verdict {
            unclear: Some(unclear.clone()),
            ..Verdict::refusing(0..words.len(), unclear)
        };
    }
    let all = 1..words.len();
    if words[0].has_values() {
        return Verdict::refusing(0..words.len(), COMMAND_NAME);
    }
    let Some(name) = name_of(&words[0]) else {
        let has_operand = words[1..].iter().any(|word| !is_option(word));
        return Verdict {
            names: vec![0],
            runs_input: (!has_operand).then(|| "a command whose name is not fixed".to_owned()),
            ..Verdict::refusing(all, UNKNOWN)
        };
    };
    match name {
        "alias" => Verdict {
            unclear: Some(Misplaced::new("in a script that defines aliases", Advice::Variable)),
            ..Verdict::default()
        },
        "[" | "test" => test(name, words),
        "printf" => printf(words),
        "set" => set(words),
        name if is_declaration(name) => declaration(words),
        name if EVALUATING.contains(&name) => {
            let place = format!("in the arguments of `{name}`, which evaluates them");
            // The others take names of variables, or run files.
            let advice = match name {
                "eval" | "let" => Advice::Number,
                "trap" => Advice::InnerScript,
                _ => Advice::Variable,
            };
            evaluating(name, words, Misplaced::of(place, advice), depth)
        }
        name if PLAIN.contains(&name) => Verdict::default(),
        name => interpreters::judge(name, words, depth),
    }
}

/// A builtin that evaluates words, or what it reads.
fn evaluating(name: &str, words: &[Word], why: Misplaced, depth: usize) -> Verdict {
    const NAMES_VARIABLES: [&str; 8] =
        ["compgen", "complete", "getopts", "let", "mapfile", "read", "readarray", "unset"];
    let all = 1..words.len();
    let first = words.get(1).map_or("", |word| &*word.text);
    let is_input = match name {
        "." | "source" => first.starts_with("/dev/") || first.starts_with("/proc/"),
        // What is not fixed may be `$(cat)`.
        "eval" => words.iter().any(|word| word.text.contains('\0')),
        _ => false,
    };
    let mut verdict = Verdict {
        runs_input: is_input.then(|| name.to_owned()),
        evaluates_reads: NAMES_VARIABLES.contains(&name),
        ..Verdict::refusing(all, why)
    };
    match name {
        "." | "source" => {
            verdict.evaluated.extend(words.get(1).and_then(flow::file));
            // It may be `<(…)`.
            verdict.evaluates_reads |= words.get(1).is_some_and(|word| word.may_split);
        }
        "eval" | "trap" => {
            for text in words[1..].iter().filter_map(Word::fixed) {
                let inner = lists::read_inner(text, depth + 1);
                verdict.evaluated.extend(inner.evaluated);
                verdict.evaluated.extend(inner.commands);
                if inner.is_unclear {
                    verdict.evaluated.append(&mut flow::names(text));
                }
                if inner.runs_input {
                    verdict.runs_input.get_or_insert_with(|| name.to_owned());
                }
            }
        }
        _ => {}
    }
    verdict
}

/// As a command, the text of the word would be one that a value decides, or that evaluates its words.
pub(super) fn leads(word: &Word) -> bool {
    let text = word.assigned().trim_start();
    let first = text.split_whitespace().next().unwrap_or_default();
    let is_alone = first.len() == text.len();
    first.contains('\0') || !is_alone && (EVALUATING.contains(&first) || interpreters::runs(first))
}

/// The name without its folder; `None` when it is not fixed.
pub(super) fn name_of(word: &Word) -> Option<&str> {
    let name = word.text.rsplit('/').next().unwrap_or_default();
    let is_fixed = !name.is_empty() && !name.contains('\0');
    (is_fixed && (!word.has_pattern || word.text == "[")).then_some(name)
}

/// The command prints variables or functions with what they hold.
pub(super) fn prints_state(words: &[Word]) -> bool {
    let Some(name) = words.first().and_then(name_of) else { return false };
    let has = |letters: &[char]| {
        words[1..].iter().any(|word| is_option(word) && word.text.contains(letters))
    };
    match name {
        "set" | "env" | "alias" => words.len() == 1,
        "printenv" | "history" | "fc" | "type" => true,
        "command" => has(&['V']),
        "trap" => words.len() == 1 || has(&['p']),
        name if is_declaration(name) => words.len() == 1 || has(&['p', 'f']),
        _ => false,
    }
}

fn test(name: &str, words: &[Word]) -> Verdict {
    const BINARY: [&str; 19] = [
        "=", "==", "!=", "<", ">", "=~", "-eq", "-ne", "-gt", "-ge", "-lt", "-le", "-a", "-o",
        "-nt", "-ot", "-ef", ")", "]",
    ];
    let all = 1..words.len();
    if words.iter().any(|word| ["-v", "-R"].contains(&&*word.text)) {
        let place = format!("in `{name} -v`, which evaluates subscripts");
        return Verdict::refusing(all, Misplaced::of(place, Advice::Number));
    }
    let mut verdict = Verdict::default();
    for at in all {
        let is_before_operator = words.get(at + 1).is_none_or(|next| BINARY.contains(&&*next.text));
        let is_after_fixed = at == 1 || !words[at - 1].text.contains('\0');
        if words[at].has_values() && !(is_before_operator && is_after_fixed) {
            verdict.refused.push((at..at + 1, OPERAND));
        }
    }
    verdict
}

fn printf(words: &[Word]) -> Verdict {
    let first = words.get(1).map_or("", |word| &*word.text);
    if first != "--" && first.starts_with('-') {
        let why = Misplaced::new("in `printf -v`, which evaluates subscripts", Advice::Number);
        return Verdict::refusing(1..words.len(), why);
    }
    if first.starts_with('\0') && words.len() > 2 {
        return Verdict::refusing(1..2, OPTION);
    }
    Verdict::default()
}

fn set(words: &[Word]) -> Verdict {
    if words.iter().any(|word| word.text == "-H" || word.text == "histexpand") {
        let why = Misplaced::new("in a script that expands its history", Advice::Variable);
        return Verdict { unclear: Some(why), ..Verdict::default() };
    }
    let end = words.iter().position(|word| word.text == "--" || word.text == "-");
    let why = Misplaced::new("in the options of `set`, without `--` before it", Advice::Variable);
    Verdict::refusing(1..end.unwrap_or(words.len()).max(1), why)
}

/// The attributes that a declaration sets.
#[derive(Debug, Default)]
pub(super) struct Attributes {
    /// Values are evaluated or changed when they are assigned.
    pub(super) evaluates: bool,
    is_array: bool,
}

pub(super) fn attributes(words: &[Word]) -> Attributes {
    let mut attributes = Attributes::default();
    for word in words.iter().skip(1).take_while(|word| is_option(word)) {
        let letters = word.text[1..].chars();
        for letter in letters {
            match letter {
                'a' | 'A' => attributes.is_array = true,
                'x' | 'r' | 'g' | 'p' | 'f' | 'F' | '-' => {}
                _ => attributes.evaluates = true,
            }
        }
    }
    attributes
}

pub(super) fn is_option(word: &Word) -> bool {
    word.text.len() > 1 && word.text.starts_with(['-', '+'])
}

/// `declare`, `export` and the like.
fn declaration(words: &[Word]) -> Verdict {
    let attributes = attributes(words);
    let mut verdict = Verdict { declares: true, ..Verdict::default() };
    for (at, word) in words.iter().enumerate().skip(1) {
        let written = word.text.split(['=', '[', '+']).next().unwrap_or_default();
        let name = Some(written).filter(|name| is_name(name)).map(str::to_owned);
        let is_assignment = word.assigns.as_deref().is_some_and(|name| !is_code_variable(name));
        let sets_attributes = attributes.evaluates || attributes.is_array;
        if word.has_values() && (!is_assignment || sets_attributes) {
            verdict.refused.push((at..at + 1, DECLARATION));
        }
        if is_option(word) {
            continue;
        }
        match name {
            None if sets_attributes || word.may_split => verdict.any_attributed = true,
            Some(name) if attributes.evaluates => verdict.attributed.push(name),
            Some(name) if attributes.is_array => verdict.arrays.push(name),
            _ => {}
        }
    }
    verdict
}
