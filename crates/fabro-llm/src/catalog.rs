use std::sync::LazyLock;

use fabro_types::{ModelInfo, Usage};

#[expect(clippy::expect_used, reason = "the file is part of the program, and a test reads it")]
static BUILTIN: LazyLock<Vec<ModelInfo>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("catalog.json")).expect("catalog.json is valid")
});

/// Known models with their context windows, prices and capabilities.
///
/// ```
/// use fabro_llm::{Catalog, ModelInfo};
///
/// let mut catalog = Catalog::builtin();
/// assert_eq!(catalog.find("anthropic/claude-sonnet-4-5-20250929").unwrap().context_window, Some(200_000));
/// let llama = ModelInfo { context_window: Some(8192), ..ModelInfo::new("local-llama") };
/// catalog.extend([llama]);
/// assert_eq!(catalog.find("local-llama").unwrap().context_window, Some(8192));
/// assert_eq!(catalog.find("unheard-of"), None);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Catalog {
    models: Vec<ModelInfo>,
}

impl Catalog {
    /// No models at all.
    pub fn empty() -> Self {
        Self::default()
    }

    /// The common models of the large providers, and a few open ones, with their list prices.
    pub fn builtin() -> Self {
        Self { models: BUILTIN.clone() }
    }

    /// The model of this name. A provider before the name (`anthropic/…`) is ignored where nothing is
    /// found with it. Without an exact name or alias, the longest known name counts that this one begins
    /// with, up to a character such as `-`, so dated versions have the properties of their family.
    pub fn find(&self, name: &str) -> Option<&ModelInfo> {
        let bare = name.rsplit('/').next().unwrap_or(name);
        let exact = |name: &str| self.models.iter().find(|model| model.is_called(name));
        exact(name).or_else(|| exact(bare)).or_else(|| self.family(bare))
    }

    /// The exact name behind an alias; other names are given back as they are.
    pub fn resolve<'a>(&'a self, name: &'a str) -> &'a str {
        let named = self.models.iter().find(|model| model.is_called(name));
        named.map_or(name, |model| &model.name)
    }

    fn family(&self, name: &str) -> Option<&ModelInfo> {
        let begins = |model: &&ModelInfo| {
            let rest = name.strip_prefix(model.name.as_str());
            rest.and_then(|rest| rest.chars().next()).is_some_and(|next| !next.is_alphanumeric())
        };
        self.models.iter().filter(begins).max_by_key(|model| model.name.len())
    }

    /// The cost of this usage in US dollars, at the list price of its model; `None` when it is unknown.
    pub fn cost(&self, usage: &Usage) -> Option<f64> {
        self.find(usage.model.as_deref()?)?.cost(usage)
    }

    /// All models, the user's own last.
    pub fn iter(&self) -> impl Iterator<Item = &ModelInfo> {
        self.models.iter()
    }
}

impl Extend<ModelInfo> for Catalog {
    /// Adds models, or overrides properties of known ones. Properties that an entry leaves out are those
    /// of the model of that name, else of its family.
    fn extend<I: IntoIterator<Item = ModelInfo>>(&mut self, models: I) {
        for model in models {
            let base = self.find(&model.name).cloned();
            let model = match base {
                Some(base) => model.or(&base),
                None => model,
            };
            self.models.retain(|known| known.name != model.name);
            self.models.push(model);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(model: &str, cached_tokens: u64, expect: Option<f64>) {
        let usage = Usage {
            model: Some(model.to_owned()),
            input_tokens: 1_000_000,
            output_tokens: 1_000_000,
            cached_tokens,
            ..Usage::default()
        };
        assert_eq!(Catalog::builtin().cost(&usage), expect, "{model}");
    }

    #[test]
    fn a_model_costs_what_its_family_does() {
        check("claude-opus-4-1-20250805", 0, Some(90.0));
        check("claude-opus-4-6", 0, Some(30.0));
        check("claude-opus-4-20250514", 0, Some(90.0));
        check("gpt-5-mini", 0, Some(2.25));
        check("gpt-5.2-2025-12-11", 0, Some(15.75));
        check("openai/gpt-5.2-codex", 0, Some(15.75));
        check("claude-sonnet-4-5", 1_000_000, Some(15.3));
        check("gpt-5000", 0, None);
        check("my-own-model", 0, None);
        check("gpt-oss-20b", 0, None);
        assert_eq!(Catalog::builtin().cost(&Usage::default()), None);
    }

    #[test]
    fn the_file_is_consistent() {
        let json: serde_json::Value = serde_json::from_str(include_str!("catalog.json")).unwrap();
        for (model, json) in BUILTIN.iter().zip(json.as_array().unwrap()) {
            let known = serde_json::to_value(model).unwrap();
            let unknown = json.as_object().unwrap().keys().find(|key| known.get(*key).is_none());
            assert_eq!(unknown, None, "{}", model.name);
        }
        let names: std::collections::BTreeSet<_> =
            BUILTIN.iter().flat_map(|model| model.aliases.iter().chain([&model.name])).collect();
        let count: usize = BUILTIN.iter().map(|model| 1 + model.aliases.len()).sum();
        assert!(count > 40 && names.len() == count, "a name is taken twice");
        for model in BUILTIN.iter() {
            assert!(model.context_window > model.max_output_tokens, "{}", model.name);
            assert_eq!(model.input_cost.is_some(), model.output_cost.is_some(), "{}", model.name);
            assert!(model.cached_cost <= model.input_cost, "{}", model.name);
            assert!(model.reasoning.is_some() && model.output_schema.is_some(), "{}", model.name);
        }
    }

    #[test]
    fn users_override_properties() {
        let mut catalog = Catalog::builtin();
        let count = catalog.iter().count();
        let mine = ModelInfo {
            aliases: vec!["llama".to_owned()],
            context_window: Some(8192),
            ..ModelInfo::new("local-llama")
        };
        let cheaper = ModelInfo { input_cost: Some(1.0), ..ModelInfo::new("claude-sonnet-4-5") };
        let dated = ModelInfo { output_cost: Some(7.0), ..ModelInfo::new("gpt-5-2030-01-01") };
        catalog.extend([mine, cheaper, dated]);
        assert_eq!(catalog.iter().count(), count + 2);
        assert_eq!(catalog.resolve("llama"), "local-llama");
        assert_eq!(catalog.resolve("sonnet"), "claude-sonnet-4-6");
        assert_eq!(catalog.resolve("other"), "other");
        let sonnet = catalog.find("claude-sonnet-4-5").unwrap();
        assert_eq!((sonnet.input_cost, sonnet.output_cost), (Some(1.0), Some(15.0)));
        let gpt = catalog.find("gpt-5-2030-01-01").unwrap();
        assert_eq!((gpt.context_window, gpt.output_cost), (Some(400_000), Some(7.0)));
        assert_eq!(gpt.provider.as_deref(), Some("openai"));
    }
}
