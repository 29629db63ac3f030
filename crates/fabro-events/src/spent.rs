use fabro_types::Usage;
use serde::{Deserialize, Serialize};

/// What spending limits look at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spent {
    /// In US dollars.
    pub cost_usd: f64,
    /// Tokens sent and received.
    pub tokens: u64,
}

impl Spent {
    /// The part of a usage that spending limits look at.
    pub fn of(usage: &Usage) -> Self {
        let tokens = usage.input_tokens.saturating_add(usage.output_tokens);
        Self { cost_usd: usage.cost_usd, tokens }
    }

    /// Adds what was spent elsewhere.
    pub fn add(&mut self, other: Self) {
        self.cost_usd += other.cost_usd;
        self.tokens = self.tokens.saturating_add(other.tokens);
    }

    /// Whether nothing was spent.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}
