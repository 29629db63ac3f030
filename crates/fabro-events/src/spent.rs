use fabro_types::Usage;
use serde::{Deserialize, Serialize};

/// The amounts that spending limits apply to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spent {
    /// In US dollars.
    pub cost_usd: f64,
    /// Input and output tokens.
    pub tokens: u64,
}

impl Spent {
    /// The part of a usage that counts towards spending limits.
    pub fn of(usage: &Usage) -> Self {
        let tokens = usage.input_tokens.saturating_add(usage.output_tokens);
        Self { cost_usd: usage.cost_usd, tokens }
    }

    /// Adds another amount.
    pub fn add(&mut self, other: Self) {
        self.cost_usd += other.cost_usd;
        self.tokens = self.tokens.saturating_add(other.tokens);
    }

    /// Whether nothing was spent.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}
