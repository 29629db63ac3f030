//! Checks a TOML file against a [`Schema`]: every error becomes a diagnostic at its key or value, and
//! what remains is JSON that serde deserializes.

use std::borrow::Cow;
use std::collections::BTreeSet;

use fabro_types::{Diagnostic, Severity, Span, nearest};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use toml::Spanned;
use toml::de::{DeInteger, DeString, DeTable, DeValue};

use crate::schema::{Kind, Schema};

pub(crate) type Key<'i> = Spanned<DeString<'i>>;
pub(crate) type Node<'i> = Spanned<DeValue<'i>>;

/// What a file sets, checked.
pub(crate) struct CheckedSettings(Value);

impl CheckedSettings {
    /// The value at a JSON pointer such as `/run/goal`; the default when the file does not set it.
    #[expect(clippy::expect_used, reason = "a value of another type is an error of the reader")]
    pub(crate) fn take<T: Default + DeserializeOwned>(&mut self, pointer: &str) -> T {
        let value = self.0.pointer_mut(pointer).map(Value::take);
        let value = value.map(serde_json::from_value);
        value.map_or_else(T::default, |it| it.expect("the schema admits what the types hold"))
    }
}

/// Collects diagnostics while a file is read.
pub(crate) struct Reader {
    schema: Schema,
    diagnostics: Vec<Diagnostic>,
    errors: usize,
    /// The names of the HTTP tools so far.
    pub(crate) tools: BTreeSet<String>,
}

/// Checks `text`.
///
/// # Errors
///
/// All errors and warnings in the order of the file, when at least one is an error; otherwise the
/// warnings come with the settings.
pub(crate) fn read(
    text: &str,
    schema: Schema,
) -> Result<(CheckedSettings, Vec<Diagnostic>), Vec<Diagnostic>> {
    let source = without_byte_order_mark(text);
    let root = DeTable::parse(&source).map_err(|error| {
        let span = error.span().map_or_else(Span::default, |span| Span::new(span.start, span.end));
        vec![Diagnostic::error("config-syntax", span, error.message().trim_end_matches('.'))]
    })?;
    let mut reader = Reader { schema, diagnostics: Vec::new(), errors: 0, tools: BTreeSet::new() };
    let mut settings = Map::new();
    if reader.version(root.get_ref()) {
        settings = reader.table("", "", root.get_ref());
    }
    let mut diagnostics = reader.diagnostics;
    diagnostics.sort_by_key(|diagnostic| diagnostic.span.start);
    if diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error) {
        return Err(diagnostics);
    }
    Ok((CheckedSettings(Value::Object(settings)), diagnostics))
}

/// The span of the value of a setting, by its dotted name; `None` when it is not set.
pub(crate) fn find_span(text: &str, setting: &str) -> Option<Span> {
    let source = without_byte_order_mark(text);
    let root = DeTable::parse(&source).ok()?;
    let mut parts = setting.split('.');
    let mut node = root.get_ref().get(parts.next()?)?;
    for part in parts {
        node = node.get_ref().as_table()?.get(part)?;
    }
    Some(span(node.span()))
}

