//! Every setting of the files, with the kind of its value. The reader checks a file against these
//! tables, and serde makes the types of the crate from what passed.

/// The name of a setting in dots, and the kind of its value. `NAME` is a key that the user chooses.
pub(crate) type Setting = (&'static str, Kind);

/// The settings of one kind of file, in groups.
pub(crate) type Schema = &'static [&'static [Setting]];

/// What the value of a setting may be.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// `_version`, which is read before everything else.
    Version,
    /// A string with something other than whitespace in it.
    String,
    /// Such a string, or a table with the `file` that holds it.
    Goal,
    /// A program, or a program and its arguments in an array.
    Command,
    /// Where scripts and tools run.
    Provider,
    /// A number of bytes, more than 0: `512MB`, `2GB`, or a number.
    Size,
    /// An array of such strings.
    Strings,
    /// An array of strings, empty ones among them.
    Arguments,
    Bool,
    /// An integer of at least this.
    Count(u64),
    /// The same below 2^32.
    SmallCount(u64),
    /// US dollars, 0 or more.
    Price,
    /// A number above 0, of what is named.
    Positive(&'static str),
    /// More than 0: `500ms`, `30s`, `10m`, `2h`, or a number of seconds.
    Duration,
    /// A URL without a password in it.
    Url,
    /// The name of an environment variable, with or without a leading `$`.
    Variable,
    /// HTTP headers; a secret must come from an environment variable.
    Headers,
    /// Environment variables for scripts.
    Env,
    /// Environment variables where a secret must come from another environment variable.
    OpenEnv,
    /// One of these words.
    Word(&'static [&'static str]),
    /// An array of these words.
    Words(&'static [&'static str]),
    /// A day: `2026-12-31`.
    Date,
    /// An array of two hours each: the first, and the one after the last.
    Hours,
    /// An array of hosts, each with or without a port.
    Hosts,
    /// An array of glob patterns relative to the working directory.
    Patterns,
    /// What every provider accepts as the name of a tool.
    ToolName,
    /// A JSON Schema as a table, or `@FILE`.
    JsonSchema,
    /// A table of any values.
    Inputs,
    /// An array of tables, whose settings have this one's name before theirs.
    Tables,
}

use crate::sandbox::Workspace;
use crate::tools::SearchProvider;
use Kind::{
    Arguments, Bool, Command, Count, Date, Duration, Env, Goal, Headers, Hosts, Hours, Inputs,
    JsonSchema, OpenEnv, Patterns, Positive, Price, Provider, Size, SmallCount, String, Strings,
    Tables, ToolName, Url, Variable, Version, Word, Words,
};

pub(crate) const PROVIDER_KINDS: &[&str] =
    &["anthropic", "openai", "openai-responses", "gemini", "openai-compatible"];

const EFFORTS: &[&str] = &["none", "minimal", "low", "medium", "high", "xhigh", "max"];

/// The settings of a run.toml.
pub(crate) const RUN_FILE: Schema =
    &[&[("_version", Version), ("workflow.graph", String)], RUN, COMMON];

/// The settings of upstream's project files, `.fabro/project.toml` and `fabro.toml`.
pub(crate) const PROJECT_FILE: Schema =
    &[&[("_version", Version), ("project.directory", String), ("fabro.root", String)], RUN, COMMON];

/// The settings of a config.toml.
pub(crate) const CONFIG_FILE: Schema = &[
    &[
        ("_version", Version),
        ("telemetry.otlp", Url),
        ("telemetry.headers", Headers),
        ("telemetry.content", Bool),
        ("webhooks", Tables),
        ("webhooks.url", Url),
        ("webhooks.secret_env", Variable),
        ("webhooks.events", Strings),
    ],
    COMMON,
];

/// What a run is started with.
pub(crate) const RUN: &[Setting] = &[
    ("run.goal", Goal),
    ("run.inputs", Inputs),
    ("run.sandbox.env", Env),
    ("run.prepare.commands", Strings),
    ("run.prepare.steps", Tables),
    ("run.prepare.steps.script", String),
    ("run.prepare.steps.command", Command),
    ("run.execution.mode", Word(&["normal", "dry_run"])),
    ("run.execution.approval", Word(&["prompt", "auto"])),
    ("run.git.worktree", Bool),
    ("run.git.diff", Bool),
    ("run.git.metadata", Bool),
    ("run.git.author.name", String),
    ("run.git.author.email", String),
    ("run.git.exclude", Patterns),
    ("run.artifacts.include", Patterns),
    ("run.artifacts.exclude", Patterns),
];

