use std::fs;
use std::path::Path;

use insta::assert_snapshot;

use super::*;

const FULL: &str = r#"
_version = 1
[providers.anthropic]
base_url = "http://127.0.0.1:8401"
api_key_env = "MY_KEY"
headers = { "X-Team" = "a", Authorization = "Bearer $TEAM_TOKEN" }
request_timeout = "10m"
stream_timeout = 90
[providers.local]
kind = "openai-compatible"
base_url = "http://127.0.0.1:8401/v1"
[providers.openrouter]
[models."local-llama"]
provider = "local"
context_window = 8_192
max_output_tokens = 2048
input_cost = 0
output_cost = 0.6
cached_cost = 1e-1
aliases = ["llama"]
[run.agent]
permissions = "full"
max_turns = 200
web_allow = ["127.0.0.1:8080", "intranet.example", "[::1]:80"]
project_docs = false
summary_model = "small"
subagent_depth = 0
context_window = 20000
skills = ["skills"]
[run.agent.compaction]
preset = "harness"
enabled = true
compact_at_tokens = 15000
reserve_tokens = 2000
keep_recent = 10
recover_from_overflow = false
[run.agent.preamble]
compact_tokens = 12000
high_tokens = 40000
[run.agent.mcp.files]
command = "mcp-files"
args = ["--root", "", "."]
env = { TOKEN = "$FILES_TOKEN", LEVEL = "debug", EMPTY = "" }
context = true
startup_timeout = "30s"
[run.agent.mcp.web]
url = "https://mcp.example/x"
headers = { Authorization = "${MCP_AUTH}" }
tool_timeout = "1m"
[[run.agent.tools]]
name = "lookup"
description = "Looks a word up"
url = "http://127.0.0.1:9000/lookup"
method = "GET"
headers = { "X-Api-Key" = "$LOOKUP_KEY" }
context = true
instructions = "Look words up before you use them."
[run.agent.tools.parameters]
type = "object"
required = ["word"]
properties.word = { type = "string" }
[[run.agent.tools]]
name = "ping"
description = "Pings"
url = "http://127.0.0.1:9000/ping"
parameters = "@ping.json"
"#;

/// The fields of a struct or the entries of a map as JSON, one a line.
fn lines(value: &impl serde::Serialize) -> String {
    let value = serde_json::to_value(value).unwrap();
    let entries = value.as_object().unwrap().iter();
    entries.map(|(key, value)| format!("{key} {value}")).collect::<Vec<_>>().join("\n")
}

