use std::fmt::{self, Display, Formatter, Write};

use crate::clause::Clause;
use crate::{Condition, Expr};

impl Display for Condition {
    /// The canonical text: it parses to an equal condition. Nothing for the empty one.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.print(&self.expr, Place::Top, f)
    }
}

/// What an expression stands in; decides whether it needs brackets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Top,
    InAll,
    InNot,
}

impl Condition {
    fn print(&self, expr: &Expr, place: Place, f: &mut Formatter<'_>) -> fmt::Result {
        match expr {
            Expr::Clause(at) => write!(f, "{}", self.clauses[*at]),
            Expr::Not(inner) => {
                f.write_char('!')?;
                self.print(inner, Place::InNot, f)
            }
            Expr::Any(parts) => {
                self.print_chain(parts, " || ", (place > Place::Top, Place::Top), f)
            }
            Expr::All(parts) => {
                self.print_chain(parts, " && ", (place > Place::InAll, Place::InAll), f)
            }
        }
    }

    fn print_chain(
        &self,
        parts: &[Expr],
        joint: &str,
        (bracketed, place): (bool, Place),
        f: &mut Formatter<'_>,
    ) -> fmt::Result {
        if bracketed {
            f.write_char('(')?;
        }
        for (at, part) in parts.iter().enumerate() {
            if at > 0 {
                f.write_str(joint)?;
            }
            self.print(part, place, f)?;
        }
        if bracketed { f.write_char(')') } else { Ok(()) }
    }
}

impl Display for Clause {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key)?;
        let (Some(operator), Some(value)) = (self.operator(), self.value()) else {
            return Ok(());
        };
        write!(f, " {} ", operator.as_str())?;
        if reads_plain(value) {
            return f.write_str(value);
        }
        write!(f, "\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
    }
}

/// Whether a value means itself without quotes, wherever it stands.
fn reads_plain(value: &str) -> bool {
    let mut depth = 0_usize;
    let mut bytes = value.bytes().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return false,
            b'\\' => match bytes.peek() {
                Some(b'\\' | b'(' | b')' | b'"') => {
                    bytes.next();
                }
                Some(_) => {}
                None => return false,
            },
            b'&' | b'|' if bytes.peek() == Some(&byte) => return false,
            b'(' => depth += 1,
            b')' if depth == 0 => return false,
            b')' => depth -= 1,
            _ => {}
        }
    }
    depth == 0 && !value.is_empty() && value.trim() == value
}
