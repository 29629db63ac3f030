//! What turns cost, by the usage of every vendor and the prices of the catalog.

use std::sync::Arc;

use fabro_types::Usage;
use serde_json::{Value, json};

use super::interface::Wire;
use super::prefix::PrefixHash;
use super::prepared::event_reader;
use super::turn::{Pricing, Turn};
use super::{Provider, ProviderKind};
use crate::{Catalog, Part};

/// Reads a whole answer that was asked for on this day, and compares its cost in dollars.
#[track_caller]
fn check(kind: ProviderKind, model: &str, day: &str, body: &Value, dollars: f64) {
    let usage = usage_at(kind, model, day, None, body);
    assert!((usage.cost_usd - dollars).abs() < 1e-9, "{model}: {usage:?}, not {dollars}");
    assert!((usage.costs.total() - usage.cost_usd).abs() < 1e-9, "{usage:?}");
}

fn usage_at(
    kind: ProviderKind,
    model: &str,
    day: &str,
    speed: Option<&str>,
    body: &Value,
) -> Usage {
    let sent: jiff::Timestamp = format!("{day}T12:00Z").parse().unwrap();
    let catalog = Arc::new(Catalog::builtin());
    let pricing = Pricing {
        model: catalog.same_model(model).cloned(),
        catalog: Some(catalog),
        sent_ms: sent.as_millisecond(),
        speed: speed.map(str::to_owned),
        provider_factor: None,
    };
    let name = model.to_owned();
    let mut turn = Turn::new(kind.as_str(), name, pricing, Arc::default(), PrefixHash::default());
    let mut reader = event_reader(Wire::of(&Provider::new("p", kind), model, None));
    reader.read_whole(body, &mut turn).unwrap();
    let usage = std::iter::from_fn(|| turn.pop_part()).find_map(|part| match part {
        Part::End { usage, .. } => Some(usage),
        _ => None,
    });
    usage.unwrap()
}

const DAY: &str = "2026-11-23";

fn anthropic(usage: &Value) -> Value {
    json!({"content": [{"type": "text", "text": "x"}], "stop_reason": "end_turn", "usage": usage})
}

#[test]
fn anthropic_counts_what_is_read_and_written_apart() {
    let usage = json!({"input_tokens": 1_000, "cache_read_input_tokens": 200_000,
        "cache_creation_input_tokens": 30_000, "output_tokens": 4_000,
        "cache_creation": {"ephemeral_5m_input_tokens": 20_000, "ephemeral_1h_input_tokens": 10_000}});
    // 4 for input, 0.2 read, 5 written, 8 for an hour, 20 for output.
    let dollars = 0.004 + 0.04 + 0.1 + 0.08 + 0.08;
    check(ProviderKind::Anthropic, "claude-opus-5-5", DAY, &anthropic(&usage), dollars);
    let dated = "claude-opus-5-5-20260922";
    check(ProviderKind::Anthropic, dated, DAY, &anthropic(&usage), dollars);
    // Above 100,000 tokens of input all of it is dearer: 0.5, 0.05, 0.625, 1, 2.5.
    let dollars = 0.0005 + 0.01 + 0.0125 + 0.01 + 0.01;
    check(ProviderKind::Anthropic, "claude-haiku-5-5", DAY, &anthropic(&usage), dollars);
}

#[test]
fn a_refusal_before_any_output_costs_nothing() {
    let refused = |content: Value| {
        let body = json!({"content": content, "stop_reason": "refusal",
            "usage": {"input_tokens": 1_000_000, "output_tokens": 10}});
        let pricing = Pricing {
            model: Catalog::builtin().same_model("claude-opus-5-5").cloned(),
            ..Pricing::default()
        };
        let name = "claude-opus-5-5".to_owned();
        let mut turn = Turn::new("anthropic", name, pricing, Arc::default(), PrefixHash::default());
        let mut reader = event_reader(Wire::Anthropic);
        reader.read_whole(&body, &mut turn).unwrap_err();
        turn.usage().cost_usd
    };
    assert!(refused(json!([])).abs() < 1e-9);
    let text = json!([{"type": "text", "text": "x"}]);
    assert!((refused(text) - 4.0002).abs() < 1e-9);
    let thought = json!([{"type": "thinking", "thinking": "x", "signature": "y"}]);
    assert!((refused(thought) - 4.0002).abs() < 1e-9);
}

