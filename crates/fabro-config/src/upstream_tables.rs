//! Tables of upstream that are read as tables of ours: environments, providers and models.

use fabro_types::Diagnostic;
use serde_json::{Map, Value};
use toml::de::DeTable;

use crate::reader::{Key, Node, Reader, entries, join, span};
use crate::upstream::RULE;

/// Paths of upstream settings in a table, and the names of ours.
type Names = &'static [(&'static [&'static str], &'static str)];

const ENVIRONMENT: Names = &[
    (&["provider"], "run.sandbox.provider"),
    (&["image", "docker"], "run.sandbox.image"),
    (&["resources", "cpu"], "run.sandbox.cpus"),
    (&["resources", "memory"], "run.sandbox.memory"),
    (&["env"], "run.sandbox.env"),
];

const PROVIDER: Names =
    &[(&["adapter"], "providers.NAME.kind"), (&["base_url"], "providers.NAME.base_url")];

const MODEL: Names = &[
    (&["provider"], "models.NAME.provider"),
    (&["aliases"], "models.NAME.aliases"),
    (&["limits", "context_window"], "models.NAME.context_window"),
    (&["limits", "max_output"], "models.NAME.max_output_tokens"),
    (&["costs", "input_cost_per_mtok"], "models.NAME.input_cost"),
    (&["costs", "output_cost_per_mtok"], "models.NAME.output_cost"),
    (&["costs", "cache_input_cost_per_mtok"], "models.NAME.cached_cost"),
];

/// Keys that are handled separately, or only describe.
const OTHER: &[&str] =
    &["credentials", "api_id", "display_name", "description", "family", "enabled"];

impl Reader {
    /// Reads the tables of upstream. The rest of the reader passes over them.
    pub(crate) fn upstream_tables(&mut self, root: &DeTable<'_>) {
        if self.environment(root) {
            self.consumed_tables.push("run.environment");
        }
        let tables = [("providers", "llm.providers", PROVIDER), ("models", "llm.models", MODEL)];
        for (ours, theirs, names) in tables {
            let table = below(root, &["llm", ours]).and_then(|node| node.get_ref().as_table());
            let Some(table) = table.filter(|_| self.kind(names[0].1).is_some()) else { continue };
            self.consumed_tables.push(theirs);
            for (key, node) in entries(table) {
                self.llm_entry((ours, theirs, names), key, node);
            }
        }
    }

    /// Reads the environment of upstream that `run.environment` names as settings of the sandbox, if its
    /// provider is one of ours. Returns whether it is.
    fn environment(&mut self, root: &DeTable<'_>) -> bool {
        let Some(chosen) = below(root, &["run", "environment"]) else { return false };
        let id = chosen.get_ref().as_str();
        let id = id.or_else(|| chosen.get_ref().as_table()?.get("id")?.get_ref().as_str());
        let found = id.and_then(|id| below(root, &["environments", id])?.get_ref().as_table());
        let (Some(id), Some(environment)) = (id, found) else { return false };
        let provider = environment.get("provider").and_then(|node| node.get_ref().as_str());
        if provider.is_some_and(|name| !["local", "docker"].contains(&name)) {
            return false;
        }
        // Without a container there are no image and no limits.
        let is_local = provider.is_none_or(|name| name == "local");
        let names = ENVIRONMENT.iter().filter(|(path, _)| !is_local || path.len() == 1);
        for (ours, value) in self.renamed_in(environment, &join("environments", id), names) {
            self.moved.push((ours.split('.').map(str::to_owned).collect(), value));
        }
        self.understood.push(("run.environment".to_owned(), span(chosen.span())));
        true
    }

    /// One provider or model.
    fn llm_entry(
        &mut self,
        (ours, theirs, names): (&str, &str, Names),
        key: &Key<'_>,
        node: &Node<'_>,
    ) {
        let full = join(theirs, key.get_ref());
        let at = span(key.span());
        let Some(table) = self.as_table(&full, node) else { return };
        if table.get("enabled").and_then(|node| node.get_ref().as_bool()) == Some(false) {
            return self.without_effect.push((full, at, "disabled by `enabled = false`"));
        }
        let errors = self.errors;
        let mut section = Map::new();
        for (name, value) in self.renamed_in(table, &full, names.iter()) {
            section.insert(name.rsplit('.').next().unwrap_or(name).to_owned(), value);
        }
        if let Some(node) = table.get("credentials") {
            let variable = self.credentials(&join(&full, "credentials"), node);
            section.extend(variable.map(|name| ("api_key_env".to_owned(), name.into())));
        }
        // Ours has the name that requests use, and other names as aliases.
        let mut name: &str = key.get_ref();
        if let Some(id) = table.get("api_id").and_then(|node| node.get_ref().as_str())
            && id != name
        {
            let aliases = section.entry("aliases").or_insert_with(|| Value::Array(Vec::new()));
            aliases.as_array_mut().into_iter().for_each(|aliases| aliases.push(name.into()));
            name = id;
        }
        self.not_read(&full, table, names);
        if self.errors == errors {
            self.check_entry(&join(ours, "NAME"), &full, name, node, &mut section);
        }
        self.understood.push((full, at));
        self.settings.push((join(ours, name), at));
        self.moved.push((vec![ours.to_owned(), name.to_owned()], Value::Object(section)));
    }

    /// The values of a table, each with the name of ours.
    fn renamed_in<'n>(
        &mut self,
        table: &DeTable<'_>,
        full: &str,
        names: impl Iterator<Item = &'n (&'static [&'static str], &'static str)>,
    ) -> Vec<(&'static str, Value)> {
        let mut values = Vec::new();
        for (path, ours) in names {
            let Some((node, kind)) = below(table, path).zip(self.kind(ours)) else { continue };
            if !ours.contains("NAME") {
                self.settings.push(((*ours).to_owned(), span(node.span())));
            }
            let value = self.value(&join(full, &path.join(".")), kind, node);
            values.extend(value.map(|value| (*ours, value)));
        }
        values
    }

    /// The environment variable in `["env:NAME", …]`; other stores of credentials are not supported.
    fn credentials(&mut self, name: &str, node: &Node<'_>) -> Option<String> {
        let all = self.array(name, node);
        let variable =
            all.iter().find_map(|item| item.get_ref().as_str()?.trim().strip_prefix("env:"));
        if variable.is_none() && !all.is_empty() {
            let message =
                format!("`{name}` names no environment variable, so the usual one is read");
            let warning = Diagnostic::warning(RULE, span(node.span()), message);
            self.diagnostics.push(warning.with_fix("add \"env:NAME\", and set NAME to the key"));
        }
        variable.map(str::to_owned)
    }

    /// Warns of settings of a provider or model that have no effect.
    fn not_read(&mut self, full: &str, table: &DeTable<'_>, names: Names) {
        for (key, _) in entries(table) {
            let name: &str = key.get_ref();
            if OTHER.contains(&name) || names.iter().any(|(path, _)| path[0] == name) {
                continue;
            }
            let message = format!("`{}` has no effect", join(full, name));
            let warning = Diagnostic::warning(RULE, span(key.span()), message);
            self.diagnostics.push(
                warning
                    .with_fix("remove it, or use a setting of `providers.NAME` or `models.NAME`"),
            );
        }
    }
}

/// A value by its path in tables.
fn below<'t, 'i>(table: &'t DeTable<'i>, path: &[&str]) -> Option<&'t Node<'i>> {
    let (first, rest) = path.split_first()?;
    let node = table.get(*first)?;
    if rest.is_empty() { Some(node) } else { below(node.get_ref().as_table()?, rest) }
}
