//! The tier of speed that a model has.

use super::concessions::{Concessions, Server};
use super::interface::Wire;
use crate::ModelInfo;

/// Whether a request names this speed. A fallback may be of a provider that has other ones.
pub(super) fn is_sent(
    wanted: &str,
    info: Option<&ModelInfo>,
    wire: Wire,
    server: Option<Server>,
) -> bool {
    match wire {
        Wire::Gemini => false,
        // Only some models have a fast mode: those that have a price for it.
        Wire::Anthropic if wanted == "fast" => info.is_none_or(|info| info.fast_factor.is_some()),
        Wire::Anthropic => matches!(wanted, "standard" | "standard_only" | "auto"),
        Wire::ChatCompletions | Wire::Responses => server != Some(Server::Mistral),
    }
}

/// The warning when the speed that was asked for is not sent.
pub(super) fn warning(
    wanted: &str,
    sent: Option<&str>,
    concessions: Concessions,
    model: &str,
) -> Option<String> {
    let is_usual = matches!(wanted, "standard" | "standard_only" | "default" | "auto");
    // Its refusal was reported.
    let is_silent = sent.is_some() || is_usual || concessions.no_speed;
    (!is_silent).then(|| format!("model `{model}` has no speed `{wanted}`: it is not sent"))
}