#[test]
fn a_blocked_prompt_costs_what_its_provider_reports() {
    let body = json!({"promptFeedback": {"blockReason": "SAFETY"},
        "usageMetadata": {"promptTokenCount": 1_000_000}});
    let pricing = Pricing {
        model: Catalog::builtin().same_model("gemini-4-neon").cloned(),
        ..Pricing::default()
    };
    let name = "gemini-4-neon".to_owned();
    let mut turn = Turn::new("gemini", name, pricing, Arc::default(), PrefixHash::default());
    event_reader(Wire::Gemini).read_whole(&body, &mut turn).unwrap_err();
    assert!((turn.usage().cost_usd - 3.0).abs() < 1e-9);
}

#[test]
fn a_retired_name_costs_what_the_model_costs_that_answers() {
    let check = |asked: &str, answers: &str, dollars: f64| {
        let body = json!({"candidates": [{"content": {"parts": [{"text": "x"}]}, "finishReason": "STOP"}],
            "usageMetadata": {"promptTokenCount": 1_000_000, "candidatesTokenCount": 100_000},
            "modelVersion": answers});
        check(ProviderKind::Gemini, asked, DAY, &body, dollars);
    };
    check("gemini-3.5-flash", "gemini-3.5-flash", 2.4);
    check("gemini-3.5-flash", "gemini-3.6-flash", 0.75 + 0.375);
    // Names of others, and names that are not known, change nothing.
    check("gemini-3.5-flash", "gpt-5", 2.4);
    check("gemini-3.5-flash", "gemini-3.5-flash-002", 2.4);
}

#[test]
fn openai_has_tiers_and_written_input() {
    let body = |input: u64| {
        json!({"status": "completed",
            "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "x"}]}],
            "usage": {"input_tokens": input, "output_tokens": 10_000,
                "input_tokens_details": {"cached_tokens": 100_000, "cache_write_tokens": 50_000},
                "output_tokens_details": {"reasoning_tokens": 6_000}}})
    };
    let kind = ProviderKind::OpenAiResponses;
    // 122,000 at 2, 100,000 at 0.1, 50,000 at 2.5, 10,000 at 10.
    check(kind, "gpt-6.2-sol", DAY, &body(272_000), 0.244 + 0.01 + 0.125 + 0.1);
    // 122,001 at 4, 100,000 at 0.2, 50,000 at 5, 10,000 at 15.
    check(kind, "gpt-6.2-sol", DAY, &body(272_001), 0.488_004 + 0.02 + 0.25 + 0.15);
}

#[test]
fn chat_completions_have_the_same_details() {
    let body = json!({"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 10_000, "completion_tokens": 2_000,
            "prompt_tokens_details": {"cached_tokens": 4_000},
            "completion_tokens_details": {"reasoning_tokens": 500}}});
    // 6,000 at 1.75, 4,000 at 0.175, 2,000 at 14.
    check(ProviderKind::OpenAiCompatible, "gpt-5.2", DAY, &body, 0.0105 + 0.0007 + 0.028);
}

#[test]
fn gemini_counts_thoughts_apart_and_changes_prices_on_a_day() {
    let body = |input: u64| {
        json!({"candidates": [{"content": {"parts": [{"text": "x"}]}, "finishReason": "STOP"}],
            "usageMetadata": {"promptTokenCount": input, "cachedContentTokenCount": 50_000,
                "candidatesTokenCount": 1_000, "thoughtsTokenCount": 3_000}})
    };
    let kind = ProviderKind::Gemini;
    // 50,000 at 2, 50,000 at 0.1, 4,000 at 10; twice as much from December on.
    let dollars = 0.1 + 0.005 + 0.04;
    check(kind, "gemini-4-argon", "2026-11-30", &body(100_000), dollars);
    check(kind, "gemini-4-argon", "2026-12-01", &body(100_000), 2.0 * dollars);
    // 200,000 at 4, 50,000 at 0.4, 4,000 at 18: above 200,000 tokens.
    check(kind, "gemini-3.1-pro-preview", DAY, &body(250_000), 0.8 + 0.02 + 0.072);
}

