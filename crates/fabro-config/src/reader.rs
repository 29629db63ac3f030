//! Typed reading of a TOML tree: every complaint becomes a finding at the key or value it is about.

use std::borrow::Cow;

use fabro_types::{Diagnostic, Severity, Span};
use serde_json::{Map, Number, Value};
use toml::Spanned;
use toml::de::{DeInteger, DeString, DeTable, DeValue};

use crate::near::near_misses;

/// Half of what a JSON reader takes, so that an input may be put inside other values.
const MAX_DEPTH: usize = 64;

pub(crate) type Key<'i> = Spanned<DeString<'i>>;
pub(crate) type Node<'i> = Spanned<DeValue<'i>>;

/// Collects findings while a file is read.
pub(crate) struct Reader {
    /// Dotted names of all settings of this kind of file, in groups. `NAME` stands for any name.
    known: &'static [&'static [&'static str]],
    findings: Vec<Diagnostic>,
    errors: usize,
}

/// Reads `text` with `body`, which gets the top-level table. Errors come first-found first; without
/// any, the value and the warnings.
pub(crate) fn read<T: Default>(
    text: &str,
    known: &'static [&'static [&'static str]],
    body: impl FnOnce(&mut Reader, &DeTable<'_>, &mut T),
) -> Result<(T, Vec<Diagnostic>), Vec<Diagnostic>> {
    let source = without_mark(text);
    let root = DeTable::parse(&source).map_err(|error| {
        let span = error.span().map_or_else(Span::default, |span| Span::new(span.start, span.end));
        vec![Diagnostic::error("config-syntax", span, error.message().trim_end_matches('.'))]
    })?;
    let mut reader = Reader { known, findings: Vec::new(), errors: 0 };
    let mut value = T::default();
    if reader.version(root.get_ref()) {
        body(&mut reader, root.get_ref(), &mut value);
    }
    let mut findings = reader.findings;
    findings.sort_by_key(|finding| finding.span.start);
    if findings.iter().any(|finding| finding.severity == Severity::Error) {
        return Err(findings);
    }
    Ok((value, findings))
}

/// Where the value of a setting stands, by its dotted name; `None` when it is not set.
pub(crate) fn place(text: &str, setting: &str) -> Option<Span> {
    let source = without_mark(text);
    let root = DeTable::parse(&source).ok()?;
    let mut parts = setting.split('.');
    let mut node = root.get_ref().get(parts.next()?)?;
    for part in parts {
        node = node.get_ref().as_table()?.get(part)?;
    }
    Some(span(node.span()))
}

/// Editors on Windows put a byte order mark there. Blanks of the same length keep the spans.
fn without_mark(text: &str) -> Cow<'_, str> {
    match text.strip_prefix('\u{feff}') {
        Some(rest) => Cow::Owned(format!("   {rest}")),
        None => Cow::Borrowed(text),
    }
}

/// The entries of a table in the order of the file.
pub(crate) fn entries<'t, 'i>(table: &'t DeTable<'i>) -> Vec<(&'t Key<'i>, &'t Node<'i>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

impl Reader {
    pub(crate) fn error(&mut self, at: &Node<'_>, message: String, fix: &str) {
        self.errors += 1;
        self.findings
            .push(Diagnostic::error("setting-value", span(at.span()), message).with_fix(fix));
    }

    /// A key this version does not have: a warning that names what may have been meant.
    pub(crate) fn unknown(&mut self, section: &str, key: &Key<'_>) {
        self.unknown_in(section, section, key);
    }

    /// The same in a section with a name of the user's: `known` is what the section is called in the
    /// list of settings.
    pub(crate) fn unknown_in(&mut self, section: &str, known: &str, key: &Key<'_>) {
        let full = join(section, key.get_ref());
        let message = format!("`{full}` is no setting");
        let finding = Diagnostic::warning("unknown-setting", span(key.span()), message);
        let fix = match self.meant(known, key.get_ref()) {
            Some(meant) => match meant.strip_prefix(known).filter(|_| !known.is_empty()) {
                Some(rest) => format!("did you mean `{section}{rest}`?"),
                None => format!("did you mean `{meant}`?"),
            },
            None => "remove it, or correct its name".into(),
        };
        self.findings.push(finding.with_fix(fix));
    }

    /// A string with something in it.
    pub(crate) fn text(&mut self, name: &str, node: &Node<'_>) -> Option<String> {
        let DeValue::String(text) = node.get_ref() else {
            self.wrong_type(name, node, "a string");
            return None;
        };
        if text.trim().is_empty() {
            self.error(node, format!("`{name}` is empty"), "give it a value, or leave it out");
            return None;
        }
        if text.contains('\0') {
            self.error(node, format!("`{name}` holds a NUL character"), "remove it");
            return None;
        }
        Some(text.to_string())
    }

    /// The entries of a section in the order of the file; none, and an error, when it is no table.
    pub(crate) fn section<'t, 'i>(
        &mut self,
        name: &str,
        node: &'t Node<'i>,
    ) -> Vec<(&'t Key<'i>, &'t Node<'i>)> {
        self.table(name, node).map(entries).unwrap_or_default()
    }

    fn table<'t, 'i>(&mut self, name: &str, node: &'t Node<'i>) -> Option<&'t DeTable<'i>> {
        let table = node.get_ref().as_table();
        if table.is_none() {
            self.wrong_type(name, node, "a table");
        }
        table
    }

    pub(crate) fn array<'t, 'i>(&mut self, name: &str, node: &'t Node<'i>) -> &'t [Node<'i>] {
        let Some(array) = node.get_ref().as_array() else {
            self.wrong_type(name, node, "an array");
            return &[];
        };
        array
    }

    /// An array of strings with something in them; others are left out, each with an error.
    pub(crate) fn texts(&mut self, name: &str, node: &Node<'_>) -> Vec<String> {
        self.array(name, node).iter().filter_map(|item| self.text(name, item)).collect()
    }

    /// A table of any values, as JSON in the order of the file. Dates become text.
    pub(crate) fn json_table(&mut self, name: &str, node: &Node<'_>) -> Map<String, Value> {
        let Some(table) = self.table(name, node) else { return Map::new() };
        let mut map = Map::new();
        for (key, value) in entries(table) {
            if let Some(value) = self.json(&join(name, key.get_ref()), value, 1) {
                map.insert(key.get_ref().to_string(), value);
            }
        }
        map
    }

    fn json(&mut self, name: &str, node: &Node<'_>, depth: usize) -> Option<Value> {
        if depth > MAX_DEPTH {
            self.error(node, format!("`{name}` nests deeper than {MAX_DEPTH}"), "flatten it");
            return None;
        }
        Some(match node.get_ref() {
            DeValue::String(text) => Value::String(text.to_string()),
            DeValue::Boolean(value) => Value::Bool(*value),
            DeValue::Integer(value) => self.integer(name, node, value)?.into(),
            DeValue::Float(value) => {
                let number = value.as_str().parse().ok().and_then(Number::from_f64);
                let Some(number) = number else {
                    self.error(node, format!("`{name}` is no finite number"), "write it in quotes");
                    return None;
                };
                Value::Number(number)
            }
            DeValue::Datetime(value) => Value::String(value.to_string()),
            DeValue::Array(items) => Value::Array(
                items.iter().filter_map(|item| self.json(name, item, depth + 1)).collect(),
            ),
            DeValue::Table(table) => Value::Object(
                entries(table)
                    .into_iter()
                    .filter_map(|(key, value)| {
                        let value = self.json(name, value, depth + 1)?;
                        Some((key.get_ref().to_string(), value))
                    })
                    .collect(),
            ),
        })
    }

    fn integer(&mut self, name: &str, node: &Node<'_>, value: &DeInteger<'_>) -> Option<i64> {
        let number = i64::from_str_radix(value.as_str(), value.radix()).ok();
        if number.is_none() {
            self.error(node, format!("`{name}` does not fit into 64 bits"), "write it in quotes");
        }
        number
    }

    /// True when the rest of the file may be read.
    fn version(&mut self, root: &DeTable<'_>) -> bool {
        let Some(node) = root.get("_version") else {
            let finding = Diagnostic::warning(
                "settings-version",
                Span::default(),
                "`_version` is missing: the file is read as version 1",
            );
            self.findings.push(finding.with_fix("put `_version = 1` on the first line"));
            return true;
        };
        let version = match node.get_ref() {
            DeValue::Integer(value) => i64::from_str_radix(value.as_str(), value.radix()).ok(),
            _ => None,
        };
        let (message, fix) = match version {
            Some(1) => return true,
            Some(newer) if newer > 1 => (
                format!("`_version` is {newer}, and this fabro reads version 1"),
                "use a newer fabro for this file",
            ),
            _ => ("`_version` is no version".to_owned(), "write `_version = 1`"),
        };
        let finding = Diagnostic::error("settings-version", span(node.span()), message);
        self.findings.push(finding.with_fix(fix));
        false
    }

    /// How many errors there are so far.
    pub(crate) fn errors(&self) -> usize {
        self.errors
    }

    pub(crate) fn wrong_type(&mut self, name: &str, node: &Node<'_>, expected: &str) {
        let found = node.get_ref().type_str();
        let article = if found.starts_with(['a', 'i']) { "an" } else { "a" };
        let message = format!("`{name}` is {article} {found}, but {expected} is expected");
        let fix = match (expected, node.get_ref()) {
            ("a string", DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_)) => {
                "write it in quotes".to_owned()
            }
            _ => format!("make it {expected}"),
        };
        self.error(node, message, &fix);
    }

    /// The setting an unknown key may stand for: a slip in the key, else the same key elsewhere.
    fn meant(&self, section: &str, key: &str) -> Option<String> {
        let all = || self.known.iter().copied().flatten().copied();
        let beside = all().filter_map(|known| {
            let rest = match section {
                "" => known,
                _ => known.strip_prefix(section)?.strip_prefix('.')?,
            };
            rest.split('.').next()
        });
        if let Some(near) = near_misses(key, beside).first() {
            return Some(join(section, near));
        }
        let elsewhere = |known: &&str| {
            let mut parts = known.split('.').filter(|part| *part != "NAME");
            parts.any(|part| part == key || (part.len() > 3 && near(part, key)))
        };
        let known = all().find(elsewhere)?;
        let end = known.find(key).map_or(known.len(), |at| at + key.len());
        Some(known[..end].to_owned())
    }
}

fn near(known: &str, word: &str) -> bool {
    !near_misses(word, [known]).is_empty()
}

fn join(section: &str, key: &str) -> String {
    if section.is_empty() { key.to_owned() } else { format!("{section}.{key}") }
}

fn span(range: std::ops::Range<usize>) -> Span {
    Span::new(range.start, range.end)
}
