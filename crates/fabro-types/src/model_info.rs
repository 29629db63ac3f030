use serde::{Deserialize, Serialize};

use crate::Usage;

/// Properties of a model, in the catalog or as `[models.NAME]` in settings; `None` is unknown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelInfo {
    /// The name that the provider uses.
    pub name: String,
    /// The provider that serves it, by name or kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Other names of it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// Its context window, input and output together, in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u64>,
    /// The longest answer, in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u64>,
    /// The price of a million input tokens, in US dollars.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_cost: Option<f64>,
    /// The price of a million output tokens, in US dollars.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_cost: Option<f64>,
    /// The price of a million tokens read from the provider's cache, in US dollars; `input_cost` where
    /// it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached_cost: Option<f64>,
    /// It can call tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<bool>,
    /// How it takes the reasoning effort.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<ReasoningStyle>,
    /// The provider can enforce a JSON Schema on its answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<bool>,
}

/// How a model takes the reasoning effort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ReasoningStyle {
    /// It does not reason, or has no setting for it.
    None,
    /// By a word.
    Effort,
    /// By a number of tokens, which is part of the longest answer.
    Budget,
}

impl ModelInfo {
    /// A model of which everything but the name is unknown.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// The cost of this usage in US dollars; `None` when the prices are unknown.
    pub fn cost(&self, usage: &Usage) -> Option<f64> {
        let input = self.input_cost?;
        let output = self.output_cost?;
        let cached = usage.cached_tokens.min(usage.input_tokens);
        let fresh = usage.input_tokens - cached;
        let dollars = fresh as f64 * input
            + cached as f64 * self.cached_cost.unwrap_or(input)
            + usage.output_tokens as f64 * output;
        Some(dollars / 1e6)
    }

    /// Whether this is its name or an alias of it.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.aliases.iter().any(|alias| alias == name)
    }

    /// The same with unknown properties taken from `base`.
    pub fn or(self, base: &Self) -> Self {
        Self {
            provider: self.provider.or_else(|| base.provider.clone()),
            context_window: self.context_window.or(base.context_window),
            max_output_tokens: self.max_output_tokens.or(base.max_output_tokens),
            input_cost: self.input_cost.or(base.input_cost),
            output_cost: self.output_cost.or(base.output_cost),
            cached_cost: self.cached_cost.or(base.cached_cost),
            tools: self.tools.or(base.tools),
            reasoning: self.reasoning.or(base.reasoning),
            output_schema: self.output_schema.or(base.output_schema),
            ..self
        }
    }
}