/// Editors on Windows write a byte order mark. Spaces of the same length keep the spans.
fn without_byte_order_mark(text: &str) -> Cow<'_, str> {
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
    /// Reads the table called `name`. `pattern` is the same name with `NAME` for what the user chose.
    fn table(&mut self, name: &str, pattern: &str, table: &DeTable<'_>) -> Map<String, Value> {
        let of_names = join(pattern, "NAME");
        let has_names = self.has_settings_below(&of_names);
        let mut map = Map::new();
        for (key, node) in entries(table) {
            let key_name = key.get_ref().as_ref();
            let full = join(name, key_name);
            if has_names {
                if let Some(entry) = self.named_entry(key_name, name, &of_names, node) {
                    map.insert(key_name.to_owned(), Value::Object(entry));
                }
                continue;
            }
            let key_pattern = join(pattern, key_name);
            // A quoted key with a dot in it is not a path.
            let kind = self.kind(&key_pattern).filter(|_| !key_name.contains('.'));
            let value = match kind {
                Some(Kind::Tables) => Some(self.tables(&full, &key_pattern, node)),
                Some(kind) => self.value(&full, kind, node),
                None if self.has_settings_below(&key_pattern) => self
                    .as_table(&full, node)
                    .map(|table| Value::Object(self.table(&full, &key_pattern, table))),
                None => {
                    self.unknown(name, pattern, key);
                    None
                }
            };
            map.extend(value.map(|value| (key_name.to_owned(), value)));
        }
        map
    }

    /// One entry of a table whose keys the user chooses.
    fn named_entry(
        &mut self,
        key: &str,
        table: &str,
        pattern: &str,
        node: &Node<'_>,
    ) -> Option<Map<String, Value>> {
        if key.trim().is_empty() {
            self.error(node, format!("`{table}` has an entry without a name"), "give it a name");
            return None;
        }
        let full = join(table, key);
        let errors = self.errors;
        let entries = self.as_table(&full, node)?;
        let mut entry = self.table(&full, pattern, entries);
        if self.errors == errors {
            self.check_entry(pattern, &full, key, node, &mut entry);
        }
        Some(entry)
    }

    /// An array of tables.
    fn tables(&mut self, name: &str, pattern: &str, node: &Node<'_>) -> Value {
        let mut tables = Vec::new();
        for item in self.array(name, node) {
            let errors = self.errors;
            let Some(table) = self.as_table(name, item) else { continue };
            let mut entry = self.table(name, pattern, table);
            if self.errors == errors {
                self.check_item(name, pattern, item, &mut entry);
            }
            if self.errors == errors {
                tables.push(Value::Object(entry));
            }
        }
        Value::Array(tables)
    }

    fn kind(&self, pattern: &str) -> Option<Kind> {
        let mut settings = self.schema.iter().copied().flatten();
        settings.find(|(name, _)| *name == pattern).map(|(_, kind)| *kind)
    }

    fn has_settings_below(&self, pattern: &str) -> bool {
        let below =
            |name: &str| name.strip_prefix(pattern).is_some_and(|rest| rest.starts_with('.'));
        self.schema.iter().copied().flatten().any(|(name, _)| below(name))
    }

    pub(crate) fn error(&mut self, at: &Node<'_>, message: String, fix: &str) {
        self.errors += 1;
        self.diagnostics
            .push(Diagnostic::error("setting-value", span(at.span()), message).with_fix(fix));
    }

    /// A key that this version does not have: a warning that names what may have been meant.
    fn unknown(&mut self, table: &str, pattern: &str, key: &Key<'_>) {
        let message = format!("`{}` is not a setting", join(table, key.get_ref()));
        let warning = Diagnostic::warning("unknown-setting", span(key.span()), message);
        let fix = match self.closest_setting(pattern, key.get_ref()) {
            Some(closest) => match closest.strip_prefix(pattern).filter(|_| !pattern.is_empty()) {
                Some(rest) => format!("did you mean `{table}{rest}`?"),
                None => format!("did you mean `{closest}`?"),
            },
            None => "remove it, or correct its name".into(),
        };
        self.diagnostics.push(warning.with_fix(fix));
    }

    pub(crate) fn as_table<'t, 'i>(
        &mut self,
        name: &str,
        node: &'t Node<'i>,
    ) -> Option<&'t DeTable<'i>> {
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

    /// True when the rest of the file can be read.
    fn version(&mut self, root: &DeTable<'_>) -> bool {
        let Some(node) = root.get("_version") else {
            let finding = Diagnostic::warning(
                "settings-version",
                Span::default(),
                "`_version` is missing: the file is read as version 1",
            );
            self.diagnostics.push(finding.with_fix("put `_version = 1` on the first line"));
            return true;
        };
        let version = node.get_ref().as_integer().and_then(integer);
        let (message, fix) = match version {
            Some(1) => return true,
            Some(newer) if newer > 1 => (
                format!("`_version` is {newer}, and this fabro reads version 1"),
                "use a newer fabro for this file",
            ),
            _ => ("`_version` is not a version number".to_owned(), "write `_version = 1`"),
        };
        let finding = Diagnostic::error("settings-version", span(node.span()), message);
        self.diagnostics.push(finding.with_fix(fix));
        false
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

    /// The setting that an unknown key may stand for: a similar key of the same table, else the same
    /// key of another one.
    fn closest_setting(&self, pattern: &str, key: &str) -> Option<String> {
        let all = || self.schema.iter().copied().flatten().map(|(name, _)| *name);
        let siblings = all().filter_map(|name| {
            let rest = match pattern {
                "" => name,
                _ => name.strip_prefix(pattern)?.strip_prefix('.')?,
            };
            rest.split('.').next()
        });
        if let Some(near) = nearest(key, siblings) {
            return Some(join(pattern, near));
        }
        let elsewhere =
            |name: &&str| nearest(key, name.split('.').filter(|part| *part != "NAME")).is_some();
        let name = all().find(elsewhere)?;
        let end = name.find(key).map_or(name.len(), |at| at + key.len());
        Some(name[..end].to_owned())
    }
}

/// `None` when it does not fit into 64 bits.
pub(crate) fn integer(value: &DeInteger<'_>) -> Option<i64> {
    i64::from_str_radix(value.as_str(), value.radix()).ok()
}

pub(crate) fn join(table: &str, key: &str) -> String {
    if table.is_empty() { key.to_owned() } else { format!("{table}.{key}") }
}

fn span(range: std::ops::Range<usize>) -> Span {
    Span::new(range.start, range.end)
}