const COMMON: &[Setting] = &[
    ("run.sandbox.provider", Provider),
    ("run.sandbox.network", Bool),
    ("run.sandbox.read", Strings),
    ("run.sandbox.write", Strings),
    ("run.sandbox.write_git", Bool),
    ("run.sandbox.tmp_size", Size),
    ("run.sandbox.max_processes", SmallCount(16)),
    ("run.sandbox.preserve", Bool),
    ("run.sandbox.image", String),
    ("run.sandbox.memory", Size),
    ("run.sandbox.cpus", Positive("a number of processors")),
    ("run.sandbox.workspace", Word(Workspace::NAMES)),
    ("run.sandbox.host", String),
    ("run.sandbox.directory", String),
    ("run.sandbox.exclude", Strings),
    ("run.sandbox.copy_limit", Size),
    ("run.model.name", String),
    ("run.model.provider", String),
    ("run.model.fallbacks", Strings),
    ("run.model.script", String),
    ("run.model.script_when", Word(&["no_provider", "always"])),
    ("run.on_failure", Word(&["stop", "exit", "route", "succeed", "continue"])),
    ("run.max_cost", Positive("an amount in US dollars")),
    ("run.command_timeout", Duration),
    ("run.on_unavailable", Word(&["pause", "fail"])),
    ("run.retry_unavailable", Duration),
    ("run.resume_threads", Bool),
    ("run.max_time", Duration),
    ("run.concurrency.key", String),
    ("run.concurrency.limit", SmallCount(1)),
    ("run.concurrency.on_busy", Word(&["queue", "skip", "cancel"])),
    ("run.hooks", Tables),
    ("run.hooks.name", String),
    ("run.hooks.id", String),
    ("run.hooks.event", String),
    ("run.hooks.type", Word(&["command", "http"])),
    ("run.hooks.command", Command),
    ("run.hooks.script", String),
    ("run.hooks.url", Url),
    ("run.hooks.headers", Headers),
    ("run.hooks.matcher", String),
    ("run.hooks.blocking", Bool),
    ("run.hooks.timeout", Duration),
    ("run.hooks.timeout_ms", Count(1)),
    ("run.hooks.on_error", Word(&["proceed", "block"])),
    ("run.agent.permissions", Word(&["read-only", "read-write", "full"])),
    ("run.agent.max_turns", SmallCount(1)),
    ("run.agent.web_allow", Hosts),
    ("run.agent.web_search.provider", Word(&SearchProvider::NAMES)),
    ("run.agent.web_search.url", Url),
    ("run.agent.web_search.api_key_env", Variable),
    ("run.agent.web_search.max_results", SmallCount(1)),
    ("run.agent.project_docs", Bool),
    ("run.agent.summary_model", String),
    ("run.agent.subagent_depth", SmallCount(0)),
    ("run.agent.max_subagents", SmallCount(1)),
    ("run.agent.context_window", Count(1)),
    ("run.agent.skills", Strings),
    ("run.agent.compaction.preset", Word(&["fabro", "harness", "strict"])),
    ("run.agent.compaction.enabled", Bool),
    ("run.agent.compaction.compact_at_tokens", Count(1)),
    ("run.agent.compaction.reserve_tokens", Count(0)),
    ("run.agent.compaction.keep_recent", SmallCount(0)),
    ("run.agent.compaction.recover_from_overflow", Bool),
    ("run.agent.preamble.compact_tokens", SmallCount(100)),
    ("run.agent.preamble.high_tokens", SmallCount(100)),
    ("run.agent.mcp.NAME.type", Word(&["stdio", "http"])),
    ("run.agent.mcp.NAME.command", Command),
    ("run.agent.mcp.NAME.script", String),
    ("run.agent.mcp.NAME.args", Arguments),
    ("run.agent.mcp.NAME.env", OpenEnv),
    ("run.agent.mcp.NAME.url", Url),
    ("run.agent.mcp.NAME.headers", Headers),
    ("run.agent.mcp.NAME.context", Bool),
    ("run.agent.mcp.NAME.startup_timeout", Duration),
    ("run.agent.mcp.NAME.tool_timeout", Duration),
    ("run.agent.tools", Tables),
    ("run.agent.tools.name", ToolName),
    ("run.agent.tools.description", String),
    ("run.agent.tools.parameters", JsonSchema),
    ("run.agent.tools.url", Url),
    ("run.agent.tools.method", Word(&["GET", "POST", "PUT", "PATCH", "DELETE"])),
    ("run.agent.tools.headers", Headers),
    ("run.agent.tools.context", Bool),
    ("run.agent.tools.instructions", String),
    ("providers.NAME.kind", Word(PROVIDER_KINDS)),
    ("providers.NAME.base_url", Url),
    ("providers.NAME.api_key_env", Variable),
    ("providers.NAME.interface", Word(&["responses", "chat_completions"])),
    ("providers.NAME.output_schema", Bool),
    ("providers.NAME.long_cache", Bool),
    ("providers.NAME.headers", Headers),
    ("providers.NAME.request_timeout", Duration),
    ("providers.NAME.stream_timeout", Duration),
    ("models.NAME.provider", String),
    ("models.NAME.context_window", Count(1)),
    ("models.NAME.max_output_tokens", Count(1)),
    ("models.NAME.input_cost", Price),
    ("models.NAME.output_cost", Price),
    ("models.NAME.cached_cost", Price),
    ("models.NAME.cache_write_cost", Price),
    ("models.NAME.long_cache_write_cost", Price),
    ("models.NAME.prices", Tables),
    ("models.NAME.prices.from", Date),
    ("models.NAME.prices.above", Count(1)),
    ("models.NAME.prices.except_hours", Hours),
    ("models.NAME.prices.input_cost", Price),
    ("models.NAME.prices.output_cost", Price),
    ("models.NAME.prices.cached_cost", Price),
    ("models.NAME.prices.cache_write_cost", Price),
    ("models.NAME.prices.long_cache_write_cost", Price),
    ("models.NAME.aliases", Strings),
    ("models.NAME.efforts", Words(EFFORTS)),
    ("models.NAME.default_effort", Word(EFFORTS)),
    (
        "models.NAME.thinking",
        Word(&[
            "never",
            "effort",
            "always",
            "switch",
            "adaptive",
            "between_tools",
            "on_request",
            "budget",
            "level",
        ]),
    ),
    (
        "models.NAME.interface",
        Word(&["responses", "chat_completions", "anthropic_messages", "gemini"]),
    ),
    ("models.NAME.chat_tools", Word(&["always", "without_effort", "effort_none", "never"])),
    ("models.NAME.output_schema", Bool),
    ("models.NAME.tools", Bool),
    ("models.NAME.tokens_per_estimate", Positive("a factor")),
    ("models.NAME.fast_factor", Price),
    ("models.NAME.flex_factor", Price),
    ("models.NAME.shutdown_date", Date),
];
