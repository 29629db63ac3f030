//! Checks a TOML file against a [`Schema`]: every error becomes a diagnostic at its key or value, and
//! what remains is JSON that serde deserializes.

use std::borrow::Cow;
use std::collections::BTreeSet;

use fabro_types::{Diagnostic, Severity, Span, nearest};
use serde_json::{Map, Value};
use toml::Spanned;
use toml::de::{DeInteger, DeString, DeTable, DeValue};

use crate::checked_settings::CheckedSettings;
use crate::schema::{Kind, RUN, Schema};
use crate::syntax_help;
use crate::upstream::{
    Handling, RULE as UPSTREAM_RULE, SANDBOX_RULE, has_upstream_below, upstream,
};

/// Beyond so many findings no similar names are looked for: that takes longer than all else.
const MAX_SUGGESTIONS: usize = 100;

pub(crate) type Key<'i> = Spanned<DeString<'i>>;
pub(crate) type Node<'i> = Spanned<DeValue<'i>>;

/// What is found in a file, with errors or without.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SettingsReview {
    /// The settings that are read, by their names in the file.
    pub understood: Vec<(String, Span)>,
    /// The same settings, by their names in the reference.
    pub settings: Vec<(String, Span)>,
    /// The settings of upstream that change nothing, and why nothing is lost.
    pub without_effect: Vec<(String, Span, &'static str)>,
    /// Errors and warnings, in the order of the file.
    pub findings: Vec<Diagnostic>,
}

/// Collects diagnostics while a file is read.
pub(crate) struct Reader {
    schema: Schema,
    pub(crate) diagnostics: Vec<Diagnostic>,
    pub(crate) errors: usize,
    pub(crate) understood: Vec<(String, Span)>,
    pub(crate) settings: Vec<(String, Span)>,
    pub(crate) without_effect: Vec<(String, Span, &'static str)>,
    /// Values of settings that stand at another name, by the path of ours.
    pub(crate) moved: Vec<(Vec<String>, Value)>,
    /// Upstream tables that `upstream_tables` has read, which `table` skips.
    pub(crate) consumed_tables: Vec<&'static str>,
    /// The names of the HTTP tools so far.
    pub(crate) tools: BTreeSet<String>,
    /// The URLs of the webhooks so far.
    pub(crate) webhooks: BTreeSet<String>,
}

/// How to treat an unsupported setting of upstream that changes where stages run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsupported {
    /// As an error: without it, a run would behave differently.
    Refused,
    /// As an error, unless it is about the sandbox: the user has chosen one for the run.
    SandboxChosen,
    /// As a warning, for checks that run nothing.
    Reported,
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
    unsupported: Unsupported,
) -> Result<(CheckedSettings, Vec<Diagnostic>), Vec<Diagnostic>> {
    let (settings, review) = review(text, schema);
    let mut findings = review.findings;
    match unsupported {
        Unsupported::Refused => {}
        Unsupported::SandboxChosen => findings.retain(|it| it.rule != SANDBOX_RULE),
        Unsupported::Reported => {
            let is_of_upstream =
                |it: &&mut Diagnostic| [UPSTREAM_RULE, SANDBOX_RULE].contains(&it.rule);
            findings.iter_mut().filter(is_of_upstream).for_each(report_only);
        }
    }
    if findings.iter().any(|finding| finding.severity == Severity::Error) {
        return Err(findings);
    }
    Ok((settings, findings))
}

/// Checks `text`, and keeps what is understood. The settings are incomplete when there is an error.
pub(crate) fn review(text: &str, schema: Schema) -> (CheckedSettings, SettingsReview) {
    let source = without_byte_order_mark(text);
    let root = match DeTable::parse(&source) {
        Ok(root) => root,
        Err(error) => {
            let at = error.span().map_or_else(Span::default, span);
            let message = error.message().trim_end_matches('.');
            let fix = syntax_help::fix(&source, message, at.start);
            let findings = vec![Diagnostic::error("config-syntax", at, message).with_fix(fix)];
            let review = SettingsReview { findings, ..SettingsReview::default() };
            return (CheckedSettings::new(Value::Null), review);
        }
    };
    let mut reader = Reader::new(schema);
    let mut settings = Map::new();
    if reader.version(root.get_ref()) {
        reader.upstream_tables(root.get_ref());
        settings = reader.table("", "", root.get_ref());
    }
    let mut settings = Value::Object(settings);
    for (path, value) in reader.moved {
        complete(&mut settings, path.iter().map(String::as_str), value);
    }
    let mut findings = reader.diagnostics;
    findings.sort_by_key(|diagnostic| diagnostic.span.start);
    let review = SettingsReview {
        understood: reader.understood,
        settings: reader.settings,
        without_effect: reader.without_effect,
        findings,
    };
    (CheckedSettings::new(settings), review)
}

/// Downgrades an error to a warning that `run` refuses it.
fn report_only(finding: &mut Diagnostic) {
    if finding.severity == Severity::Error {
        finding.severity = Severity::Warning;
        finding.message.push_str("; `run` refuses it");
    }
}