#[test]
fn a_speed_has_its_price() {
    let responses = |tier: Option<&str>| {
        json!({"status": "completed", "service_tier": tier,
            "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "x"}]}],
            "usage": {"input_tokens": 1_000_000 / 4, "output_tokens": 0}})
    };
    let chat = |tier: Option<&str>| {
        json!({"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}], "service_tier": tier,
            "usage": {"prompt_tokens": 1_000_000 / 4, "completion_tokens": 0}})
    };
    let messages = |_: Option<&str>| {
        anthropic(
            &json!({"input_tokens": 1_000_000 / 4, "output_tokens": 0, "service_tier": "priority"}),
        )
    };
    let mut lines = Vec::new();
    let mut line = |kind, model, asked: Option<&str>, given: Option<&str>, body: Value| {
        let usage = usage_at(kind, model, DAY, asked, &body);
        let cost = if usage.unpriced_requests == 0 {
            usage.cost_usd.to_string()
        } else {
            "unknown".to_owned()
        };
        let words = [asked, given].map(|it| it.unwrap_or("-"));
        lines.push(format!("{model} {} {}: {cost}", words[0], words[1]));
    };
    let given = [None, Some("default"), Some("priority"), Some("flex"), Some("on_demand")];
    for asked in [None, Some("standard"), Some("fast"), Some("flex"), Some("turbo")] {
        for given in given {
            line(ProviderKind::OpenAiResponses, "gpt-6.2-sol", asked, given, responses(given));
        }
        line(
            ProviderKind::OpenAiCompatible,
            "openai/gpt-oss-120b",
            asked,
            given[4],
            chat(given[4]),
        );
        line(ProviderKind::Anthropic, "claude-opus-5-5", asked, None, messages(None));
        line(ProviderKind::Anthropic, "claude-sonnet-5-5", asked, None, messages(None));
    }
    insta::assert_snapshot!(lines.join("\n"), @r"
    gpt-6.2-sol - -: 0.5
    gpt-6.2-sol - default: 0.5
    gpt-6.2-sol - priority: 1
    gpt-6.2-sol - flex: 0.25
    gpt-6.2-sol - on_demand: 0.5
    openai/gpt-oss-120b - on_demand: 0.0375
    claude-opus-5-5 - -: 1
    claude-sonnet-5-5 - -: 0.5
    gpt-6.2-sol standard -: 0.5
    gpt-6.2-sol standard default: 0.5
    gpt-6.2-sol standard priority: 1
    gpt-6.2-sol standard flex: 0.25
    gpt-6.2-sol standard on_demand: 0.5
    openai/gpt-oss-120b standard on_demand: 0.0375
    claude-opus-5-5 standard -: 1
    claude-sonnet-5-5 standard -: 0.5
    gpt-6.2-sol fast -: 1
    gpt-6.2-sol fast default: 0.5
    gpt-6.2-sol fast priority: 1
    gpt-6.2-sol fast flex: 0.25
    gpt-6.2-sol fast on_demand: 1
    openai/gpt-oss-120b fast on_demand: unknown
    claude-opus-5-5 fast -: 2
    claude-sonnet-5-5 fast -: unknown
    gpt-6.2-sol flex -: 0.25
    gpt-6.2-sol flex default: 0.5
    gpt-6.2-sol flex priority: 1
    gpt-6.2-sol flex flex: 0.25
    gpt-6.2-sol flex on_demand: 0.25
    openai/gpt-oss-120b flex on_demand: unknown
    claude-opus-5-5 flex -: unknown
    claude-sonnet-5-5 flex -: unknown
    gpt-6.2-sol turbo -: unknown
    gpt-6.2-sol turbo default: 0.5
    gpt-6.2-sol turbo priority: 1
    gpt-6.2-sol turbo flex: 0.25
    gpt-6.2-sol turbo on_demand: unknown
    openai/gpt-oss-120b turbo on_demand: unknown
    claude-opus-5-5 turbo -: unknown
    claude-sonnet-5-5 turbo -: unknown
    ");
}
