//! The regular expression of a `matches` clause: checked when the condition is parsed, compiled when
//! it is first used. A workflow may have thousands of them, of which a run needs a few.

use std::sync::OnceLock;

use regex::{Regex, RegexBuilder};
use regex_syntax::hir::{Class, ClassUnicode, Hir, HirKind};

/// The largest compiled regular expression, in bytes, by our estimate.
const MAX_BYTES: u64 = 2 << 20;

#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    text: Box<str>,
    compiled: OnceLock<Regex>,
}

/// Why a text is not a pattern.
pub(crate) enum PatternError {
    Syntax(Box<regex_syntax::Error>),
    TooLarge,
}

impl Pattern {
    /// Takes time linear in the text, however large the compiled form would be.
    pub(crate) fn parse(text: &str) -> Result<Self, PatternError> {
        let hir = regex_syntax::Parser::new()
            .parse(text)
            .map_err(|error| PatternError::Syntax(Box::new(error)))?;
        if size(&hir) > MAX_BYTES {
            return Err(PatternError::TooLarge);
        }
        Ok(Self { text: text.into(), compiled: OnceLock::new() })
    }

    /// Whether it matches anywhere in the text.
    #[expect(clippy::expect_used, reason = "`parse` has checked syntax and size")]
    pub(crate) fn is_match(&self, text: &str) -> bool {
        let compile = || RegexBuilder::new(&self.text).size_limit(usize::MAX).build();
        self.compiled
            .get_or_init(|| compile().expect("a pattern that parses compiles"))
            .is_match(text)
    }
}

/// About the bytes of the compiled form, which has between half and twice of them. The recursion
/// ends at the 250 levels that the parser allows.
fn size(hir: &Hir) -> u64 {
    const STATE: u64 = 32;
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => STATE,
        HirKind::Literal(literal) => STATE * literal.0.len() as u64,
        HirKind::Class(Class::Bytes(_)) => 2 * STATE,
        HirKind::Class(Class::Unicode(class)) => 2 * STATE + class_size(class),
        HirKind::Repetition(repetition) => {
            let times = repetition.max.unwrap_or_else(|| repetition.min.saturating_add(1));
            size(&repetition.sub).saturating_add(STATE).saturating_mul(u64::from(times.max(1)))
        }
        HirKind::Capture(capture) => size(&capture.sub).saturating_add(2 * STATE),
        HirKind::Concat(parts) => parts.iter().map(size).fold(0, u64::saturating_add),
        HirKind::Alternation(parts) => parts
            .iter()
            .map(|part| size(part).saturating_add(STATE))
            .fold(STATE, u64::saturating_add),
    }
}

/// Ranges beyond ASCII become automata over their bytes; one that goes to the end has the most.
fn class_size(class: &ClassUnicode) -> u64 {
    let beyond = class.ranges().iter().filter(|range| !range.end().is_ascii());
    let to_the_end = class.ranges().last().is_some_and(|range| range.end() == char::MAX);
    65 * beyond.count() as u64 + if to_the_end { 850 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_is_near_the_compiled_size() {
        for pattern in [
            r"\w{30}",
            r"a{1000}",
            r"[a-z]{1000}",
            r".{1000}",
            r"\p{L}{40}",
            r"\d{100}",
            r"(a|b|c|d){100}",
            r"\W{30}",
            r"\S{100}",
            r"[^a]{100}",
            r"(?:\d{1,3}\.){3}\d{1,3}",
            r"[\w.-]+@[\w.-]+",
            r"\p{Greek}{100}",
        ] {
            let estimate = size(&regex_syntax::Parser::new().parse(pattern).unwrap()) as usize;
            let fits = |limit| RegexBuilder::new(pattern).size_limit(limit).build().is_ok();
            assert!(fits(estimate * 2), "{pattern}: {estimate} is too little");
            assert!(!fits(estimate / 3), "{pattern}: {estimate} is too much");
        }
    }

    #[test]
    fn what_grows_too_large_is_refused_at_once() {
        let beyond_count = format!("{}a{}", "(".repeat(9), "{900})".repeat(9));
        for pattern in
            [r"(((a{900}){900}){900}){900}", &beyond_count, r"(\w{50}){20}", r"(.{1000}){3}"]
        {
            assert!(matches!(Pattern::parse(pattern), Err(PatternError::TooLarge)), "{pattern}");
        }
        assert!(matches!(Pattern::parse("(["), Err(PatternError::Syntax(_))));
        let found = Pattern::parse(r"^v\d+$").ok().filter(|pattern| pattern.is_match("v12"));
        assert!(found.is_some_and(|pattern| !pattern.is_match("v")));
    }
}
