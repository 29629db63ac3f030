//! `[[run.hooks]]`: what is run or requested at events of a run.

use std::collections::BTreeMap;
use std::time::Duration;

use fabro_types::{Diagnostic, nearest, one_of};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use serde_with::skip_serializing_none;

use crate::reader::{Node, Reader, span};
use crate::sections::shell_command;

/// One `[[run.hooks]]`.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hook {
    /// `name`: what messages call it.
    pub name: Option<String>,
    /// `event`: when.
    pub event: HookEvent,
    /// `script` or `url`: what is done.
    #[serde(flatten)]
    pub action: HookAction,
    /// `matcher`: a regular expression for the node or the tool; `None` for all.
    pub matcher: Option<String>,
    /// `blocking`: what follows waits for the hook, which may forbid it.
    pub blocking: bool,
    /// `timeout`: how long it may take; 60 seconds when absent.
    pub timeout: Option<Duration>,
    /// `on_error`: what follows when a blocking hook itself fails.
    #[serde(default)]
    pub on_error: OnHookError,
}

/// What a hook does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum HookAction {
    /// Runs a shell script with the event on its standard input.
    Command {
        /// `script` or `command`.
        script: String,
    },
    /// Sends the event to a server.
    Http {
        /// `url`: its address.
        url: String,
        /// `headers`: sent with it. As written: `$NAME` is an environment variable.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        headers: BTreeMap<String, String>,
    },
}

/// What follows when a blocking hook fails: it cannot be run, takes too long, or gives no valid answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnHookError {
    /// The same as without the hook.
    #[default]
    Proceed,
    /// The same as when it forbids.
    Block,
}

/// When a hook is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookEvent {
    /// The run begins.
    RunStart,
    /// Its exit was reached.
    RunComplete,
    /// It failed.
    RunFailed,
    /// It was canceled.
    RunCanceled,
    /// It waits.
    RunPaused,
    /// A stage begins.
    StageStart,
    /// A stage ended and did not fail.
    StageComplete,
    /// A stage failed.
    StageFailed,
    /// An attempt failed, and another follows.
    StageRetrying,
    /// An edge was chosen.
    EdgeSelected,
    /// A fan-out begins.
    ParallelStart,
    /// A fan-out ended.
    ParallelComplete,
    /// A person is asked.
    GateAsked,
    /// A person answered.
    GateAnswered,
    /// An agent calls a tool.
    PreToolUse,
    /// A tool gave its result.
    PostToolUse,
    /// A tool failed, or was refused.
    PostToolUseFailure,
}

use HookEvent::{
    EdgeSelected, GateAnswered, GateAsked, ParallelComplete, ParallelStart, PostToolUse,
    PostToolUseFailure, PreToolUse, RunCanceled, RunComplete, RunFailed, RunPaused, RunStart,
    StageComplete, StageFailed, StageRetrying, StageStart,
};

const EVENTS: [(&str, HookEvent); 17] = [
    ("run_start", RunStart),
    ("run_complete", RunComplete),
    ("run_failed", RunFailed),
    ("run_canceled", RunCanceled),
    ("run_paused", RunPaused),
    ("stage_start", StageStart),
    ("stage_complete", StageComplete),
    ("stage_failed", StageFailed),
    ("stage_retrying", StageRetrying),
    ("edge_selected", EdgeSelected),
    ("parallel_start", ParallelStart),
    ("parallel_complete", ParallelComplete),
    ("gate_asked", GateAsked),
    ("gate_answered", GateAnswered),
    ("pre_tool_use", PreToolUse),
    ("post_tool_use", PostToolUse),
    ("post_tool_use_failure", PostToolUseFailure),
];

/// Events of upstream that there are not here, each with what to use.
const LOST: [(&str, &str); 3] = [
    ("checkpoint_saved", "use `stage_complete` and `stage_failed`"),
    ("sandbox_ready", "use `run_start`"),
    ("sandbox_cleanup", "use `run_complete` and `run_failed`"),
];

