use std::fmt::Write as _;
use std::time::Duration;

use insta::assert_snapshot;
use serde_json::json;

use super::*;
use crate::schema::{Kind, PROVIDER_KINDS};
use crate::{Findings, ProviderKind};

/// What the file sets, as far as it sets anything, and what was found in it.
#[track_caller]
fn check(text: &str) -> String {
    let (config, list) = match parse(text) {
        Ok((config, list)) => (Some(config), list),
        Err(list) => (None, list),
    };
    let mut out = String::new();
    if let Some(config) = config {
        let json = Value::Object(config.inputs.clone());
        let mut say = |name: &str, text: String| {
            if !["None", "[]", "{}"].contains(&text.as_str()) {
                writeln!(out, "{name} {text}").unwrap();
            }
        };
        say("graph", format!("{:?}", config.graph));
        say("goal", format!("{:?}", config.goal));
        say("inputs", json.to_string());
        say("name", format!("{:?}", config.model.name));
        say("provider", format!("{:?}", config.model.provider));
        say("fallbacks", format!("{:?}", config.model.fallbacks));
        say("script", format!("{:?}", config.model.script));
        say("env", format!("{:?}", config.env));
        say("prepare", format!("{:?}", config.prepare));
        say("permissions", format!("{:?}", config.agent.permissions));
        say("on_unavailable", format!("{:?}", config.on_unavailable));
        say("retry_unavailable", format!("{:?}", config.retry_unavailable));
        say("artifacts", format!("{:?}", config.artifacts));
    }
    out + &Findings { path: "run.toml".into(), text: text.into(), list }.to_string()
}

const FULL: &str = r#"
_version = 1
[workflow]
graph = "flow.fabro"
[run]
goal = "@goal.md"
[run.inputs]
repo = "demo"
depth = 0x10
ratio = 0.5
list = [1, "two", { three = true }]
day = 2026-11-21
[run.model]
name = "claude-sonnet-4-5"
provider = "anthropic"
fallbacks = ["openai", "groq/llama"]
script = "model.json"
[run.sandbox.env]
RUST_LOG = "info"
EMPTY = ""
[[run.prepare.steps]]
script = "cargo fetch"
[[run.prepare.steps]]
script = "npm ci"
[run.agent]
permissions = "read-write"
[run.artifacts]
include = ["test-results/**"]
"#;

