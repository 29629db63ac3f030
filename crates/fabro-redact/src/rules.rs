//! The compiled patterns of all values and shapes.

use std::collections::{BTreeMap, HashMap, HashSet};

use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::nfa::contiguous::NFA;
use aho_corasick::{Anchored, PatternID};

use crate::SHORTEST_VALUE;
use crate::forms::forms;
use crate::shapes::{SHAPES, Shape};

/// The longest name in a mark, in characters.
const NAME_CHARS: usize = 64;

/// Common values of variables that are no secrets: switches and well-known passwords.
#[rustfmt::skip]
const PLAIN: &[&str] = &[
    "changeme", "development", "disabled", "localhost", "optional", "password", "postgres",
    "production", "required", "undefined",
];

/// The patterns of all values and of the beginnings of all shapes.
pub(crate) struct Rules {
    automaton: NFA,
    pub(crate) start: StateID,
    /// How many of the last bytes are the beginning of a pattern, by state; absent for zero.
    depths: HashMap<StateID, usize>,
    patterns: Vec<Pattern>,
    /// The first bytes of patterns that are redacted anywhere, not only at the beginning of a word.
    in_words: HashSet<u8>,
    /// By index of the value.
    marks: Vec<String>,
    names: Vec<String>,
}

/// What a pattern stands for.
#[derive(Clone, Copy)]
pub(crate) enum Pattern {
    /// A value by its index.
    Value(usize),
    Shape(&'static Shape),
}

impl Rules {
    pub(crate) fn new<N: AsRef<str>, V: AsRef<str>>(
        values: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        let mut marks = Vec::new();
        let mut names = Vec::new();
        // Ordered, so that the automaton depends on the values only.
        let mut texts: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
        for (name, value) in values {
            let value = value.as_ref().trim();
            if value.chars().nth(SHORTEST_VALUE - 1).is_some() && !is_plain(value) {
                for form in forms(value) {
                    texts.entry(form).or_insert(marks.len());
                }
                marks.push(mark(name.as_ref()));
                names.push(name.as_ref().to_owned());
            }
        }
        let shapes = SHAPES.iter().map(|shape| (shape.prefix.as_bytes(), Pattern::Shape(shape)));
        let values = texts.iter().map(|(text, value)| (&**text, Pattern::Value(*value)));
        let (texts, patterns): (Vec<_>, Vec<_>) = shapes.chain(values).unzip();
        let (automaton, start) = compile(&texts);
        let depths = depths(&automaton, start, &texts);
        let counts = |pattern: &Pattern| match pattern {
            Pattern::Shape(shape) => !shape.at_word && !shape.keeps_prefix,
            Pattern::Value(_) => true,
        };
        let begins = texts.iter().zip(&patterns).filter(|(_, pattern)| counts(pattern));
        let in_words = begins.filter_map(|(text, _)| text.first().copied()).collect();
        Self { automaton, start, depths, patterns, in_words, marks, names }
    }

    /// The number of values.
    pub(crate) fn values(&self) -> usize {
        self.marks.len()
    }

    /// The name of a value.
    pub(crate) fn name(&self, value: usize) -> Option<&str> {
        self.names.get(value).map(String::as_str)
    }

    /// The mark for a value, or for a shape.
    pub(crate) fn mark(&self, value: Option<usize>) -> &str {
        value.and_then(|value| self.marks.get(value)).map_or("[redacted]", String::as_str)
    }

    /// Reads bytes up to the first one that ends a pattern; returns the state and how many were read.
    pub(crate) fn run(&self, mut state: StateID, bytes: &[u8]) -> (StateID, usize) {
        for (at, byte) in bytes.iter().enumerate() {
            state = self.automaton.next_state(Anchored::No, state, *byte);
            if self.is_match(state) {
                return (state, at + 1);
            }
        }
        (state, bytes.len())
    }

    pub(crate) fn is_match(&self, state: StateID) -> bool {
        self.automaton.is_special(state) && self.automaton.is_match(state)
    }

    /// The patterns that end in a state, with their lengths.
    pub(crate) fn matches(&self, state: StateID) -> impl Iterator<Item = (Pattern, usize)> + '_ {
        let count = if self.is_match(state) { self.automaton.match_len(state) } else { 0 };
        (0..count).filter_map(move |index| {
            let id: PatternID = self.automaton.match_pattern(state, index);
            Some((*self.patterns.get(id.as_usize())?, self.automaton.pattern_len(id)))
        })
    }

    /// Whether a pattern that is redacted inside a word begins with this byte.
    pub(crate) fn begins_in_word(&self, byte: u8) -> bool {
        self.in_words.contains(&byte)
    }

    /// How many of the last bytes are the beginning of a pattern.
    pub(crate) fn depth(&self, state: StateID) -> usize {
        self.depths.get(&state).copied().unwrap_or(0)
    }
}

#[expect(
    clippy::expect_used,
    reason = "an automaton fails to be built beyond two billion states, for which memory ends first"
)]
fn compile(texts: &[&[u8]]) -> (NFA, StateID) {
    let automaton = NFA::builder().dense_depth(3).build(texts).expect("fewer states than memory");
    let start = automaton.start_state(Anchored::No).expect("searches are not anchored");
    (automaton, start)
}

fn depths(automaton: &NFA, start: StateID, texts: &[&[u8]]) -> HashMap<StateID, usize> {
    let mut depths = HashMap::new();
    for text in texts {
        let mut state = start;
        for (at, byte) in text.iter().enumerate() {
            state = automaton.next_state(Anchored::No, state, *byte);
            depths.insert(state, at + 1);
        }
    }
    depths
}

fn is_plain(value: &str) -> bool {
    PLAIN.iter().any(|plain| value.eq_ignore_ascii_case(plain))
}

fn mark(name: &str) -> String {
    let keep = |c: char| if c.is_ascii_alphanumeric() || "_-.".contains(c) { c } else { '_' };
    let name: String = name.trim().chars().take(NAME_CHARS).map(keep).collect();
    if name.is_empty() { "[redacted]".to_owned() } else { format!("[redacted:{name}]") }
}
