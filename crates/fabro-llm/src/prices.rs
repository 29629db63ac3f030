use std::collections::BTreeMap;
use std::sync::LazyLock;

use fabro_types::Usage;
use serde::Deserialize;

/// US dollars for a million tokens.
#[derive(Deserialize)]
struct Price {
    input: f64,
    output: f64,
    /// Tokens sent that the provider had cached.
    cached: f64,
}

/// List prices by model family. A data file, so that a test reads the whole of it.
static PRICES: LazyLock<BTreeMap<String, Price>> =
    LazyLock::new(|| serde_json::from_str(include_str!("prices.json")).unwrap_or_default());

/// What this usage costs in US dollars, at the list price of its model; `None` when the model is
/// not known. A model goes by the longest known name that it begins with, so dated versions cost
/// what their family does. A provider before the name (`anthropic/…`) is passed over.
///
/// ```
/// use fabro_types::Usage;
///
/// let model = Some("claude-sonnet-4-5".to_owned());
/// let usage = Usage { model, input_tokens: 100_000, output_tokens: 10_000, ..Usage::default() };
/// assert_eq!(fabro_llm::cost(&usage), Some(0.45));
/// ```
pub fn cost(usage: &Usage) -> Option<f64> {
    let model = usage.model.as_deref()?;
    let name = model.rsplit('/').next().unwrap_or(model);
    let known = PRICES.iter().filter(|(family, _)| name.starts_with(family.as_str()));
    let (_, price) = known.max_by_key(|(family, _)| family.len())?;
    let cached = usage.cached_tokens.min(usage.input_tokens);
    let fresh = usage.input_tokens - cached;
    let dollars = fresh as f64 * price.input
        + cached as f64 * price.cached
        + usage.output_tokens as f64 * price.output;
    Some(dollars / 1e6)
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
        assert_eq!(cost(&usage), expect, "{model}");
    }

    #[test]
    fn a_model_costs_what_its_family_does() {
        assert!(PRICES.values().all(|price| price.input > price.cached));
        check("claude-opus-4-1-20250805", 0, Some(90.0));
        check("claude-opus-4-6", 0, Some(30.0));
        check("gpt-5-mini", 0, Some(2.25));
        check("openai/gpt-5.2-codex", 0, Some(15.75));
        check("claude-sonnet-4-5", 1_000_000, Some(15.3));
        check("my-own-model", 0, None);
        assert_eq!(cost(&Usage::default()), None);
    }
}