#[test]
fn every_setting_is_read_from_each_kind_of_file() {
    let (settings, warnings) = parse_settings(FULL).unwrap();
    assert_eq!(warnings, []);
    let (run, warnings) = parse(FULL).unwrap();
    assert_eq!(warnings, []);
    assert_eq!(run.providers, settings.providers);
    assert_eq!(run.models, settings.models);
    assert_eq!(run.agent, settings.agent);
    assert_snapshot!(lines(&settings.providers), @r#"
    anthropic {"name":"anthropic","kind":"anthropic","base_url":"http://127.0.0.1:8401","api_key_env":"MY_KEY","headers":{"Authorization":"Bearer $TEAM_TOKEN","X-Team":"a"},"request_timeout":{"secs":600,"nanos":0},"stream_timeout":{"secs":90,"nanos":0}}
    local {"name":"local","kind":"openai-compatible","base_url":"http://127.0.0.1:8401/v1"}
    openrouter {"name":"openrouter","kind":"openai-compatible","base_url":"https://openrouter.ai/api/v1"}
    "#);
    assert_snapshot!(lines(&settings.models), @r#"local-llama {"name":"local-llama","provider":"local","aliases":["llama"],"context_window":8192,"max_output_tokens":2048,"input_cost":0.0,"output_cost":0.6,"cached_cost":0.1}"#);
    assert_snapshot!(lines(&settings.agent), @r#"
    permissions "full"
    max_turns 200
    web_allow ["127.0.0.1:8080","intranet.example","[::1]:80"]
    project_docs false
    summary_model "small"
    subagent_depth 0
    context_window 20000
    skills ["skills"]
    compaction {"preset":"harness","enabled":true,"compact_at_tokens":15000,"reserve_tokens":2000,"keep_recent":10,"recover_from_overflow":false}
    preamble {"compact_tokens":12000,"high_tokens":40000}
    mcp {"files":{"command":"mcp-files","args":["--root","","."],"env":{"EMPTY":"","LEVEL":"debug","TOKEN":"$FILES_TOKEN"},"context":true,"startup_timeout":{"secs":30,"nanos":0}},"web":{"url":"https://mcp.example/x","headers":{"Authorization":"${MCP_AUTH}"},"context":false,"tool_timeout":{"secs":60,"nanos":0}}}
    tools [{"name":"lookup","description":"Looks a word up","parameters":{"type":"object","required":["word"],"properties":{"word":{"type":"string"}}},"url":"http://127.0.0.1:9000/lookup","method":"GET","headers":{"X-Api-Key":"$LOOKUP_KEY"},"context":true,"instructions":"Look words up before you use them."},{"name":"ping","description":"Pings","parameters":"@ping.json","url":"http://127.0.0.1:9000/ping","method":"POST","context":false}]
    "#);
}

#[test]
fn settings_survive_being_kept() {
    let (settings, _) = parse_settings(FULL).unwrap();
    let kept = serde_json::to_string(&settings.agent).unwrap();
    assert_eq!(serde_json::from_str::<AgentSettings>(&kept).unwrap(), settings.agent);
    for provider in settings.providers.values() {
        let kept = serde_json::to_string(provider).unwrap();
        assert_eq!(&serde_json::from_str::<ProviderSettings>(&kept).unwrap(), provider);
    }
    assert_eq!(serde_json::from_str::<AgentSettings>("{}").unwrap(), AgentSettings::default());
    let kept = serde_json::to_string(&McpServer::default()).unwrap();
    assert_eq!(serde_json::from_str::<McpServer>(&kept).unwrap(), McpServer::default());
}

/// What is wrong with a file of settings.
#[track_caller]
fn check(text: &str) -> String {
    let text = format!("_version = 1\n{text}");
    let list = match parse_settings(&text) {
        Ok((_, list)) | Err(list) => list,
    };
    Findings { path: "c".into(), text, list }.to_string()
}

#[test]
fn settings_of_a_run_are_said_to_belong_into_its_file() {
    assert_snapshot!(check("[run.artifacts]\ninclude = ['a/**']\n[run]\ngoal = 'x'"), @r"
    c:2:6: warning: `run.artifacts` is not a setting of this file (move it into a run.toml, which may have it)
    c:5:1: warning: `run.goal` is not a setting of this file (move it into a run.toml, which may have it)
    ");
}

#[test]
fn a_model_has_rules_and_prices_under_conditions() {
    let text = r#"
[models.m]
cache_write_cost = 5
long_cache_write_cost = 8
efforts = ["low", "xhigh"]
default_effort = "low"
thinking = "between_tools"
interface = "anthropic_messages"
chat_tools = "without_effort"
output_schema = false
tools = true
fast_factor = 2
shutdown_date = 2027-01-14
[[models.m.prices]]
above = 272_000
input_cost = 2
output_cost = 3
cached_cost = 0.5
cache_write_cost = 5
[[models.m.prices]]
from = "2026-12-01"
except_hours = [[1, 4], [6, 10]]
input_cost = 1
output_cost = 1.5
"#;
    let (settings, warnings) = parse_settings(&format!("_version = 1\n{text}")).unwrap();
    assert_eq!(warnings, []);
    assert_snapshot!(lines(&settings.models["m"]), @r#"
    name "m"
    cache_write_cost 5.0
    long_cache_write_cost 8.0
    prices [{"above":272000,"input_cost":2.0,"output_cost":3.0,"cached_cost":0.5,"cache_write_cost":5.0},{"from":"2026-12-01","except_hours":[[1,4],[6,10]],"input_cost":1.0,"output_cost":1.5}]
    fast_factor 2.0
    tools true
    output_schema false
    efforts ["low","xhigh"]
    default_effort "low"
    thinking "between_tools"
    interface "anthropic_messages"
    chat_tools "without_effort"
    shutdown_date "2027-01-14"
    "#);
}

#[test]
fn the_example_of_the_documentation_is_valid() {
    let docs = include_str!("../../../docs/agents.md");
    let blocks = docs.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let example = blocks.into_iter().find(|block| block.contains("[models.")).unwrap();
    let (settings, warnings) = parse_settings(&format!("_version = 1\n{example}")).unwrap();
    assert_eq!(warnings, []);
    assert_eq!(settings.models["house-large"].prices.len(), 2);
}

#[test]
fn rules_and_prices_of_models_are_checked() {
    assert_snapshot!(check(r#"
[models.m]
efforts = ["low", "hihg"]
default_effort = "extreme"
thinking = "sometimes"
interface = "http"
shutdown_date = "tomorrow"
[[models.m.prices]]
input_cost = 1
output_cost = 1
[[models.m.prices]]
above = 0
from = "2026-02-30"
except_hours = [[4, 1], [1, 25], 3]
input_cost = 1
[[models.m.prices]]
above = 1
input_cost = 1
"#), @"
    c:4:19: `models.m.efforts` is `hihg` (did you mean `high`?)
    c:5:18: `models.m.default_effort` is `extreme` (use `none`, `minimal`, `low`, `medium`, `high`, `xhigh` or `max`)
    c:6:12: `models.m.thinking` is `sometimes` (use `never`, `effort`, `always`, `switch`, `adaptive`, `between_tools`, `on_request`, `budget` or `level`)
    c:7:13: `models.m.interface` is `http` (use `responses`, `chat_completions`, `anthropic_messages` or `gemini`)
    c:8:17: `models.m.shutdown_date` is not a date (write it as `2026-12-31`)
    c:9:1: a price of `models.m.prices` does not say when it holds (give it `from`, `above` or `except_hours`)
    c:13:9: `models.m.prices.above` is 0 (use a whole number of at least 1)
    c:14:8: `models.m.prices.from` is not a date (write it as `2026-12-31`)
    c:15:17: `models.m.prices.except_hours` has no valid hours (write the first hour and the one after the last: `[[6, 10]]`)
    c:15:25: `models.m.prices.except_hours` has no valid hours (write the first hour and the one after the last: `[[6, 10]]`)
    c:15:34: `models.m.prices.except_hours` is an integer, but an array is expected (make it an array)
    c:17:1: a price of `models.m.prices` has no `output_cost` (give it one)
    ");
}

#[test]
fn a_program_that_serves_models_is_no_kind() {
    assert_snapshot!(check("[providers.mine]\nkind = \"Ollama\"\nbase_url = \"http://h/v1\"\n"), @"c:3:8: `providers.mine.kind` is `Ollama` (use `openai-compatible`, the interface of Ollama)");
}

#[test]
fn providers_and_models_are_checked() {
    assert_snapshot!(check(r#"
[providers.mine]
[providers.near]
kind = "openai-compatibel"
[providers.nowhere]
kind = "openai-compatible"
[providers.""]
kind = "openai"
[providers.odd]
kind = 3
base_url = "ftp://x"
api_key_env = "sk-planted"
headers = { "a b" = "c", Authorization = "Bearer planted", "X" = "a\nb", Y = 1 }
request_timeout = "0s"
stream_timeout = "soon"
retries = 3
base_ulr = "x"
[providers.secret]
kind = "openai"
base_url = "https://user:planted@host/v1"
[models.m]
context_window = 0
max_output_tokens = -1
input_cost = -0.5
output_cost = inf
cached_cost = "free"
aliases = "x"
widnow = 3
"#), @r"
    c:3:1: `providers.mine` has no `kind` (name its protocol: `anthropic`, `openai`, `openai-responses`, `gemini`, `openai-compatible`)
    c:5:8: `providers.near.kind` is `openai-compatibel` (did you mean `openai-compatible`?)
    c:6:1: `providers.nowhere` has no `base_url` (give its address, such as `http://127.0.0.1:8080/v1`)
    c:8:1: `providers` has an entry without a name (give it a name)
    c:11:8: `providers.odd.kind` is an integer, but a string is expected (write it in quotes)
    c:12:12: `providers.odd.base_url` is not a URL (write it as `http://HOST:PORT/PATH` or `https://HOST/PATH`)
    c:13:15: `providers.odd.api_key_env` is not the name of an environment variable (write the name of the variable that holds the key)
    c:14:21: `providers.odd.headers.a b` is not the name of a header (correct the name)
    c:14:42: `providers.odd.headers.Authorization` contains a secret, and settings are stored with each run (put it into an environment variable, and write `$NAME`)
    c:14:66: `providers.odd.headers.X` contains a line break (remove it)
    c:14:78: `providers.odd.headers.Y` is an integer, but a string is expected (write it in quotes)
    c:15:19: `providers.odd.request_timeout` is not a duration (write it as `500ms`, `30s`, `10m` or `2h`)
    c:16:18: `providers.odd.stream_timeout` is not a duration (write it as `500ms`, `30s`, `10m` or `2h`)
    c:17:1: warning: `providers.odd.retries` is not a setting (remove it, or correct its name)
    c:18:1: warning: `providers.odd.base_ulr` is not a setting (did you mean `providers.odd.base_url`?)
    c:21:12: `providers.secret.base_url` contains a user name or a password (remove it, and put it into a header as `$NAME`)
    c:23:18: `models.m.context_window` is 0 (use a whole number of at least 1)
    c:24:21: `models.m.max_output_tokens` is -1 (use a whole number of at least 1)
    c:25:14: `models.m.input_cost` is not a price (use US dollars for a million tokens, 0 or more)
    c:26:15: `models.m.output_cost` is not a price (use US dollars for a million tokens, 0 or more)
    c:27:15: `models.m.cached_cost` is a string, but a number is expected (make it a number)
    c:28:11: `models.m.aliases` is a string, but an array is expected (make it an array)
    c:29:1: warning: `models.m.widnow` is not a setting (remove it, or correct its name)
    ");
}

#[test]
fn agents_are_checked() {
    assert_snapshot!(check(r#"
run.agent.permissions = "fulll"
run.agent.max_turns = 0
run.agent.subagent_depth = 99999999999
run.agent.web_allow = ["http://x", "ok", "h:0", "a/b", "[::1", "h:80"]
run.agent.project_docs = "yes"
run.agent.maxturns = 3
run.agent.compaction = { preset = "loose", keep_recent = -1, enabled = 1, on = true }
[run.agent.mcp.both]
command = "a"
url = "http://x"
[run.agent.mcp.neither]
context = true
[run.agent.mcp.half]
args = ["a"]
[run.agent.mcp."a b"]
command = "a"
[run.agent.mcp.secret]
command = "a"
env = { GITHUB_TOKEN = "planted", "A=B" = "c" }
[[run.agent.tools]]
name = "a"
[[run.agent.tools]]
name = "a b"
description = "d"
url = "http://x"
parameters = "file.json"
method = "get"
headers = { Cookie = "planted" }
[[run.agent.tools]]
name = "twice"
description = "d"
url = "http://x"
[[run.agent.tools]]
name = "twice"
description = "d"
url = "http://x"
"#), @r"
    c:3:25: `run.agent.permissions` is `fulll` (did you mean `full`?)
    c:4:23: `run.agent.max_turns` is 0 (use a whole number of at least 1)
    c:5:28: `run.agent.subagent_depth` is 99999999999 (use a smaller number)
    c:6:24: `run.agent.web_allow` names `http://x`, which is not a host (write HOST or HOST:PORT, such as `127.0.0.1:8080`)
    c:6:42: `run.agent.web_allow` names `h:0`, which is not a host (write HOST or HOST:PORT, such as `127.0.0.1:8080`)
    c:6:49: `run.agent.web_allow` names `a/b`, which is not a host (write HOST or HOST:PORT, such as `127.0.0.1:8080`)
    c:6:56: `run.agent.web_allow` names `[::1`, which is not a host (write HOST or HOST:PORT, such as `127.0.0.1:8080`)
    c:7:26: `run.agent.project_docs` is a string, but a boolean is expected (make it a boolean)
    c:8:11: warning: `run.agent.maxturns` is not a setting (did you mean `run.agent.max_turns`?)
    c:9:35: `run.agent.compaction.preset` is `loose` (use `fabro`, `harness` or `strict`)
    c:9:58: `run.agent.compaction.keep_recent` is -1 (use a whole number of at least 0)
    c:9:72: `run.agent.compaction.enabled` is an integer, but a boolean is expected (make it a boolean)
    c:9:75: warning: `run.agent.compaction.on` is not a setting (remove it, or correct its name)
    c:10:1: `run.agent.mcp.both` has settings of a command and of a URL (give it the `command` that starts it, or the `url` of a running server)
    c:13:1: `run.agent.mcp.neither` has neither `command` nor `url` (give it the `command` that starts it, or the `url` of a running server)
    c:15:1: `run.agent.mcp.half` has no `command` (give it the `command` that starts it, or the `url` of a running server)
    c:17:1: `a b` is not a valid server name (use at most 64 letters, digits, `_` and `-`)
    c:21:24: `run.agent.mcp.secret.env.GITHUB_TOKEN` contains a secret, and settings are stored with each run (put it into an environment variable, and write `$NAME`)
    c:21:43: `run.agent.mcp.secret.env.A=B` is not the name of an environment variable (correct the name)
    c:22:1: a tool of `run.agent.tools` has no `description` (give it one)
    c:22:1: a tool of `run.agent.tools` has no `url` (give it one)
    c:25:8: `run.agent.tools.name` is `a b`, which is not a valid tool name (use at most 64 letters, digits, `_` and `-`)
    c:28:14: `run.agent.tools.parameters` is a string that does not name a file (make it a table, or write `@file.json`)
    c:29:10: `run.agent.tools.method` is `get` (did you mean `GET`?)
    c:30:22: `run.agent.tools.headers.Cookie` contains a secret, and settings are stored with each run (put it into an environment variable, and write `$NAME`)
    c:35:1: two of `run.agent.tools` are named `twice` (give each its own name)
    ");
}

#[test]
fn what_is_refused_is_never_repeated_where_it_may_be_secret() {
    for setting in [
        "providers.openai.api_key_env = 'sk-planted'",
        "providers.openai.headers = { Authorization = 'Bearer planted' }",
        "providers.openai.base_url = 'http://me:planted@x'",
        "run.agent.mcp.x = { command = 'x', env = { TOKEN = 'planted' } }",
    ] {
        let Err(list) = parse_settings(&format!("_version = 1\n{setting}")) else {
            panic!("{setting}");
        };
        assert!(list.iter().all(|found| !found.message.contains("planted")), "{list:?}");
    }
}

#[test]
fn the_nearer_file_wins_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("_version = 1\n{text}")).unwrap();
    };
    write(
        ".config/fabro/config.toml",
        "[providers.a]\nkind = 'openai'\n[providers.b]\nkind = 'openai'\nbase_url = 'http://far'\n\
         [run.agent]\nmax_turns = 5\nweb_allow = ['far']\nskills = ['~/s']\n\
         [run.agent.mcp.far]\ncommand = 'x'\n[[run.agent.tools]]\nname = 't'\ndescription = 'far'\nurl = 'http://far'\n",
    );
    write(
        ".fabro/config.toml",
        "[providers.b]\nkind = 'openai'\n[models.m]\ncontext_window = 1\n\
         [run.agent]\nsubagent_depth = 2\ncompaction.keep_recent = 3\n[[run.agent.tools]]\n\
         name = 't'\ndescription = 'near'\nurl = 'http://near'\nparameters = '@t.json'\n",
    );
    fs::write(dir.path().join(".fabro/t.json"), r#"{"type": "object"}"#).unwrap();
    write(
        "run.toml",
        "[run.agent]\nweb_allow = []\ncompaction.preset = 'strict'\n[models.m]\ncontext_window = 2\n",
    );
    let home = Some(Path::new("/home/ann"));
    let user = dir.path().join(".config/fabro/config.toml");
    let (settings, _) = settings(dir.path(), Some(&user), home).unwrap();
    let run = load(&dir.path().join("run.toml")).unwrap();
    let settings = run.settings(settings, home).unwrap();
    assert_eq!(settings.providers["b"].base_url, None);
    assert!(settings.providers.contains_key("a"));
    assert_eq!(settings.models["m"].context_window, Some(2));
    assert_snapshot!(lines(&settings.agent), @r#"
    max_turns 5
    web_allow []
    subagent_depth 2
    skills ["/home/ann/s"]
    compaction {"preset":"strict","keep_recent":3}
    preamble {}
    mcp {"far":{"command":"x","context":false}}
    tools [{"name":"t","description":"near","parameters":{"type":"object"},"url":"http://near","method":"POST","context":false}]
    "#);
}

#[test]
fn a_schema_that_cannot_be_had_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let tool = "[[run.agent.tools]]\nname = 't'\ndescription = 'd'\nurl = 'http://x'\nparameters = '@t.json'";
    fs::write(dir.path().join("run.toml"), format!("_version = 1\n{tool}")).unwrap();
    let run = load(&dir.path().join("run.toml")).unwrap();
    let check = || {
        let error = run.settings(Settings::default(), None).unwrap_err().to_string();
        error.replace(&dir.path().display().to_string(), "DIR")
    };
    assert_snapshot!(check(), @"cannot read DIR/t.json: No such file or directory (os error 2)");
    fs::write(dir.path().join("t.json"), "[]").unwrap();
    assert_snapshot!(check(), @"DIR/t.json is not a JSON Schema: invalid type: sequence, expected a map at line 1 column 0");
}

#[test]
fn tools_of_settings_do_not_take_names_of_ours() {
    for name in ["shell", "mcp__files__read"] {
        let text = format!(
            "_version = 1\n[[run.agent.tools]]\nname = \"{name}\"\ndescription = \"d\"\nurl = \"http://h/x\"\n"
        );
        let errors = crate::parse(&text).unwrap_err();
        assert_eq!(errors[0].message, format!("`{name}` is the name of a built-in tool"));
    }
}

#[test]
fn settings_of_the_documentation_are_read_without_a_warning() {
    let readme = include_str!("../../../README.md");
    let pages = include_str!("../../../docs/command-line.md");
    let blocks = |page: &'static str| {
        page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next())
    };
    let mut count = 0;
    for block in blocks(readme).chain(blocks(pages)).filter(|block| block.contains("_version")) {
        count += 1;
        let warnings = if block.contains("[telemetry]") {
            crate::parse_settings(block).map(|(_, warnings)| warnings)
        } else {
            crate::parse(block).map(|(_, warnings)| warnings)
        };
        assert_eq!(warnings, Ok(Vec::new()), "{block}");
    }
    assert!(count >= 2);
    let first = blocks(readme).next().unwrap();
    assert!(first.starts_with("_version = 1\n"), "{first}");
}

#[test]
fn json_settings_get_a_hint_about_toml() {
    let errors = crate::parse("{\n  \"run\": {\"goal\": \"x\"}\n}").unwrap_err();
    let expected = r#"settings are TOML, not JSON: write {"run": {"goal": "x"}} as run.goal = "x""#;
    assert_eq!(errors[0].fix.as_deref(), Some(expected));
}

#[test]
fn many_unknown_settings_are_all_reported_and_few_compared() {
    let keys: Vec<_> = (0..20_000).map(|at| format!("base_ulr{at} = 1")).collect();
    let keys = keys.join("\n");
    let text = format!(
        "_version = 1\n[providers.odd]\nkind = \"openai-compatible\"\nbase_url = \"http://x\"\nbase_ulr = 1\n{keys}"
    );
    let (_, warnings) = parse_settings(&text).unwrap();
    assert_eq!(warnings.len(), 20_001);
    let suggested = warnings
        .iter()
        .filter(|it| it.fix.as_deref().is_some_and(|fix| fix.contains("did you mean")));
    assert!((1..=100).contains(&suggested.count()));
}
