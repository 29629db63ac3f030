use std::collections::BTreeSet;

use fabro_types::{ChatTools, ModelInterface, SpecialPrices, ThinkingMode, TokenPrices};

use super::*;

/// The time at which prices are asked for: 2026-11-23.
const NOW_MS: i64 = 1_795_392_000_000;

/// The price of a million input and a million output tokens, or how much of the input was cached.
#[track_caller]
fn check(model: &str, cached_tokens: u64, expect: Option<f64>) {
    let usage = Usage {
        model: Some(model.to_owned()),
        input_tokens: 100_000,
        output_tokens: 100_000,
        cached_tokens,
        ..Usage::default()
    };
    let total = Catalog::builtin().costs(&usage, NOW_MS).map(|costs| costs.total() * 10.0);
    assert_eq!(total.map(|it| (it * 1e6).round() / 1e6), expect, "{model}");
}

#[test]
fn a_model_is_known_by_its_names_with_or_without_a_date() {
    check("claude-opus-4-1-20250805", 0, Some(90.0));
    check("claude-opus-4-1@20250805", 0, Some(90.0));
    check("claude-opus-4-7", 0, Some(30.0));
    check("claude-opus-4-20250514", 0, Some(90.0));
    check("gpt-5-mini", 0, Some(2.25));
    check("gpt-5-2026-01-01", 0, Some(11.25));
    check("gpt-5.2-2025-12-11", 0, Some(15.75));
    check("gpt-5.6", 0, Some(24.0));
    check("openai/gpt-5.2-codex", 0, Some(15.75));
    check("google/gemini-3.8-flash", 0, Some(4.5));
    check("openai/gpt-oss-120b", 0, Some(0.75));
    check("claude-sonnet-4-5", 100_000, Some(15.3));
}

#[test]
fn a_relative_has_no_price() {
    for name in [
        "gpt-5.9",
        "gpt-5-ultra",
        "gpt-5.4-pro-max",
        "gpt-5.2-codex-spark",
        "gpt-5-2026-13-41",
        "gpt-5-20",
        "claude-opus-4-9",
        "claude-opus-5-5-fast",
        "gpt-5000",
        "my-own-model",
        "gpt-oss-20b",
        "together/gpt-oss-120b",
        "somebody/gpt-5",
        "anthropic/gpt-5",
    ] {
        check(name, 0, None);
    }
    assert_eq!(Catalog::builtin().costs(&Usage::default(), NOW_MS), None);
    let relative = Catalog::builtin().find("gpt-5.4-pro-max").cloned().unwrap();
    assert_eq!(relative.context_window, Some(1_050_000));
}

#[test]
fn the_file_is_consistent() {
    let json: serde_json::Value = serde_json::from_str(include_str!("../catalog.json")).unwrap();
    let models = &BUILTIN.models;
    for (model, json) in models.iter().zip(json["models"].as_array().unwrap()) {
        let known = serde_json::to_value(model).unwrap();
        let unknown = json.as_object().unwrap().keys().find(|key| known.get(*key).is_none());
        assert_eq!(unknown, None, "{}", model.name);
    }
    let names: BTreeSet<_> = models.iter().flat_map(ModelInfo::names).collect();
    let count: usize = models.iter().map(|model| model.names().count()).sum();
    assert!(count > 140 && names.len() == count, "a name is taken twice");
    for model in models {
        check_model(model);
    }
}

fn check_model(model: &ModelInfo) {
    let name = &model.name;
    let longest = model.max_output_tokens;
    assert!(longest.is_none() || model.context_window >= longest, "{name}");
    let base = SpecialPrices { prices: model.cost, ..SpecialPrices::default() };
    for SpecialPrices { from, above, except_hours, prices } in
        [&base].into_iter().chain(&model.prices)
    {
        assert_eq!(prices.input_cost.is_some(), prices.output_cost.is_some(), "{name}");
        assert!(prices.cached_cost <= prices.input_cost, "{name}");
        let write = prices.cache_write_cost;
        assert!(write.is_none() || write >= prices.input_cost, "{name}");
        let long = prices.long_cache_write_cost;
        assert!(long.is_none() || long >= write, "{name}");
        let is_usual = from.is_none() && above.is_none() && except_hours.is_empty();
        assert!(is_usual || *prices != TokenPrices::default(), "{name}");
    }
    let efforts = model.efforts.as_deref().unwrap_or_default();
    assert!(efforts.is_sorted(), "{name}");
    let default = model.default_effort;
    assert!(default.is_none_or(|default| efforts.contains(&default)), "{name}");
    match model.thinking {
        Some(ThinkingMode::Never) => assert!(efforts.is_empty(), "{name}"),
        Some(ThinkingMode::Effort | ThinkingMode::Level) => assert!(!efforts.is_empty(), "{name}"),
        _ => {}
    }
    if model.provider.as_deref() == Some("anthropic") {
        assert_eq!(model.interface, Some(ModelInterface::AnthropicMessages), "{name}");
        assert!(model.thinking.is_some() && model.cost.long_cache_write_cost.is_some(), "{name}");
    }
    if model.provider.as_deref() == Some("openai") {
        assert_eq!(model.interface, Some(ModelInterface::Responses), "{name}");
        assert!(model.chat_tools.is_some() && model.thinking.is_some(), "{name}");
        let is_pro = name.contains("-pro") || name.contains("codex");
        assert!(!is_pro || model.chat_tools == Some(ChatTools::Never), "{name}");
    }
}

