use serde::{Deserialize, Serialize};

use crate::skip::is_default;

/// What a stage used of a model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// The model that was asked, when there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The model that answered, as its server names it, where that is another name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_model: Option<String>,
    /// The provider of the model, where it is known: `anthropic`, `openai`, `gemini`, or the name of a server that
    /// is compatible with `OpenAI`'s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Tokens sent, those read from a cache and written into it included.
    #[serde(default)]
    pub input_tokens: u64,
    /// Tokens received, those of reasoning included.
    #[serde(default)]
    pub output_tokens: u64,
    /// Tokens sent that the provider had cached.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cached_tokens: u64,
    /// Tokens sent that the provider wrote into its cache.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cache_write_tokens: u64,
    /// Those of them that it keeps for an hour or longer.
    #[serde(default, skip_serializing_if = "is_default")]
    pub long_cache_write_tokens: u64,
    /// Tokens received that were reasoning.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reasoning_tokens: u64,
    /// Price in US dollars, without what is not known.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cost_usd: f64,
    /// What the price consists of, where that is known.
    #[serde(default, skip_serializing_if = "is_default")]
    pub costs: Costs,
    /// How many requests used tokens whose price is not known.
    #[serde(default, skip_serializing_if = "is_default")]
    pub unpriced_requests: u32,
    /// How many answers the model gave.
    #[serde(default, skip_serializing_if = "is_default")]
    pub turns: u32,
    /// How many requests failed; their tokens and their price are part of the others.
    #[serde(default, skip_serializing_if = "is_default")]
    pub failed_requests: u32,
}

impl Usage {
    /// Adds another stage's usage; the model named last stays.
    pub fn add(&mut self, other: &Self) {
        if other.model.is_some() {
            self.model.clone_from(&other.model);
            self.response_model.clone_from(&other.response_model);
            self.provider.clone_from(&other.provider);
        }
        // What others count may be any number.
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.cached_tokens = self.cached_tokens.saturating_add(other.cached_tokens);
        self.cache_write_tokens = self.cache_write_tokens.saturating_add(other.cache_write_tokens);
        self.long_cache_write_tokens =
            self.long_cache_write_tokens.saturating_add(other.long_cache_write_tokens);
        self.reasoning_tokens = self.reasoning_tokens.saturating_add(other.reasoning_tokens);
        self.cost_usd += other.cost_usd;
        self.costs.add(&other.costs);
        self.unpriced_requests = self.unpriced_requests.saturating_add(other.unpriced_requests);
        self.turns = self.turns.saturating_add(other.turns);
        self.failed_requests = self.failed_requests.saturating_add(other.failed_requests);
    }

    /// What it has more than `counted`, which is a part of it.
    #[must_use]
    pub fn without(&self, counted: &Self) -> Self {
        // Sums in another order differ in their last digits.
        let more = |total: f64, counted: f64| {
            let rest = ((total - counted) * 1e12).round() / 1e12;
            if rest > 1e-9 { rest } else { 0.0 }
        };
        Self {
            model: self.model.clone(),
            response_model: self.response_model.clone(),
            provider: self.provider.clone(),
            input_tokens: self.input_tokens.saturating_sub(counted.input_tokens),
            output_tokens: self.output_tokens.saturating_sub(counted.output_tokens),
            cached_tokens: self.cached_tokens.saturating_sub(counted.cached_tokens),
            cache_write_tokens: self.cache_write_tokens.saturating_sub(counted.cache_write_tokens),
            long_cache_write_tokens: self
                .long_cache_write_tokens
                .saturating_sub(counted.long_cache_write_tokens),
            reasoning_tokens: self.reasoning_tokens.saturating_sub(counted.reasoning_tokens),
            cost_usd: more(self.cost_usd, counted.cost_usd),
            costs: Costs {
                input: more(self.costs.input, counted.costs.input),
                cached: more(self.costs.cached, counted.costs.cached),
                cache_write: more(self.costs.cache_write, counted.costs.cache_write),
                output: more(self.costs.output, counted.costs.output),
                reasoning: more(self.costs.reasoning, counted.costs.reasoning),
            },
            unpriced_requests: self.unpriced_requests.saturating_sub(counted.unpriced_requests),
            turns: self.turns.saturating_sub(counted.turns),
            failed_requests: self.failed_requests.saturating_sub(counted.failed_requests),
        }
    }

    /// Whether it counts nothing: no request, no token, no price.
    pub fn is_nothing(&self) -> bool {
        let named = Self {
            model: self.model.clone(),
            response_model: self.response_model.clone(),
            provider: self.provider.clone(),
            ..Self::default()
        };
        *self == named
    }

    /// Takes these costs as its price.
    pub fn set_costs(&mut self, costs: Option<Costs>) {
        let has_tokens = self.input_tokens > 0 || self.output_tokens > 0;
        self.unpriced_requests = u32::from(costs.is_none() && has_tokens);
        self.costs = costs.unwrap_or_default();
        self.cost_usd = self.costs.total();
    }

    /// How many requests were made: answered and failed ones.
    pub fn requests(&self) -> u32 {
        self.turns.saturating_add(self.failed_requests)
    }
}

/// Prices in US dollars by kind of token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Costs {
    /// Input that is neither read from a cache nor written into it.
    #[serde(skip_serializing_if = "is_default")]
    pub input: f64,
    /// Input that was read from the provider's cache.
    #[serde(skip_serializing_if = "is_default")]
    pub cached: f64,
    /// Input that was written into the provider's cache.
    #[serde(skip_serializing_if = "is_default")]
    pub cache_write: f64,
    /// Output without reasoning.
    #[serde(skip_serializing_if = "is_default")]
    pub output: f64,
    /// Reasoning.
    #[serde(skip_serializing_if = "is_default")]
    pub reasoning: f64,
}

impl Costs {
    /// All of them together.
    pub fn total(&self) -> f64 {
        self.input + self.cached + self.cache_write + self.output + self.reasoning
    }

    /// Each of them so many times.
    pub fn times(self, factor: f64) -> Self {
        Self {
            input: self.input * factor,
            cached: self.cached * factor,
            cache_write: self.cache_write * factor,
            output: self.output * factor,
            reasoning: self.reasoning * factor,
        }
    }

    fn add(&mut self, other: &Self) {
        self.input += other.input;
        self.cached += other.cached;
        self.cache_write += other.cache_write;
        self.output += other.output;
        self.reasoning += other.reasoning;
    }
}
