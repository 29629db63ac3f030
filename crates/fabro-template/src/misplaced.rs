//! Why a value cannot stand where it stands in a script.

use std::borrow::Cow;

/// A place that takes no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Misplaced {
    /// Where it is, in words that follow "cannot stand".
    pub(crate) place: Cow<'static, str>,
    /// What to do instead.
    pub(crate) advice: Advice,
}

/// What to do with a value that cannot stand where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advice {
    /// The place is for numbers.
    Number,
    /// A variable can stand there.
    Variable,
    /// A script for another interpreter can read the variable by itself.
    InnerScript,
    /// A program such as `sed`, which may read the variable by itself.
    Filter,
    /// The end of the here-document can be quoted.
    QuotedEnd,
    /// Words that decide what runs.
    Name,
    /// Only a fixed text can stand there.
    Fixed,
    /// Code of Python.
    Python,
    /// The script or the value is wrong.
    Script,
}

impl Misplaced {
    pub(crate) const fn new(place: &'static str, advice: Advice) -> Self {
        Self { place: Cow::Borrowed(place), advice }
    }

    pub(crate) fn of(place: String, advice: Advice) -> Self {
        Self { place: Cow::Owned(place), advice }
    }

    /// Digits are harmless there.
    pub(crate) fn takes_numbers(&self) -> bool {
        !matches!(self.advice, Advice::Name | Advice::Fixed | Advice::Script)
    }

    /// What to do instead, for this expression; `name` is a good name for a variable.
    pub(crate) fn fix(&self, expression: &str, name: &str) -> String {
        let variable = format!("set env.{name}=\"{{{{ {expression} }}}}\" on the node and");
        let number = format!("`{{{{ {expression} | int }}}}` for a whole number");
        match self.advice {
            Advice::Number => {
                format!(
                    "write {number}; for any other value {variable} use it as \"${name}\" elsewhere"
                )
            }
            Advice::Variable => format!("{variable} write \"${name}\", or write {number}"),
            Advice::InnerScript => format!(
                "{variable} read the variable inside that script, in single quotes: '… \"${name}\" …'; or write {number}"
            ),
            Advice::Filter => format!(
                "{variable} let the program read the variable itself, as awk does with ENVIRON[\"{name}\"] and perl with $ENV{{{name}}}; or write {number}"
            ),
            Advice::QuotedEnd => {
                format!("quote the end of the here-document (<<'EOF'), or {variable} write ${name}")
            }
            Advice::Name => format!(
                "{variable} write \"${name}\" if the value may decide what runs; a value that is code is piped through `raw`"
            ),
            Advice::Fixed => {
                format!("write a fixed text there; {variable} use it as \"${name}\" elsewhere")
            }
            Advice::Script => {
                "correct it, or write the value to a file and read it there".to_owned()
            }
            Advice::Python => format!(
                "write `{{{{ {expression} | py }}}}` in place of the whole literal, or {variable} read os.environ[\"{name}\"]"
            ),
        }
    }
}

/// A whole or decimal number, as `int` and `float` make it.
pub(crate) fn is_number(text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    match unsigned.split_once('.') {
        Some((whole, rest)) => digits(whole) && digits(rest),
        None => digits(unsigned),
    }
}