#[test]
fn users_override_properties() {
    let mut catalog = Catalog::builtin();
    let count = catalog.iter().count();
    let mine = ModelInfo {
        aliases: vec!["llama".to_owned()],
        context_window: Some(8192),
        ..ModelInfo::new("local-llama")
    };
    let price =
        |input_cost, output_cost| TokenPrices { input_cost, output_cost, ..Default::default() };
    let cheaper = ModelInfo { cost: price(Some(1.0), None), ..ModelInfo::new("claude-sonnet-4-5") };
    let dated = ModelInfo { cost: price(None, Some(7.0)), ..ModelInfo::new("gpt-5-2030-01-01") };
    let relative = ModelInfo { tools: Some(true), ..ModelInfo::new("gpt-5-own") };
    catalog.extend([mine, cheaper, dated, relative]);
    assert_eq!(catalog.iter().count(), count + 3);
    assert_eq!(catalog.resolve("llama"), "local-llama");
    assert_eq!(catalog.resolve("sonnet"), "claude-sonnet-5-5");
    assert_eq!(catalog.resolve("other"), "other");
    let sonnet = catalog.find("claude-sonnet-4-5").unwrap();
    assert_eq!((sonnet.cost.input_cost, sonnet.cost.output_cost), (Some(1.0), Some(15.0)));
    let gpt = catalog.find("gpt-5-2030-01-01").unwrap();
    assert_eq!((gpt.context_window, gpt.cost.output_cost), (Some(400_000), Some(7.0)));
    assert_eq!((gpt.provider.as_deref(), gpt.cost.input_cost), (Some("openai"), Some(1.25)));
    let own = catalog.find("gpt-5-own").unwrap();
    assert_eq!((own.context_window, own.has_price()), (Some(400_000), false));
}

#[test]
fn a_name_may_have_a_slash_behind_its_provider() {
    let mut catalog = Catalog::builtin();
    let windows = |catalog: &Catalog, names: [&str; 4]| {
        names.map(|name| catalog.find(name).and_then(|model| model.context_window))
    };
    let names = [
        "openai/gpt-oss-120b",
        "groq/openai/gpt-oss-120b",
        "openrouter/vendor/own",
        "openrouter/anthropic/claude-haiku-4-5-20251001",
    ];
    let own =
        |name: &str, window| ModelInfo { context_window: Some(window), ..ModelInfo::new(name) };
    catalog.extend([own("openai/gpt-oss-120b", 7), own("vendor/own", 8)]);
    assert_eq!(windows(&catalog, names), [Some(7), Some(7), Some(8), Some(200_000)]);
}

#[cfg(feature = "providers")]
#[test]
fn own_prices_hold_whichever_model_answers() {
    let mut catalog = Catalog::builtin();
    let served = |catalog: &Catalog, asked: &str, answered: &str| {
        catalog.served_as(asked, answered).map(|model| model.name.clone())
    };
    let flash = Some("gemini-3.6-flash".to_owned());
    assert_eq!(served(&catalog, "gemini-3.5-flash", "gemini-3.6-flash"), flash);
    assert_eq!(served(&catalog, "gpt-5.6", "gpt-5.6-sol"), None);
    assert_eq!(served(&catalog, "gemini-3.5-flash", "claude-opus-5"), None);
    let cost = TokenPrices { input_cost: Some(1.0), ..Default::default() };
    catalog.extend([ModelInfo { cost, ..ModelInfo::new("gemini-3.5-flash") }]);
    assert_eq!(served(&catalog, "gemini-3.5-flash", "gemini-3.6-flash"), None);
}