impl HookEvent {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        EVENTS.iter().map(|(_, event)| *event)
    }

    /// Its name in settings.
    pub fn as_str(self) -> &'static str {
        let name = EVENTS.iter().find(|(_, event)| *event == self).map(|(name, _)| *name);
        name.unwrap_or_default()
    }

    fn parse(name: &str) -> Option<Self> {
        EVENTS.iter().find(|(known, _)| *known == name).map(|(_, event)| *event)
    }

    /// Whether a hook can forbid what follows. Hooks of these events do so unless their settings say otherwise.
    pub fn can_block(self) -> bool {
        matches!(self, RunStart | StageStart | PreToolUse)
    }

    /// Whether it is about a call of a tool.
    pub fn is_of_call(self) -> bool {
        self == PreToolUse || self.is_after_call()
    }

    /// Whether it is sent after a tool call. The agent waits for a blocking hook of these events; it cannot block.
    pub fn is_after_call(self) -> bool {
        matches!(self, PostToolUse | PostToolUseFailure)
    }

    /// What a matcher is compared with; `None` when there is nothing.
    fn subject(self) -> Option<&'static str> {
        match self {
            RunStart | RunComplete | RunFailed | RunCanceled | RunPaused => None,
            _ if self.is_of_call() => Some("tool"),
            _ => Some("node"),
        }
    }
}

impl Reader {
    /// Checks and completes a `[[run.hooks]]`. One that has no effect becomes empty.
    pub(crate) fn hook(&mut self, full: &str, node: &Node<'_>, hook: &mut Map<String, Value>) {
        if let Some(id) = hook.remove("id") {
            hook.entry("name").or_insert(id);
        }
        let name = hook.get("name").and_then(Value::as_str);
        let name = name.map(|name| format!(" `{name}`")).unwrap_or_default();
        let called = format!("the hook{name} of `{full}`");
        let Some(event) = hook.get("event").and_then(Value::as_str).map(str::to_owned) else {
            let fix = "name one, such as `stage_complete` or `gate_asked`";
            return self.error(node, format!("{called} has no `event`"), fix);
        };
        let Some(known) = HookEvent::parse(&event) else {
            let Some((_, fix)) = LOST.iter().find(|(lost, _)| *lost == event) else {
                let names = EVENTS.map(|(name, _)| name);
                let fix = match nearest(&event, names) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("use {}", one_of(&names.map(|name| format!("`{name}`")))),
                };
                return self.at(node, "event", format!("`{full}.event` is `{event}`"), &fix);
            };
            hook.clear();
            let message = format!("{called} has no effect: nothing happens at `{event}`");
            let warning = Diagnostic::warning("upstream-setting", span(node.span()), message);
            return self.diagnostics.push(warning.with_fix(*fix));
        };
        self.hook_action(&called, node, hook);
        self.hook_blocking(&called, known, node, hook);
        if let Some(ms) = hook.remove("timeout_ms").as_ref().and_then(Value::as_u64)
            && !hook.contains_key("timeout")
        {
            let time = Duration::from_millis(ms);
            let time = json!({ "secs": time.as_secs(), "nanos": time.subsec_nanos() });
            hook.insert("timeout".to_owned(), time);
        }
        let Some(matcher) = hook.get("matcher").and_then(Value::as_str) else { return };
        if known.subject().is_none() {
            let message = format!("{called} has a `matcher`, and `{event}` has no node or tool");
            return self.at(node, "matcher", message, "remove it");
        }
        if let Err(error) = regex::Regex::new(matcher) {
            let reason = error.to_string();
            let reason = reason.lines().last().unwrap_or_default();
            let reason = reason.strip_prefix("error: ").unwrap_or(reason);
            let message =
                format!("the `matcher` of {called} is not a regular expression: {reason}");
            self.at(node, "matcher", message, "correct it; `\\` makes the next character literal");
        }
    }

    /// It is a command or a request.
    fn hook_action(&mut self, called: &str, node: &Node<'_>, hook: &mut Map<String, Value>) {
        let kind = hook.remove("type");
        let kind = kind.as_ref().and_then(Value::as_str).unwrap_or_default();
        if let (false, Some(command)) = (hook.contains_key("script"), hook.remove("command")) {
            hook.insert("script".to_owned(), shell_command(&command).into());
        }
        let is_command = hook.contains_key("script");
        let is_request = hook.contains_key("url") || hook.contains_key("headers");
        let either = "give it the `command` to run, or the `url` to send the event to";
        match (is_command, is_request) {
            (true, true) => {
                let message = format!("{called} has settings of a command and of a URL");
                return self.error(node, message, either);
            }
            (false, false) => {
                let message = format!("{called} has neither `command` nor `url`");
                return self.error(node, message, either);
            }
            _ => {}
        }
        if is_command && kind == "http" || is_request && kind == "command" {
            let message = format!("{called} is of the type `{kind}`, and its settings are not");
            return self.at(node, "type", message, "remove `type`, or correct the settings");
        }
        let Some(url) = hook.get("url").and_then(Value::as_str) else {
            if is_request {
                self.error(node, format!("{called} has no `url`"), "give it one");
            }
            return;
        };
        if !url.starts_with("https://") && !is_loopback(url) {
            let message = format!("{called} would send events unencrypted to another machine");
            self.at(node, "url", message, "use `https://`; `http://` is for this machine only");
        }
    }

    /// It blocks only where something can be forbidden, or a call is waited for.
    fn hook_blocking(
        &mut self,
        called: &str,
        event: HookEvent,
        node: &Node<'_>,
        hook: &mut Map<String, Value>,
    ) {
        let is_asked = hook.get("blocking").and_then(Value::as_bool);
        if is_asked == Some(true) && event.is_after_call() {
            let message = format!(
                "{called} runs after the tool, so it cannot block: its decision is ignored"
            );
            let value = node.get_ref().as_table().and_then(|table| table.get("blocking"));
            let at = span(value.unwrap_or(node).span());
            let warning = Diagnostic::warning("upstream-setting", at, message);
            self.diagnostics.push(warning.with_fix("to forbid a call, use `pre_tool_use`"));
        } else if is_asked == Some(true) && !event.can_block() {
            let fix = match event {
                EdgeSelected => "remove `blocking`, or use `stage_start` with the next node",
                StageRetrying => "remove `blocking`, or limit `max_retries` of the node",
                _ => "remove `blocking`: `run_start`, `stage_start` and `pre_tool_use` can block",
            };
            let event = event.as_str();
            let message =
                format!("{called} cannot block: `{event}` is sent when it has happened already");
            return self.at(node, "blocking", message, fix);
        }
        let blocking = is_asked.unwrap_or(event.can_block());
        hook.insert("blocking".to_owned(), blocking.into());
        if !(blocking && event.can_block()) && hook.contains_key("on_error") {
            let message = format!("`on_error` of {called} has no effect: the hook forbids nothing");
            self.at(node, "on_error", message, "remove it");
        }
    }

    /// An error at the value of a key of a table, or at the table.
    pub(crate) fn at(&mut self, table: &Node<'_>, key: &str, message: String, fix: &str) {
        let value = table.get_ref().as_table().and_then(|table| table.get(key));
        self.error(value.unwrap_or(table), message, fix);
    }
}

