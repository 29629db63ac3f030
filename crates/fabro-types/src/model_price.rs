use jiff::Timestamp;
use jiff::civil::{Date, Weekday};
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use crate::{Costs, Usage};

/// What a million tokens of a model cost, in US dollars; `None` is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TokenPrices {
    /// Input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_cost: Option<f64>,
    /// Output, thinking included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_cost: Option<f64>,
    /// Input that is read from the provider's cache; `input_cost` where it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached_cost: Option<f64>,
    /// Input that is written into the provider's cache; `input_cost` where it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write_cost: Option<f64>,
    /// The same for an hour or longer; `cache_write_cost` where it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub long_cache_write_cost: Option<f64>,
}

/// Prices that hold under conditions instead of the usual ones.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SpecialPrices {
    /// From this day on (UTC). The prices without a day, and those of earlier days, no longer hold then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Date>,
    /// For the whole of a request with more input tokens than this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub above: Option<u64>,
    /// At all times but these hours (UTC) of Monday to Friday: from the first to before the second.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub except_hours: Vec<[u8; 2]>,
    /// The prices.
    #[serde(flatten)]
    pub prices: TokenPrices,
}

impl TokenPrices {
    /// The same with unknown prices taken from `base`.
    pub(crate) fn or(self, base: &Self) -> Self {
        Self {
            input_cost: self.input_cost.or(base.input_cost),
            output_cost: self.output_cost.or(base.output_cost),
            cached_cost: self.cached_cost.or(base.cached_cost),
            cache_write_cost: self.cache_write_cost.or(base.cache_write_cost),
            long_cache_write_cost: self.long_cache_write_cost.or(base.long_cache_write_cost),
        }
    }

    /// What one request costs at these prices; `None` when they are unknown.
    pub(crate) fn costs(&self, usage: &Usage) -> Option<Costs> {
        let input = self.input_cost?;
        let output = self.output_cost?;
        let write = self.cache_write_cost.unwrap_or(input);
        let cached = usage.cached_tokens.min(usage.input_tokens);
        let written = usage.cache_write_tokens.min(usage.input_tokens - cached);
        let long = usage.long_cache_write_tokens.min(written);
        let reasoning = usage.reasoning_tokens.min(usage.output_tokens);
        let dollars = |tokens: u64, price: f64| tokens as f64 * price / 1e6;
        Some(Costs {
            input: dollars(usage.input_tokens - cached - written, input),
            cached: dollars(cached, self.cached_cost.unwrap_or(input)),
            cache_write: dollars(written - long, write)
                + dollars(long, self.long_cache_write_cost.unwrap_or(write)),
            output: dollars(usage.output_tokens - reasoning, output),
            reasoning: dollars(reasoning, output),
        })
    }
}

/// The prices of one request with so many input tokens at this time.
pub(crate) fn prices_at<'a>(
    usual: &'a TokenPrices,
    special: &'a [SpecialPrices],
    input_tokens: u64,
    at_ms: i64,
) -> &'a TokenPrices {
    if special.is_empty() {
        return usual;
    }
    let at = Timestamp::from_millisecond(at_ms).unwrap_or_default().to_zoned(TimeZone::UTC);
    let today = at.date();
    let days = special.iter().filter_map(|it| it.from);
    let latest = days.filter(|day| *day <= today).max();
    let is_weekend = matches!(at.weekday(), Weekday::Saturday | Weekday::Sunday);
    let hour = u8::try_from(at.hour()).unwrap_or_default();
    let is_peak = |hours: &[[u8; 2]]| {
        !is_weekend && hours.iter().any(|[first, end]| (*first..*end).contains(&hour))
    };
    let holds = |it: &&SpecialPrices| {
        it.from == latest
            && it.above.is_none_or(|above| input_tokens > above)
            && !is_peak(&it.except_hours)
    };
    let found = special.iter().filter(holds).max_by_key(|it| it.above);
    found.map_or(usual, |it| &it.prices)
}
