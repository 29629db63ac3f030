use jiff::civil::Date;
use serde::{Deserialize, Serialize};

use crate::model_price::prices_at;
use crate::{
    ChatTools, Costs, ModelInterface, ReasoningEffort, SpecialPrices, ThinkingMode, TokenPrices,
    Usage,
};

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
    /// How many tokens it counts for each one that is estimated from the length of a text; 1 where absent.
    /// Above 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_per_estimate: Option<f64>,
    /// The longest answer, in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u64>,
    /// Its usual prices.
    #[serde(flatten)]
    pub cost: TokenPrices,
    /// Its prices for long requests, at other hours, and from a day on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prices: Vec<SpecialPrices>,
    /// How many times the usual prices the speed `fast` costs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fast_factor: Option<f64>,
    /// How many times the usual prices the speed `flex` costs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flex_factor: Option<f64>,
    /// It can call tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<bool>,
    /// The provider can enforce a JSON Schema on its answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<bool>,
    /// The reasoning efforts that it takes, the least first; empty when a request may name none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub efforts: Option<Vec<ReasoningEffort>>,
    /// The effort when a request names none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_effort: Option<ReasoningEffort>,
    /// How it thinks, and how a request says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<ThinkingMode>,
    /// The interface that is used for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<ModelInterface>,
    /// When it takes tools in Chat Completions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chat_tools: Option<ChatTools>,
    /// The first day on which its provider does not serve it any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shutdown_date: Option<Date>,
}

impl ModelInfo {
    /// A model of which everything but the name is unknown.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// What one request at this time (milliseconds since 1970) costs at the usual speed; `None` when the
    /// prices are unknown.
    pub fn costs(&self, usage: &Usage, at_ms: i64) -> Option<Costs> {
        prices_at(&self.cost, &self.prices, usage.input_tokens, at_ms).costs(usage)
    }

    /// How many times the usual prices a request at this speed costs: the word of a node or of a provider's
    /// answer. `None` when that is unknown.
    pub fn speed_factor(&self, speed: &str) -> Option<f64> {
        match speed {
            "standard" | "standard_only" | "default" | "auto" => Some(1.0),
            "fast" | "priority" => self.fast_factor,
            "flex" => self.flex_factor,
            _ => None,
        }
    }

    /// Whether this is its name or an alias of it.
    pub fn is_called(&self, name: &str) -> bool {
        self.names().any(|own| own == name)
    }