/// Whether the host of a URL is this machine.
pub(crate) fn is_loopback(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if let Some(rest) = host.strip_prefix('[') {
        return rest.split(']').next() == Some("::1");
    }
    let name = host.split(':').next().unwrap_or_default();
    let address = name.parse::<std::net::Ipv4Addr>();
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|it| it.is_loopback())
}

/// The hooks of weaker settings, then those of stronger ones. One that both have is run once.
pub(crate) fn joined(weaker: Vec<Hook>, stronger: Vec<Hook>) -> Vec<Hook> {
    let mut all = weaker;
    for hook in stronger {
        if !all.contains(&hook) {
            all.push(hook);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;
    use crate::run::parse;

    /// The hooks of a run.toml with these lines, or what is wrong with them.
    fn check(lines: &str) -> String {
        let text = format!("_version = 1\n[[run.hooks]]\n{lines}\n");
        let list = match parse(&text) {
            Ok((config, findings)) => {
                let hooks = config.hooks.iter().map(|it| serde_json::to_string(it).unwrap());
                let findings = findings.iter().map(|it| shown(&text, it));
                return hooks.chain(findings).collect::<Vec<_>>().join("\n");
            }
            Err(list) => list,
        };
        list.iter().map(|it| shown(&text, it)).collect::<Vec<_>>().join("\n")
    }

    fn shown(text: &str, finding: &Diagnostic) -> String {
        let at = text[finding.span.start..finding.span.end].lines().next().unwrap_or_default();
        let fix = finding.fix.as_deref().unwrap();
        format!("{:?} at {at}: {} ({fix})", finding.severity, finding.message)
    }

    #[test]
    fn what_the_file_does_not_say_follows_from_the_event() {
        assert_snapshot!(check("event = 'stage_start'\ncommand = 'x'"), @r#"{"event":"stage_start","script":"x","blocking":true,"on_error":"proceed"}"#);
        assert_snapshot!(check("event = 'gate_asked'\nurl = 'https://h/'\nheaders = { Authorization = 'Bearer $T' }"), @r#"{"event":"gate_asked","url":"https://h/","headers":{"Authorization":"Bearer $T"},"blocking":false,"on_error":"proceed"}"#);
        assert_snapshot!(check("id = 'guard'\ntype = 'command'\nevent = 'pre_tool_use'\nmatcher = '^shell$'\ncommand = ['./guard', 'a b']\ntimeout_ms = 1500\non_error = 'block'"), @r#"{"name":"guard","event":"pre_tool_use","script":"'./guard' 'a b'","matcher":"^shell$","blocking":true,"timeout":{"secs":1,"nanos":500000000},"on_error":"block"}"#);
        assert_snapshot!(check("event = 'pre_tool_use'\nblocking = false\nscript = 'x'\nsandbox = false\ntls = 'verify'"), @r#"{"event":"pre_tool_use","script":"x","blocking":false,"on_error":"proceed"}"#);
        for url in ["http://127.0.0.1:9/x", "http://localhost/", "http://[::1]:80"] {
            assert!(check(&format!("event = 'run_failed'\nurl = '{url}'")).starts_with('{'));
        }
    }

    #[test]
    fn what_a_hook_cannot_be_is_an_error_with_a_place() {
        assert_snapshot!(check("command = 'x'"), @"Error at [[run.hooks]]: the hook of `run.hooks` has no `event` (name one, such as `stage_complete` or `gate_asked`)");
        assert_snapshot!(check("event = 'stage_strat'\ncommand = 'x'"), @"Error at 'stage_strat': `run.hooks.event` is `stage_strat` (did you mean `stage_start`?)");
        assert_snapshot!(check("name = 'n'\nevent = 'run_start'"), @"Error at [[run.hooks]]: the hook `n` of `run.hooks` has neither `command` nor `url` (give it the `command` to run, or the `url` to send the event to)");
        assert_snapshot!(check("event = 'run_start'\ncommand = 'x'\nurl = 'https://h/'"), @"Error at [[run.hooks]]: the hook of `run.hooks` has settings of a command and of a URL (give it the `command` to run, or the `url` to send the event to)");
        assert_snapshot!(check("event = 'run_start'\nheaders = { A = 'b' }"), @"Error at [[run.hooks]]: the hook of `run.hooks` has no `url` (give it one)");
        assert_snapshot!(check("event = 'run_start'\ntype = 'http'\ncommand = 'x'"), @"Error at 'http': the hook of `run.hooks` is of the type `http`, and its settings are not (remove `type`, or correct the settings)");
        assert_snapshot!(check("event = 'run_start'\ntype = 'prompt'\nprompt = 'Ok?'"), @r"
        Error at 'prompt': `run.hooks.type` is `prompt` (use `command` or `http`)
        Error at prompt: `run.hooks.prompt` is not supported: a hook runs a command or sends a request (ask the model in a script or in a stage)
        ");
        assert_snapshot!(check("event = 'gate_asked'\nurl = 'http://example.org/x'"), @"Error at 'http://example.org/x': the hook of `run.hooks` would send events unencrypted to another machine (use `https://`; `http://` is for this machine only)");
        assert_snapshot!(check("event = 'gate_asked'\nurl = 'http://127.0.0.1.example.org/x'"), @"Error at 'http://127.0.0.1.example.org/x': the hook of `run.hooks` would send events unencrypted to another machine (use `https://`; `http://` is for this machine only)");
        assert_snapshot!(check("event = 'edge_selected'\ncommand = 'x'\nblocking = true"), @"Error at true: the hook of `run.hooks` cannot block: `edge_selected` is sent when it has happened already (remove `blocking`, or use `stage_start` with the next node)");
        assert_snapshot!(check("event = 'stage_complete'\ncommand = 'x'\nblocking = true"), @"Error at true: the hook of `run.hooks` cannot block: `stage_complete` is sent when it has happened already (remove `blocking`: `run_start`, `stage_start` and `pre_tool_use` can block)");
        assert_snapshot!(check("event = 'post_tool_use'\ncommand = 'x'\nblocking = true"), @r#"
        {"event":"post_tool_use","script":"x","blocking":true,"on_error":"proceed"}
        Warning at true: the hook of `run.hooks` runs after the tool, so it cannot block: its decision is ignored (to forbid a call, use `pre_tool_use`)
        "#);
        assert_snapshot!(check("event = 'run_failed'\ncommand = 'x'\nmatcher = 'a'"), @"Error at 'a': the hook of `run.hooks` has a `matcher`, and `run_failed` has no node or tool (remove it)");
        assert_snapshot!(check("event = 'stage_start'\ncommand = 'x'\nmatcher = 'a('"), @r"Error at 'a(': the `matcher` of the hook of `run.hooks` is not a regular expression: unclosed group (correct it; `\` makes the next character literal)");
        assert_snapshot!(check("event = 'stage_failed'\ncommand = 'x'\non_error = 'block'"), @"Error at 'block': `on_error` of the hook of `run.hooks` has no effect: the hook forbids nothing (remove it)");
        assert_snapshot!(check("event = 'stage_failed'\ncommand = 'x'\ntimeout = 0"), @"Error at 0: `run.hooks.timeout` is not a duration (write it as `500ms`, `30s`, `10m` or `2h`)");
        assert_snapshot!(check("event = 'run_start'\nurl = 'https://h/'\nheaders = { X-Api-Key = 'abcdefghij' }"), @"Error at 'abcdefghij': `run.hooks.headers.X-Api-Key` contains a secret, and settings are stored with each run (put it into an environment variable, and write `$NAME`)");
    }

    #[test]
    fn settings_of_upstream_that_are_not_honoured_are_named() {
        assert_snapshot!(check("event = 'checkpoint_saved'\ncommand = 'x'"), @"Warning at [[run.hooks]]: the hook of `run.hooks` has no effect: nothing happens at `checkpoint_saved` (use `stage_complete` and `stage_failed`)");
        assert_snapshot!(check("event = 'sandbox_ready'\ncommand = 'x'"), @"Warning at [[run.hooks]]: the hook of `run.hooks` has no effect: nothing happens at `sandbox_ready` (use `run_start`)");
        assert_snapshot!(check("event = 'run_start'\ncommand = 'x'\nsandbox = true"), @r#"
        {"event":"run_start","script":"x","blocking":true,"on_error":"proceed"}
        Warning at sandbox: `run.hooks.sandbox` has no effect: hooks run on this machine, in the working directory, not in a sandbox (set it to false if they may)
        "#);
        assert_snapshot!(check("event = 'run_start'\nurl = 'https://h/'\ntls = 'no_verify'\nallowed_env_vars = ['T']"), @r#"
        {"event":"run_start","url":"https://h/","blocking":true,"on_error":"proceed"}
        Warning at tls: `run.hooks.tls` has no effect: certificates are always verified (remove it)
        "#);
    }

    #[test]
    fn every_event_has_a_name() {
        for (name, event) in EVENTS {
            assert_eq!(serde_json::to_value(event).unwrap(), name);
            assert_eq!(event.as_str(), name);
        }
    }

    #[test]
    fn hooks_of_weaker_settings_stay() {
        let hook = |name: &str| Hook {
            name: Some(name.to_owned()),
            event: RunStart,
            action: HookAction::Command { script: "x".to_owned() },
            matcher: None,
            blocking: true,
            timeout: None,
            on_error: OnHookError::Proceed,
        };
        let all = joined(vec![hook("a"), hook("b")], vec![hook("b"), hook("c")]);
        let names: Vec<_> = all.iter().filter_map(|hook| hook.name.as_deref()).collect();
        assert_eq!(names, ["a", "b", "c"]);
    }
}