#[test]
fn every_setting_is_read() {
    assert_snapshot!(check(FULL), @r#"
    graph Some("flow.fabro")
    goal Some("@goal.md")
    inputs {"repo":"demo","depth":16,"ratio":0.5,"list":[1,"two",{"three":true}],"day":"2026-11-21"}
    name Some("claude-sonnet-4-5")
    provider Some("anthropic")
    fallbacks ["openai", "groq/llama"]
    script Some("model.json")
    env {"EMPTY": "", "RUST_LOG": "info"}
    prepare [PrepareStep { script: "cargo fetch" }, PrepareStep { script: "npm ci" }]
    permissions Some(ReadWrite)
    artifacts ["test-results/**"]
    "#);
    assert_eq!(parse("_version = 1"), Ok((RunConfig::default(), Vec::new())));
}

#[test]
fn the_reference_names_every_setting() {
    let reference = include_str!("../../reference.md");
    for (name, _) in RUN_FILE.concat() {
        assert!(reference.contains(&format!("`{name}`")), "reference.md lacks `{name}`");
    }
}

#[test]
fn the_words_of_the_schema_are_those_of_the_types() {
    for word in PROVIDER_KINDS {
        let text = format!("_version = 1\n[providers.p]\nkind = '{word}'\nbase_url = 'http://x'");
        assert_eq!(parse(&text).unwrap().0.providers["p"].kind.as_str(), *word);
    }
    // A new kind does not compile here: add it to the schema too.
    let number = |kind| match kind {
        ProviderKind::Anthropic => 0,
        ProviderKind::OpenAi => 1,
        ProviderKind::OpenAiResponses => 2,
        ProviderKind::Gemini => 3,
        ProviderKind::OpenAiCompatible => 4,
    };
    let numbers = PROVIDER_KINDS.iter().map(|word| number(ProviderKind::parse(word).unwrap()));
    assert_eq!(numbers.collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    for (name, kind) in RUN_FILE.concat() {
        let Kind::Word(words) = kind else { continue };
        if name.starts_with("providers.") {
            continue;
        }
        for word in words {
            let text = match name.strip_prefix("run.agent.tools.") {
                Some(key) => format!(
                    "_version = 1\n[[run.agent.tools]]\nname = 't'\ndescription = 'd'\n\
                     url = 'http://x'\n{key} = '{word}'"
                ),
                None => format!("_version = 1\n{name} = '{word}'"),
            };
            parse(&text).unwrap_or_else(|errors| panic!("{name} {word}: {errors:?}"));
        }
    }
}

#[test]
fn a_quoted_key_is_not_a_path() {
    assert_snapshot!(check("_version = 1\n\"run.goal\" = 'x'\n[run.model]\n\"\" = 1"), @r"
    run.toml:2:1: warning: `run.goal` is not a setting (remove it, or correct its name)
    run.toml:4:1: warning: `run.model.` is not a setting (remove it, or correct its name)
    ");
}

#[test]
fn settings_of_later_versions_are_named() {
    let (config, _) = parse(FULL).unwrap();
    assert_snapshot!(unsupported(&config).unwrap(), @"`run.artifacts.include` has no effect yet: this version lacks keeping the files a run produced");
    assert_eq!(unsupported(&RunConfig::default()), None);
}

#[test]
fn unknown_keys_are_warnings_that_name_what_was_meant() {
    let text = r#"_version = 1
[worfklow]
graph = "a.fabro"
[inputs]
a = 1
[run]
gaol = "x"
model.nmae = "m"
colour = "red"
[run.sandbox]
image = "x"
[[run.prepare.steps]]
script = "a"
shell = "zsh"
"#;
    assert_snapshot!(check(text), @r#"
    prepare [PrepareStep { script: "a" }]
    run.toml:2:2: warning: `worfklow` is not a setting (did you mean `workflow`?)
    run.toml:4:2: warning: `inputs` is not a setting (did you mean `run.inputs`?)
    run.toml:7:1: warning: `run.gaol` is not a setting (did you mean `run.goal`?)
    run.toml:8:7: warning: `run.model.nmae` is not a setting (did you mean `run.model.name`?)
    run.toml:9:1: warning: `run.colour` is not a setting (remove it, or correct its name)
    run.toml:11:1: warning: `run.sandbox.image` is not a setting (remove it, or correct its name)
    run.toml:14:1: warning: `run.prepare.steps.shell` is not a setting (remove it, or correct its name)
    "#);
}

#[test]
fn a_sandbox_that_there_is_not_is_an_error() {
    let text = |provider: &str| format!("_version = 1\n[run.sandbox]\nprovider = \"{provider}\"\n");
    assert_snapshot!(check(&text("local")), @"");
    assert_snapshot!(check(&text("docker")), @"run.toml:3:12: `run.sandbox.provider` is `docker` (use `local`)");
}

#[test]
fn wrong_values_are_errors_all_at_once() {
    let text = r#"_version = 1
workflow = "a.fabro"
[run]
goal = 3
inputs = { big = 99999999999999999999, far = inf }
model.name = "  "
model.fallbacks = "openai"
sandbox.env = { DEBUG = true, "A=B" = "c" }
prepare.steps = [{}, "x", { script = "" }]
agent.permissions = "write"
artifacts.include = ["ok/**", "../up/*"]
"#;
    assert_snapshot!(check(text), @r"
    run.toml:2:12: `workflow` is a string, but a table is expected (make it a table)
    run.toml:4:8: `run.goal` is an integer, but a string is expected (write it in quotes)
    run.toml:5:18: `run.inputs.big` does not fit into 64 bits (write it in quotes)
    run.toml:5:46: `run.inputs.far` is not a finite number (write it in quotes)
    run.toml:6:14: `run.model.name` is empty (give it a value, or leave it out)
    run.toml:7:19: `run.model.fallbacks` is a string, but an array is expected (make it an array)
    run.toml:8:25: `run.sandbox.env.DEBUG` is a boolean, but a string is expected (write it in quotes)
    run.toml:8:39: `run.sandbox.env.A=B` is not the name of an environment variable (correct the name)
    run.toml:9:18: a step of `run.prepare.steps` has no `script` (give it one)
    run.toml:9:22: `run.prepare.steps` is a string, but a table is expected (make it a table)
    run.toml:9:38: `run.prepare.steps.script` is empty (give it a value, or leave it out)
    run.toml:10:21: `run.agent.permissions` is `write` (use `read-only`, `read-write` or `full`)
    run.toml:11:31: `run.artifacts.include` names `../up/*`, outside the working directory (write patterns relative to the working directory)
    ");
}

#[test]
fn only_version_one_is_read() {
    assert_snapshot!(check("[run]\ngoal = 'x'"), @r#"
    goal Some("x")
    run.toml:1:1: warning: `_version` is missing: the file is read as version 1 (put `_version = 1` on the first line)
    "#);
    assert_snapshot!(check("_version = 2\n[run]\ngoal = 3"), @"run.toml:1:12: `_version` is 2, and this fabro reads version 1 (use a newer fabro for this file)");
    assert_snapshot!(check("_version = '1'"), @"run.toml:1:12: `_version` is not a version number (write `_version = 1`)");
    assert_snapshot!(check("_version = 99999999999999999999"), @"run.toml:1:12: `_version` is not a version number (write `_version = 1`)");
}

#[test]
fn text_that_is_no_toml_is_pointed_at() {
    assert_snapshot!(check("_version = 1\n[run\ngoal = 'x'"), @"run.toml:2:5: unclosed table, expected `]`");
    assert_snapshot!(check("_version = 1\n[run]\ngoal = 'x\n"), @"run.toml:3:10: invalid literal string, expected `'`");
    assert_snapshot!(check("_version = 1\n[run]\ngoal = 'a'\ngoal = 'b'\n"), @"run.toml:4:1: duplicate key");
    assert_snapshot!(check("_version = 1\0"), @"run.toml:1:12: string values must be quoted, expected literal string");
}

#[test]
fn a_byte_order_mark_moves_no_span() {
    assert_snapshot!(check("\u{feff}_version = 1\n[run]\ngoal = 3"), @"run.toml:3:8: `run.goal` is an integer, but a string is expected (write it in quotes)");
}

#[test]
fn hostile_files_end_in_findings() {
    let deep = |depth| {
        format!("_version = 1\n[run.inputs]\na = {}{}", "[".repeat(depth), "]".repeat(depth))
    };
    assert!(parse(&deep(63)).is_ok());
    assert!(parse(&deep(100_000)).is_err());
    assert!(parse(&format!("a{} = 1", ".a".repeat(100_000))).is_err());
    assert!(parse(&format!("[a{}]", ".a".repeat(100_000))).is_err());
    assert!(parse(&"{".repeat(100_000)).is_err());
    assert!(parse(&"[[a]]\n".repeat(100_000)).is_ok());
    assert!(parse(&"\"".repeat(100_000)).is_err());
    assert!(parse(&format!("{} = 1", "k".repeat(1 << 20))).is_ok());
    let within_toml_but_not_json = format!("_version = 1\n[run]\ninputs.a{} = 1", ".a".repeat(70));
    assert!(parse(&within_toml_but_not_json).is_err());
}

#[test]
fn numbers_are_read_in_every_way_toml_writes_them() {
    let text = "_version = 1\n[run.inputs]\na = 1_000.5\nb = 0x1_0\n[providers.openai]\n\
        request_timeout = 0x1_0\nstream_timeout = 1_0.5\n[models.m]\ninput_cost = 1_000.5\n";
    let (config, _) = parse(text).unwrap();
    assert_eq!((&config.inputs["a"], &config.inputs["b"]), (&json!(1000.5), &json!(16)));
    let openai = &config.providers["openai"];
    assert_eq!(openai.request_timeout, Some(Duration::from_secs(16)));
    assert_eq!(openai.stream_timeout, Some(Duration::from_millis(10_500)));
    assert_eq!(config.models["m"].cost.input_cost, Some(1000.5));
}

#[test]
fn names_of_secrets_and_names_about_them_are_told_apart() {
    let refused = |name: &str| {
        let env = format!("_version = 1\n[run.agent.mcp.a]\ncommand = \"x\"\nenv.{name} = \"y\"\n");
        parse(&env).is_err()
    };
    for name in
        ["GITHUB_TOKEN", "clientSecret", "X-Api-Key", "X-Authentication", "DB_PASSWORD", "cookie"]
    {
        assert!(refused(name), "{name}");
    }
    for name in ["SSH_KEY_PATH", "X-Max-Tokens", "GITHUB_TOKEN_FILE", "PWD", "RUST_LOG", "Keyboard"]
    {
        assert!(!refused(name), "{name}");
    }
}
