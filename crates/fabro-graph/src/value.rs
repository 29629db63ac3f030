use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A quoted string, escapes resolved.
    String(Arc<str>),
    /// A whole number.
    Int(i64),
    /// A number with a point, or a whole one outside of 64 bits.
    Float(f64),
    /// `true` or `false`.
    Bool(bool),
    /// A whole number and a unit: `250ms`, `30s`, `15m`, `2h`, `1d`.
    Duration {
        /// How many of the unit.
        amount: u64,
        /// Milliseconds to days.
        unit: TimeUnit,
    },
    /// An unquoted word that is none of the others, such as `claude-sonnet-4-5`.
    Bare(Arc<str>),
}

/// The unit of a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr)]
pub enum TimeUnit {
    /// `ms`
    #[strum(serialize = "ms")]
    Milliseconds,
    /// `s`
    #[strum(serialize = "s")]
    Seconds,
    /// `m`
    #[strum(serialize = "m")]
    Minutes,
    /// `h`
    #[strum(serialize = "h")]
    Hours,
    /// `d`
    #[strum(serialize = "d")]
    Days,
}

impl TimeUnit {
    /// The letters that stand after the number.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    fn milliseconds(self) -> u64 {
        match self {
            Self::Milliseconds => 1,
            Self::Seconds => 1_000,
            Self::Minutes => 60_000,
            Self::Hours => 3_600_000,
            Self::Days => 86_400_000,
        }
    }
}

impl Value {
    /// Reads an unquoted word: a number, `true`, `false`, a duration, or else a bare word.
    ///
    /// ```
    /// use fabro_graph::Value;
    ///
    /// assert_eq!(Value::from_word(".5"), Value::Float(0.5));
    /// assert_eq!(Value::from_word("gpt-5.2-codex"), Value::Bare("gpt-5.2-codex".into()));
    /// ```
    pub fn from_word(word: &str) -> Self {
        match word {
            "true" => return Self::Bool(true),
            "false" => return Self::Bool(false),
            _ => {}
        }
        number(word).or_else(|| duration(word)).unwrap_or_else(|| Self::Bare(word.into()))
    }

    /// The value as text: a string without its quotes, anything else as it is written.
    pub fn as_text(&self) -> Cow<'_, str> {
        match self {
            Self::String(text) | Self::Bare(text) => Cow::Borrowed(text),
            other => Cow::Owned(other.to_string()),
        }
    }

    /// The text of a string or bare word.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::String(text) | Self::Bare(text) => Some(text),
            _ => None,
        }
    }

    /// The same, shared with the workflow.
    pub fn shared_text(&self) -> Option<Arc<str>> {
        match self {
            Self::String(text) | Self::Bare(text) => Some(Arc::clone(text)),
            _ => None,
        }
    }

    /// The value as `true` or `false`, quoted or not, in any case.
    pub fn to_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(flag) => Some(*flag),
            Self::String(text) | Self::Bare(text) => {
                let text = text.trim();
                let is = |word| text.eq_ignore_ascii_case(word);
                if is("true") { Some(true) } else { is("false").then_some(false) }
            }
            _ => None,
        }
    }

    /// The value as a whole number, quoted or not.
    pub fn to_int(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            Self::String(text) => text.trim().parse().ok(),
            _ => None,
        }
    }

    /// The value as a finite number, quoted or not.
    pub fn to_float(&self) -> Option<f64> {
        match self {
            Self::Int(number) => Some(*number as f64),
            Self::Float(number) => Some(*number),
            // A word with an exponent is a number only where one is wanted: `1e3` may be a name.
            Self::String(text) | Self::Bare(text) => text.trim().parse().ok(),
            _ => None,
        }
        .filter(|number: &f64| number.is_finite())
    }

    /// The value as a duration, quoted or not; a number alone is in seconds. `None` for
    /// negative numbers and for more milliseconds than 64 bits hold.
    pub fn to_duration(&self) -> Option<Duration> {
        match self {
            Self::Duration { amount, unit } => {
                amount.checked_mul(unit.milliseconds()).map(Duration::from_millis)
            }
            Self::Int(seconds) => u64::try_from(*seconds)
                .ok()
                .filter(|seconds| *seconds <= u64::MAX / 1_000)
                .map(Duration::from_secs),
            Self::Float(seconds) => Duration::try_from_secs_f64(*seconds)
                .ok()
                .filter(|time| u64::try_from(time.as_millis()).is_ok()),
            Self::String(text) => {
                let text = text.trim();
                number(text).or_else(|| duration(text))?.to_duration()
            }
            _ => None,
        }
    }
}

impl fmt::Display for Value {
    /// The form the value has in a source file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::String(text) => f.write_str(&quote(text)),
            Self::Int(number) => write!(f, "{number}"),
            Self::Float(number) => write!(f, "{number:?}"),
            Self::Bool(flag) => write!(f, "{flag}"),
            Self::Duration { amount, unit } => write!(f, "{amount}{}", unit.as_str()),
            Self::Bare(word) => f.write_str(word),
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::String(text.into())
    }
}

/// A quoted string that reads back as this text.
pub(crate) fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quote_into(text, &mut quoted);
    quoted
}

pub(crate) fn quote_into(text: &str, out: &mut String) {
    out.push('"');
    let mut rest = text;
    while let Some(at) = rest.find(['"', '\\', '\n', '\t']) {
        out.push_str(&rest[..at]);
        out.push_str(match rest.as_bytes()[at] {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            b'\n' => "\\n",
            _ => "\\t",
        });
        rest = &rest[at + 1..];
    }
    out.push_str(rest);
    out.push('"');
}

/// Appends what stands between two quotes, escapes resolved and line ends as `\n`. A backslash
/// before any other character stays, for regular expressions and shell scripts.
pub(crate) fn unescape_into(inner: &str, text: &mut String) {
    let mut rest = inner;
    while let Some(at) = rest.find(['\\', '\r']) {
        text.push_str(&rest[..at]);
        let (taken, resolved) = match &rest.as_bytes()[at..] {
            [b'\\', b'"', ..] => (2, "\""),
            [b'\\', b'\\', ..] => (2, "\\"),
            [b'\\', b'n', ..] => (2, "\n"),
            [b'\\', b't', ..] => (2, "\t"),
            [b'\\', b'\n', ..] => (2, ""),
            [b'\\', b'\r', b'\n', ..] => (3, ""),
            [b'\r', b'\n', ..] => (1, ""),
            _ => (1, &rest[at..=at]),
        };
        text.push_str(resolved);
        rest = &rest[at + taken..];
    }
    text.push_str(rest);
}

/// `-?(.5 | 5 | 5. | 5.5)`, as in DOT.
fn number(word: &str) -> Option<Value> {
    let digits = word.strip_prefix('-').unwrap_or(word);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    if !digits.contains('.')
        && let Ok(number) = word.parse()
    {
        return Some(Value::Int(number));
    }
    word.parse().ok().filter(|number: &f64| number.is_finite()).map(Value::Float)
}

fn duration(word: &str) -> Option<Value> {
    let digits = word.bytes().take_while(u8::is_ascii_digit).count();
    let unit: TimeUnit = word[digits..].parse().ok()?;
    word[..digits].parse().ok().map(|amount| Value::Duration { amount, unit })
}
