//! The state of reading a script: what was read so far, and what is known of its values.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use super::{HeredocEnd, Place};
use crate::misplaced::Misplaced;

/// The deepest nesting of commands, quotes and brackets that is followed.
pub(super) const MAX_DEPTH: usize = 48;

/// `Err`: from here on shells may read the script in more than one way.
pub(super) type Scan<T> = Result<T, Misplaced>;

/// What ends a list.
#[derive(Clone, Copy)]
pub(super) enum End {
    Text,
    Paren,
    Words(&'static [&'static str]),
    /// `;;` and the like, or `esac`.
    CaseItem,
}

#[derive(Clone, Default)]
pub(super) struct Slot {
    pub(super) place: Option<Place>,
    pub(super) refused: Option<Misplaced>,
    /// The command that its here-document belongs to must accept it, too.
    pub(super) heredoc: Option<usize>,
}

pub(super) struct Heredoc {
    pub(super) end: HeredocEnd,
    pub(super) expands: bool,
    pub(super) is_accepted: bool,
    pub(super) refused: Option<Misplaced>,
    /// What is expanded in it, in [`Scanner::reads`].
    pub(super) reads: Range<usize>,
}

pub(super) struct Scanner<'t> {
    pub(super) text: &'t str,
    pub(super) bytes: &'t [u8],
    pub(super) at: usize,
    /// The number of the next value.
    pub(super) next: usize,
    pub(super) depth: usize,
    pub(super) heredocs: Vec<Heredoc>,
    /// Here-documents whose text begins after the next line end.
    pub(super) pending: VecDeque<usize>,
    /// The variables that are expanded, and what else commands use.
    pub(super) reads: Vec<Read>,
    /// `$_` is read: the last word of the command before.
    pub(super) reads_last_word: bool,
    /// The files that `exec` made the output of what follows.
    pub(super) redirected: Vec<String>,
    pub(super) slots: Vec<Slot>,
    /// Values before this one are decided.
    pub(super) decided: usize,
    pub(super) sinks: Sinks,
    pub(super) assigned: Vec<Flow>,
    /// Variables with attributes: integers and references; arrays.
    pub(super) attributed: BTreeSet<String>,
    pub(super) arrays: BTreeSet<String>,
    pub(super) is_any_attributed: bool,
    pub(super) functions: BTreeSet<String>,
    /// The functions that read their input: what they run of it, and the names that they read.
    pub(super) readers: BTreeMap<String, (Option<String>, BTreeSet<String>)>,
    /// The variables and files that take the input of a command, in the order of the text.
    pub(super) input_names: Vec<String>,
    /// The commands that run their input, and do not have one of their own.
    pub(super) input_runners: Vec<String>,
}

/// Something in the text that a command uses, and that may hold values.
#[derive(Clone, Debug)]
pub(super) enum Read {
    /// A variable or an argument.
    Variable(Range<usize>),
    /// A file, by a word that may name one.
    File(Range<usize>),
    /// What a command of this name prints, which may be a function.
    Output(Range<usize>),
    /// All variables and functions.
    State,
    /// A quoted text with signs of the shell, which is a script if it is run.
    Script(Range<usize>),
}

/// Values and variables that become part of a variable, of the arguments or of a file.
#[derive(Default)]
pub(super) struct Flow {
    pub(super) values: Range<usize>,
    pub(super) heredocs: Range<usize>,
    /// By their place in [`Scanner::reads`].
    pub(super) reads: Range<usize>,
    /// The name that a word without anything else in it may be.
    pub(super) name: Option<String>,
    pub(super) to: String,
    /// The command with these arguments; they are taken only if it is a function.
    pub(super) command: Option<String>,
    /// As a command it would be one that values decide, or that evaluates them.
    pub(super) leads: bool,
    /// By `declare` and the like, which read `(…)` in the value for arrays.
    pub(super) by_declaration: bool,
}

/// Where code comes from.
#[derive(Default)]
pub(super) struct Sinks {
    /// Variables that are evaluated as code or in arithmetic.
    pub(super) evaluated: BTreeSet<String>,
    /// Variables that stand where the name of a command stands.
    pub(super) commands: BTreeSet<String>,
}
