//! The reasoning effort that a model takes.

use fabro_types::ChatTools;

use super::interface::Wire;
use crate::{ModelInfo, ReasoningEffort, ThinkingMode};

/// What is sent for this effort; `None` when no effort may be named.
pub(super) fn sent(
    wanted: ReasoningEffort,
    info: Option<&ModelInfo>,
    wire: Wire,
    has_tools: bool,
) -> Option<ReasoningEffort> {
    use ReasoningEffort::{Max, None as Off, XHigh};
    use ThinkingMode::{Adaptive, BetweenTools, Budget, Level, Never, OnRequest, Switch};
    let info = info?;
    let mode = info.thinking;
    let efforts = info.efforts.as_deref().unwrap_or_default();
    // These have a word of their own for it.
    let is_switch = matches!(mode, Some(Adaptive | BetweenTools | Budget | OnRequest | Switch));
    let effort = match mode {
        Some(Never) => return None,
        Some(_) if wanted == Off && is_switch => Off,
        _ if !efforts.is_empty() => wanted.nearest(efforts)?,
        Some(Budget | Level | Switch) => wanted,
        _ => return None,
    };
    if wire != Wire::ChatCompletions {
        return Some(effort);
    }
    match info.chat_tools {
        Some(ChatTools::EffortNone) if has_tools => Some(Off),
        Some(ChatTools::WithoutEffort | ChatTools::Never) if has_tools => None,
        // Responses only.
        Some(_) if effort == Max => XHigh.nearest(efforts),
        _ => Some(effort),
    }
}

/// What is sent when no effort was asked for: models that refuse tools while they think have to be told
/// not to.
pub(super) fn sent_unasked(
    info: Option<&ModelInfo>,
    wire: Wire,
    has_tools: bool,
) -> Option<ReasoningEffort> {
    let chat_tools = info?.chat_tools?;
    let must_not_think = chat_tools == ChatTools::EffortNone && has_tools;
    (wire == Wire::ChatCompletions && must_not_think).then_some(ReasoningEffort::None)
}

/// The warning when another effort is sent than the one that was asked for.
pub(super) fn warning(
    wanted: ReasoningEffort,
    sent: Option<ReasoningEffort>,
    model: &str,
) -> Option<String> {
    let instead = match sent {
        Some(sent) if sent == wanted => return None,
        None if wanted == ReasoningEffort::None => return None,
        Some(sent) => format!("`{sent}` is sent"),
        None => "none is sent".to_owned(),
    };
    Some(format!("model `{model}` does not take the reasoning effort `{wanted}`: {instead}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Catalog;

    #[test]
    fn the_nearest_effort_is_sent() {
        let catalog = Catalog::builtin();
        let check = |model: &str, wire: Wire, has_tools: bool, expect: &str| {
            let info = catalog.find(model);
            let sent = ReasoningEffort::ALL.iter().map(|wanted| {
                sent(*wanted, info, wire, has_tools).map_or("-", ReasoningEffort::as_str)
            });
            assert_eq!(sent.collect::<Vec<_>>().join(" "), expect, "{model}");
        };
        let responses = Wire::Responses;
        let chat = Wire::ChatCompletions;
        check("gpt-6.2-sol", responses, true, "low low low medium high xhigh max");
        check("gpt-6.2-sol", chat, false, "low low low medium high xhigh xhigh");
        check("gpt-6-sol", chat, true, "none none none none none none none");
        check("gpt-5.4", chat, true, "- - - - - - -");
        check("gpt-5", responses, true, "minimal minimal low medium high high high");
        check("gpt-4.1", responses, true, "- - - - - - -");
        check("claude-opus-5-5", Wire::Anthropic, true, "low low low medium high xhigh max");
        check("claude-sonnet-5-5", Wire::Anthropic, true, "none low low medium high xhigh max");
        check("claude-sonnet-4-6", Wire::Anthropic, true, "none low low medium high high max");
        check("claude-sonnet-4-5", Wire::Anthropic, true, "none minimal low medium high xhigh max");
        check("gemini-4-argon", Wire::Gemini, true, "low low low medium high high high");
        check("deepseek-v4-pro", chat, true, "none high high high high high max");
        check("kimi-k3", chat, true, "low low low low high high max");
        check("unheard-of", chat, true, "- - - - - - -");
    }

    #[test]
    fn no_effort_is_sent_unasked_but_where_tools_are_refused_without_it() {
        let catalog = Catalog::builtin();
        let check = |model: &str, wire: Wire, has_tools: bool, expect: Option<ReasoningEffort>| {
            assert_eq!(sent_unasked(catalog.find(model), wire, has_tools), expect, "{model}");
        };
        let chat = Wire::ChatCompletions;
        check("gpt-6-sol", chat, true, Some(ReasoningEffort::None));
        check("gpt-6-sol", chat, false, None);
        check("gpt-6-sol", Wire::Responses, true, None);
        check("gpt-5.4", chat, true, None);
        check("gpt-6.2-sol", chat, true, None);
        check("unheard-of", chat, true, None);
    }
}
