use std::fmt::Write as _;
use std::time::Duration;

use insta::assert_snapshot;
use serde_json::json;

use super::*;
use crate::schema::{Kind, PROVIDER_KINDS};
use crate::{Execution, Findings, McpTransport, ProviderKind};

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
        let ArtifactPatterns { include, exclude } = &config.artifacts;
        say("artifacts", format!("{include:?}"));
        say("no artifacts", format!("{exclude:?}"));
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
                None if name == "run.agent.mcp.NAME.type" => {
                    format!("_version = 1\n{name} = '{word}'\nrun.agent.mcp.NAME.url = 'http://x'")
                }
                None if name == "run.hooks.type" => {
                    let action = if *word == "http" { "url = 'https://x'" } else { "script = 'x'" };
                    format!(
                        "_version = 1\n[[run.hooks]]\nevent = 'run_start'\ntype = '{word}'\n{action}"
                    )
                }
                None if name == "run.hooks.on_error" => format!(
                    "_version = 1\n[[run.hooks]]\nevent = 'run_start'\nscript = 'x'\non_error = '{word}'"
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
fn unknown_keys_are_warnings_that_name_what_was_meant() {
    let text = r#"_version = 1
[worfklow]
graph = "a.fabro"
[inptus]
a = 1
[run]
gaol = "x"
model.nmae = "m"
colour = "red"
[run.sandbox]
picture = "x"
[[run.prepare.steps]]
script = "a"
shell = "zsh"
"#;
    assert_snapshot!(check(text), @r#"
    prepare [PrepareStep { script: "a" }]
    run.toml:2:2: warning: `worfklow` is not a setting (did you mean `workflow`?)
    run.toml:4:2: warning: `inptus` is not a setting (did you mean `run.inputs`?)
    run.toml:7:1: warning: `run.gaol` is not a setting (did you mean `run.goal`?)
    run.toml:8:7: warning: `run.model.nmae` is not a setting (did you mean `run.model.name`?)
    run.toml:9:1: warning: `run.colour` is not a setting (remove it, or correct its name)
    run.toml:11:1: warning: `run.sandbox.picture` is not a setting (remove it, or correct its name)
    run.toml:14:1: warning: `run.prepare.steps.shell` is not a setting (remove it, or correct its name)
    "#);
}

#[test]
fn a_sandbox_that_there_is_not_is_an_error() {
    let text = |provider: &str| format!("_version = 1\n[run.sandbox]\nprovider = \"{provider}\"\n");
    for provider in ["local", "bwrap", "docker", "ssh"] {
        assert_eq!(check(&text(provider)), "");
    }
    assert_snapshot!(check(&text("podman")), @"run.toml:3:12: `run.sandbox.provider` is `podman`, a sandbox that this version does not have: scripts would run on this machine (use `docker`, `bwrap`, `ssh`, `local` if they may run there, or start fabro inside such a sandbox)");
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
    assert_snapshot!(check("_version = 1\n[run\ngoal = 'x'"), @"run.toml:2:5: unclosed table, expected `]` (close the name of the table: `[run]`)");
    assert_snapshot!(check("_version = 1\n[run]\ngoal = 'x\n"), @"run.toml:3:10: invalid literal string, expected `'` (close the text with `'` on its line; text of several lines stands in `'''`)");
    assert_snapshot!(check("_version = 1\n[run]\ngoal = 'a'\ngoal = 'b'\n"), @"run.toml:4:1: duplicate key (keep one of the lines with this name)");
    assert_snapshot!(check("_version = 1\0"), @r#"run.toml:1:12: string values must be quoted, expected literal string (write text in quotes: `"text"`; entries of lists and tables are separated by commas)"#);
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

#[test]
fn an_older_run_file_of_upstream_means_the_same() {
    assert_snapshot!(check(r#"version = 1
goal = "Fix it"
graph = "old.dot"
[vars]
team = "core"
[llm]
model = "claude-sonnet-4-5"
provider = "anthropic"
[setup]
commands = ["echo one", "echo two"]
[sandbox]
provider = "local"
env = { TOKEN = "{{ env.TOKEN }}" }
[assets]
include = ["out/**"]
"#), @r#"
graph Some("old.dot")
goal Some("Fix it")
inputs {"team":"core"}
name Some("claude-sonnet-4-5")
provider Some("anthropic")
env {"TOKEN": "{{ env.TOKEN }}"}
prepare [PrepareStep { script: "echo one" }, PrepareStep { script: "echo two" }]
artifacts ["out/**"]
"#);
    let (config, warnings) = parse(
        "_version = 1\n[[run.prepare.steps]]\ncommand = ['echo', \"it's\"]\n[run]\ngoal = { file = 'g.md' }\n\
         [run.execution]\nmode = 'dry_run'\napproval = 'auto'\n",
    )
    .unwrap();
    assert_eq!(warnings, []);
    assert_eq!(config.prepare[0].script, r"'echo' 'it'\''s'");
    assert_eq!(config.goal.as_deref(), Some("@g.md"));
    let execution = Execution { dry_run: Some(true), auto_approve: Some(true) };
    assert_eq!(config.execution, execution);
}

#[test]
fn our_own_name_counts_before_another_one() {
    let text = "_version = 1\ngoal = 'old'\n[vars]\na = 1\nb = 1\n[run]\ngoal = 'new'\n[run.inputs]\nb = 2\n";
    let (config, _) = parse(text).unwrap();
    assert_eq!(config.goal.as_deref(), Some("new"));
    assert_eq!(Value::Object(config.inputs), json!({"a": 1, "b": 2}));
}

#[test]
fn mcp_servers_are_read_under_every_name() {
    for table in ["mcps", "run.mcps", "run.agent.mcps", "mcp_servers"] {
        let text = format!(
            "_version = 1\n[{table}.fs]\ntype = 'stdio'\ncommand = ['npx', '-y', 'fs']\n\
             startup_timeout_secs = 10\n[{table}.web]\ntype = 'http'\nurl = 'http://h/mcp'\n\
             [{table}.sh]\nscript = 'exec fs'\n"
        );
        let (config, warnings) = parse(&text).unwrap_or_else(|errors| panic!("{errors:?}"));
        assert_eq!(warnings, []);
        let command = |name: &str| match &config.agent.mcp[name].transport {
            McpTransport::Command { command, args, .. } => format!("{command} {}", args.join(" ")),
            McpTransport::Http { url, .. } => url.clone(),
        };
        assert_eq!(command("fs"), "npx -y fs");
        assert_eq!(command("web"), "http://h/mcp");
        assert_eq!(command("sh"), "sh -c exec fs");
        assert_eq!(config.agent.mcp["fs"].startup_timeout, Some(Duration::from_secs(10)));
    }
}

#[test]
fn what_is_lost_of_upstream_is_named() {
    assert_snapshot!(check(r#"_version = 1
[workflow]
name = "Ship"
metadata = { owner = "me" }
[[hooks]]
name = "tell"
event = "sandbox_cleanup"
command = "./tell.sh"
[[run.hooks]]
event = "run_complete"
command = "./tell.sh"
sandbox = true
[run.pull_request]
enabled = true
[run.checkpoint]
exclude_globs = ["node_modules/**"]
[run.notifications.ops]
provider = "slack"
[run.interviews]
provider = "slack"
[run.scm]
provider = "github"
[run.git.author]
name = "bot"
[run.integrations.github]
permissions = { contents = "write" }
[run.prepare]
timeout = "5m"
steps = [{ script = "true", env = { A = "1" } }]
[run.model.controls]
reasoning_effort = "high"
[run.sandbox]
provider = "local"
preserve = true
local = { worktree_mode = "always" }
docker = { image = "x" }
[run.metadata]
a = "b"
[server.web]
enabled = true
"#), @r#"
    prepare [PrepareStep { script: "true" }]
    run.toml:5:1: warning: the hook `tell` of `hooks` has no effect: nothing happens at `sandbox_cleanup` (use `run_complete` and `run_failed`)
    run.toml:12:1: warning: `run.hooks.sandbox` has no effect: hooks run on this machine, in the working directory, not in a sandbox (set it to false if they may)
    run.toml:13:6: warning: `run.pull_request` has no effect: no pull request is opened (open one in a command stage before the exit, with `gh pr create`)
    run.toml:15:6: warning: `run.checkpoint` has no effect: files are committed after each stage only in a worktree (set `run.git.worktree = true`, and `run.git.exclude` for files that are not committed)
    run.toml:17:6: warning: `run.notifications` has no effect: no message is sent (do it in a command stage before the exit)
    run.toml:19:6: warning: `run.interviews` has no effect: questions are asked in the terminal only (answer them there, or from another process)
    run.toml:21:6: warning: `run.scm` has no effect: nothing is cloned from or pushed to a repository (clone before the run, and push in a command stage)
    run.toml:25:6: warning: `run.integrations` has no effect: stages get no token of that service (set an environment variable such as GITHUB_TOKEN)
    run.toml:28:1: warning: `run.prepare.timeout` has no effect: the steps have no timeout (write `timeout 5m` before the command of a step)
    run.toml:29:29: warning: `run.prepare.steps.env` has no effect: the step runs without these variables (set them in `run.sandbox.env`, or in its script)
    run.toml:30:12: warning: `run.model.controls` has no effect: requests have the defaults of the model (set `reasoning_effort` and `speed` on nodes, or in the model stylesheet)
    run.toml:35:11: warning: `run.sandbox.local.worktree_mode` has no effect: stages change the files of the working directory itself, not of a worktree (set `run.git.worktree = true`)
    "#);
}

#[test]
fn providers_and_models_of_upstream_are_those_of_ours() {
    let (config, warnings) = parse(
        r#"_version = 1
[llm.providers.proxy]
adapter = "openai_compatible"
base_url = "http://127.0.0.1:8401/v1"
credentials = ["vault:proxy", "env:PROXY_KEY"]
[llm.providers.old]
enabled = false
[llm.providers.openai]
adapter = "openai"
credentials = ["vault:openai"]
[llm.models."fast-1.5"]
provider = "proxy"
api_id = "vendor/fast-1.5-2026"
display_name = "Fast"
limits = { context_window = 128000, max_output = 8192 }
costs = { input_cost_per_mtok = 0.5, output_cost_per_mtok = 2 }
features = { tools = true }
[models."vendor/fast-1.5-2026"]
input_cost = 1.0
"#,
    )
    .unwrap();
    let provider = &config.providers["proxy"];
    assert_eq!(provider.kind, ProviderKind::OpenAiCompatible);
    assert_eq!(provider.base_url.as_deref(), Some("http://127.0.0.1:8401/v1"));
    assert_eq!(provider.api_key_env.as_deref(), Some("PROXY_KEY"));
    assert_eq!(config.providers.keys().collect::<Vec<_>>(), ["openai", "proxy"]);
    let model = &config.models["vendor/fast-1.5-2026"];
    assert_eq!(
        (model.provider.as_deref(), &*model.aliases),
        (Some("proxy"), &["fast-1.5".to_owned()][..])
    );
    assert_eq!((model.context_window, model.max_output_tokens), (Some(128_000), Some(8192)));
    assert_eq!(
        (model.cost.input_cost, model.cost.output_cost),
        (Some(1.0), Some(2.0)),
        "ours wins"
    );
    let warnings: Vec<_> = warnings.iter().map(|warning| &*warning.message).collect();
    assert_snapshot!(warnings.join("\n"), @r"
    `llm.providers.openai.credentials` names no environment variable, so the usual one is read
    `llm.models.fast-1.5.features` has no effect
    ");
    assert_snapshot!(check(r#"_version = 1
[llm.providers.proxy]
adapter = "anthropc"
[llm.models.m]
limits = { context_window = "big" }
"#), @r"
    run.toml:3:11: `llm.providers.proxy.adapter` is `anthropc` (did you mean `anthropic`?)
    run.toml:5:29: `llm.models.m.limits.context_window` is a string, but an integer is expected (make it an integer)
    ");
}

#[test]
fn what_is_off_is_not_lost() {
    assert_snapshot!(check(r#"_version = 1
hooks = []
[run.pull_request]
enabled = false
[run.sandbox]
devcontainer = false
local = { worktree_mode = "never" }
[run]
working_dir = "."
"#), @"");
}

#[test]
fn what_a_run_must_not_be_without_is_an_error() {
    assert_snapshot!(check(r#"_version = 1
[run]
working_dir = "../other"
[run.environment]
id = "ci"
[run.sandbox]
provider = "daytona"
devcontainer = true
[[run.hooks]]
id = "guard"
event = "pre_tool_use"
type = "prompt"
prompt = "Is this safe?"
"#), @r"
    run.toml:3:1: `run.working_dir` is not supported: scripts would run in the directory where the run is started (remove it, and start the run in that directory)
    run.toml:4:6: `run.environment` is not supported: scripts would run on this machine, without the isolation it asks for (choose a sandbox by `--sandbox`, or set `run.sandbox`; environments with the providers `local` and `docker` in the same file are read)
    run.toml:7:12: `run.sandbox.provider` is `daytona`, a sandbox that this version does not have: scripts would run on this machine (use `docker`, `bwrap`, `ssh`, `local` if they may run there, or start fabro inside such a sandbox)
    run.toml:8:1: `run.sandbox.devcontainer` is not supported: scripts would run on this machine, not in the container (choose a sandbox by `--sandbox`, or start fabro in the container and remove this setting)
    run.toml:12:8: `run.hooks.type` is `prompt` (use `command` or `http`)
    run.toml:13:1: `run.hooks.prompt` is not supported: a hook runs a command or sends a request (ask the model in a script or in a stage)
    ");
}

#[test]
fn variables_that_stay_text_are_named() {
    assert_snapshot!(check(r#"_version = 1
[run]
goal = "Fix {{ inputs.a }}, {{env.B}}"
[run.sandbox.env]
A = "{{ env.A }}"
[[run.prepare.steps]]
script = "echo {{ env.A }}"
"#), @r#"
goal Some("Fix {{ inputs.a }}, {{env.B}}")
env {"A": "{{ env.A }}"}
prepare [PrepareStep { script: "echo {{ env.A }}" }]
run.toml:3:8: warning: `run.goal` has `{{ env.B }}` in it, which stays as it is (write the value, or `$B` in a script; environment variables are read in `run.sandbox.env` and headers)
run.toml:7:10: warning: `run.prepare.steps.script` has `{{ env.A }}` in it, which stays as it is (write the value, or `$A` in a script; environment variables are read in `run.sandbox.env` and headers)
"#);
}