    /// Its name and its aliases.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.name).chain(&self.aliases).map(String::as_str)
    }

    /// Whether it has any price.
    pub fn has_price(&self) -> bool {
        self.cost != TokenPrices::default() || !self.prices.is_empty()
    }

    /// The same with unknown properties taken from `base`, the same model: also its prices, and those
    /// under conditions only where this one has no price of its own.
    pub fn or(self, base: &Self) -> Self {
        let prices = if self.has_price() { self.prices } else { base.prices.clone() };
        let same = Self {
            cost: self.cost.or(&base.cost),
            prices,
            fast_factor: self.fast_factor.or(base.fast_factor),
            flex_factor: self.flex_factor.or(base.flex_factor),
            shutdown_date: self.shutdown_date.or(base.shutdown_date),
            ..self
        };
        same.or_rules(base)
    }

    /// Its context window in estimated tokens, as conversations are measured.
    pub fn estimated_window(&self) -> Option<u64> {
        let factor = self.tokens_per_estimate.unwrap_or(1.0);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_precision_loss,
            clippy::cast_sign_loss,
            reason = "a window is far below 2^53 tokens, and the factor positive"
        )]
        self.context_window.map(|window| (window as f64 / factor) as u64)
    }

    /// The same with unknown properties other than prices taken from `base`, a related model.
    pub fn or_rules(self, base: &Self) -> Self {
        Self {
            provider: self.provider.or_else(|| base.provider.clone()),
            context_window: self.context_window.or(base.context_window),
            tokens_per_estimate: self.tokens_per_estimate.or(base.tokens_per_estimate),
            max_output_tokens: self.max_output_tokens.or(base.max_output_tokens),
            tools: self.tools.or(base.tools),
            output_schema: self.output_schema.or(base.output_schema),
            efforts: self.efforts.or_else(|| base.efforts.clone()),
            default_effort: self.default_effort.or(base.default_effort),
            thinking: self.thinking.or(base.thinking),
            interface: self.interface.or(base.interface),
            chat_tools: self.chat_tools.or(base.chat_tools),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(json: &str) -> ModelInfo {
        serde_json::from_str(json).unwrap()
    }

    /// A million tokens of each kind: input, cached input, written input, long written input, output,
    /// reasoning.
    fn million_of_each() -> Usage {
        Usage {
            input_tokens: 4_000_000,
            cached_tokens: 1_000_000,
            cache_write_tokens: 2_000_000,
            long_cache_write_tokens: 1_000_000,
            output_tokens: 2_000_000,
            reasoning_tokens: 1_000_000,
            ..Usage::default()
        }
    }

    #[track_caller]
    fn check(model: &ModelInfo, input_tokens: u64, at: &str, expect: f64) {
        let usage = Usage { input_tokens, ..Usage::default() };
        let at: jiff::Timestamp = at.parse().unwrap();
        let total = model.costs(&usage, at.as_millisecond()).unwrap().total();
        assert!((total - expect).abs() < 1e-9, "{at}: {total} instead of {expect}");
    }

    #[test]
    fn each_kind_of_token_has_its_price() {
        let costs = |json: &str| model(json).costs(&million_of_each(), 0);
        let all = r#"{"input_cost": 10, "output_cost": 100, "cached_cost": 1, "cache_write_cost": 12.5,
            "long_cache_write_cost": 20}"#;
        let expect =
            Costs { input: 10.0, cached: 1.0, cache_write: 32.5, output: 100.0, reasoning: 100.0 };
        assert_eq!(costs(all), Some(expect));
        let fewer = Costs { cached: 10.0, cache_write: 20.0, ..expect };
        assert_eq!(costs(r#"{"input_cost": 10, "output_cost": 100}"#), Some(fewer));
        assert_eq!(costs(r#"{"input_cost": 10}"#), None);
        assert_eq!(costs("{}"), None);
    }

    #[test]
    fn counts_that_contradict_each_other_cost_no_more_than_all_of_the_input() {
        let usage = Usage { input_tokens: 1_000_000, ..million_of_each() };
        let model = model(r#"{"input_cost": 1, "output_cost": 0, "cached_cost": 2}"#);
        assert_eq!(model.costs(&usage, 0).map(|it| it.total()), Some(2.0));
    }

    #[test]
    fn a_long_request_has_its_price_as_a_whole() {
        let model = model(
            r#"{"input_cost": 2, "output_cost": 1,
                "prices": [{"above": 500000, "input_cost": 8, "output_cost": 1},
                           {"above": 200000, "input_cost": 4, "output_cost": 1}]}"#,
        );
        check(&model, 200_000, "2026-01-01T00:00Z", 0.4);
        check(&model, 200_001, "2026-01-01T00:00Z", 0.800_004);
        check(&model, 1_000_000, "2026-01-01T00:00Z", 8.0);
    }

    #[test]
    fn prices_change_on_a_day() {
        let model = model(
            r#"{"input_cost": 2, "output_cost": 1,
                "prices": [{"above": 2000000, "input_cost": 20, "output_cost": 1},
                           {"from": "2027-01-01", "input_cost": 5, "output_cost": 1},
                           {"from": "2026-12-01", "input_cost": 4, "output_cost": 1}]}"#,
        );
        check(&model, 1_000_000, "2026-11-30T23:59:59Z", 2.0);
        check(&model, 1_000_000, "2026-12-01T00:00Z", 4.0);
        check(&model, 3_000_000, "2026-12-01T00:00Z", 12.0);
        check(&model, 1_000_000, "2030-01-01T00:00Z", 5.0);
    }

    #[test]
    fn prices_may_be_lower_outside_of_hours() {
        let model = model(
            r#"{"input_cost": 2, "output_cost": 1, "prices":
                [{"except_hours": [[1, 4], [6, 10]], "input_cost": 1, "output_cost": 1}]}"#,
        );
        check(&model, 1_000_000, "2026-11-23T00:59Z", 1.0);
        check(&model, 1_000_000, "2026-11-23T01:00Z", 2.0);
        check(&model, 1_000_000, "2026-11-23T04:00Z", 1.0);
        check(&model, 1_000_000, "2026-11-23T09:59Z", 2.0);
        // A Sunday.
        check(&model, 1_000_000, "2026-11-22T09:59Z", 1.0);
    }

    #[test]
    fn own_prices_replace_all_those_under_conditions() {
        let base = model(
            r#"{"input_cost": 2, "output_cost": 3, "prices": [{"above": 5, "input_cost": 4}]}"#,
        );
        let own = model(r#"{"input_cost": 1}"#).or(&base);
        assert_eq!((own.cost.output_cost, own.prices.len()), (Some(3.0), 0));
        let same = model(r#"{"context_window": 1}"#).or(&base);
        assert_eq!(same.prices, base.prices);
        assert!(!ModelInfo::new("relative").or_rules(&base).has_price());
    }

    #[test]
    fn the_window_is_smaller_for_a_model_that_counts_more_tokens() {
        let check = |json, expect| assert_eq!(model(json).estimated_window(), expect);
        check("{}", None);
        check(r#"{"context_window": 200000}"#, Some(200_000));
        check(r#"{"context_window": 1000000, "tokens_per_estimate": 1.3}"#, Some(769_230));
    }
}