/// Puts a value where nothing stands yet; of two tables, each entry.
fn complete<'n>(place: &mut Value, mut name: impl Iterator<Item = &'n str>, value: Value) {
    if let Some(part) = name.next() {
        if place.is_null() {
            *place = Value::Object(Map::new());
        }
        if let Value::Object(table) = place {
            complete(table.entry(part).or_insert(Value::Null), name, value);
        }
        return;
    }
    match (place, value) {
        (place @ Value::Null, value) => *place = value,
        (Value::Object(table), Value::Object(more)) => {
            for (key, value) in more {
                complete(table.entry(key).or_insert(Value::Null), std::iter::empty(), value);
            }
        }
        _ => {}
    }
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

/// The string that a setting has, by its dotted name; `None` when it has none.
pub(crate) fn find_string(text: &str, setting: &str) -> Option<String> {
    let at = find_span(text, setting)?;
    let source = without_byte_order_mark(text);
    let value = DeValue::parse(source.get(at.start..at.end)?).ok()?;
    value.get_ref().as_str().map(str::to_owned)
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
    fn new(schema: Schema) -> Self {
        Self {
            schema,
            diagnostics: Vec::new(),
            errors: 0,
            understood: Vec::new(),
            settings: Vec::new(),
            without_effect: Vec::new(),
            moved: Vec::new(),
            consumed_tables: Vec::new(),
            tools: BTreeSet::new(),
            webhooks: BTreeSet::new(),
        }
    }

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
            // A quoted key with a dot in it is not a path.
            if key_name.contains('.') {
                self.unknown(name, pattern, key);
                continue;
            }
            let key_pattern = join(pattern, key_name);
            if self.consumed_tables.contains(&&*key_pattern) {
                continue;
            }
            match upstream(&key_pattern) {
                Some(Handling::Same(ours)) => {
                    self.renamed(&full, pattern, ours, key, node, &mut map);
                }
                Some(handling) => self.upstream(&full, key, node, handling),
                None => {
                    let value = self.setting(&full, &key_pattern, key, node);
                    map.extend(value.map(|value| (key_name.to_owned(), value)));
                }
            }
        }
        map
    }

    /// The value of a setting, or of a table of settings.
    fn setting(
        &mut self,
        full: &str,
        pattern: &str,
        key: &Key<'_>,
        node: &Node<'_>,
    ) -> Option<Value> {
        let value = match self.kind(pattern) {
            Some(Kind::Tables) => Some(self.tables(full, pattern, node)),
            Some(kind) => self.value(full, kind, node),
            None if self.has_settings_below(pattern) || has_upstream_below(pattern) => {
                let table = self.as_table(full, node)?;
                return Some(Value::Object(self.table(full, pattern, table)));
            }
            None => {
                let table = full.rsplit_once('.').map_or("", |(table, _)| table);
                let pattern = pattern.rsplit_once('.').map_or("", |(table, _)| table);
                self.unknown(table, pattern, key);
                return None;
            }
        };
        let at = span(key.span());
        let own_name = if pattern.contains("NAME") { full } else { pattern };
        self.settings.push((own_name.to_owned(), at));
        self.understood.push((full.to_owned(), at));
        value
    }

    /// A setting that stands at another name than ours. It counts where ours is not written.
    fn renamed(
        &mut self,
        full: &str,
        table: &str,
        ours: &'static str,
        key: &Key<'_>,
        node: &Node<'_>,
        map: &mut Map<String, Value>,
    ) {
        if let Some(handling) = upstream(ours) {
            return self.upstream(full, key, node, handling);
        }
        let value = self.setting(full, ours, key, node);
        match ours.strip_prefix(table).and_then(|rest| rest.strip_prefix('.')) {
            Some(own) if ours.contains("NAME") => {
                map.extend(value.map(|value| (own.to_owned(), value)));
            }
            _ => {
                let path = || ours.split('.').map(str::to_owned).collect();
                self.moved.extend(value.map(|value| (path(), value)));
            }
        }
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
            // One without effect was reported, and is empty now.
            if self.errors == errors && !entry.is_empty() {
                tables.push(Value::Object(entry));
            }
        }
        Value::Array(tables)
    }

    pub(crate) fn kind(&self, pattern: &str) -> Option<Kind> {
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
        let name = join(table, key.get_ref());
        // A quoted key with a dot is no path.
        let is_of_run_file = !key.get_ref().contains('.') && is_of_run_file(&name);
        let here = if is_of_run_file { " of this file" } else { "" };
        let message = format!("`{name}` is not a setting{here}");
        let warning = Diagnostic::warning("unknown-setting", span(key.span()), message);
        let is_one_of_few = self.diagnostics.len() < MAX_SUGGESTIONS;
        let closest = is_one_of_few.then(|| self.closest_setting(pattern, key.get_ref())).flatten();
        let fix = match closest {
            Some(closest) => match closest.strip_prefix(pattern).filter(|_| !pattern.is_empty()) {
                Some(rest) => format!("did you mean `{table}{rest}`?"),
                None => format!("did you mean `{closest}`?"),
            },
            None if is_of_run_file => "move it into a run.toml, which may have it".into(),
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
        let Some(node) = root.get("_version").or_else(|| root.get("version")) else {
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

/// Whether it is a setting, or a table of settings, of what a run is started with.
fn is_of_run_file(name: &str) -> bool {
    let is_it = |setting: &str| {
        setting.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    RUN.iter().any(|(setting, _)| is_it(setting))
}

/// `None` when it does not fit into 64 bits.
pub(crate) fn integer(value: &DeInteger<'_>) -> Option<i64> {
    i64::from_str_radix(value.as_str(), value.radix()).ok()
}

pub(crate) fn join(table: &str, key: &str) -> String {
    if table.is_empty() { key.to_owned() } else { format!("{table}.{key}") }
}

pub(crate) fn span(range: std::ops::Range<usize>) -> Span {
    Span::new(range.start, range.end)
}
