//! `[[webhooks]]`: where a server sends the events of runs.

use fabro_types::{nearest, one_of};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::hooks::is_loopback;
use crate::reader::{Node, Reader};

/// One `[[webhooks]]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Webhook {
    /// `url`: where events are sent.
    pub url: String,
    /// `secret_env`: the environment variable with the secret that requests are signed with.
    pub secret_env: String,
    /// `events`: their names; `run.*` means all that begin with `run.`, and `*` all.
    pub events: Vec<String>,
}

impl Webhook {
    /// Whether events of this name are sent.
    pub fn wants(&self, event: &str) -> bool {
        self.events.iter().any(|wanted| matches(wanted, event))
    }
}

fn matches(wanted: &str, event: &str) -> bool {
    wanted.strip_suffix('*').map_or(wanted == event, |start| event.starts_with(start))
}

/// The names of all events that a run records.
pub const EVENT_NAMES: [&str; 34] = [
    "run.created",
    "run.started",
    "run.resumed",
    "run.paused",
    "run.completed",
    "run.failed",
    "run.canceled",
    "stage.started",
    "stage.retrying",
    "stage.completed",
    "stage.failed",
    "edge.selected",
    "loop.restart",
    "parallel.started",
    "parallel.branch.started",
    "parallel.branch.completed",
    "parallel.completed",
    "gate.asked",
    "gate.answered",
    "context.refused",
    "checkpoint.forked",
    "agent.message",
    "agent.tool.started",
    "agent.tool.completed",
    "agent.compaction.started",
    "agent.compaction.completed",
    "agent.sub.spawned",
    "agent.sub.completed",
    "agent.sub.failed",
    "agent.sub.closed",
    "agent.steered",
    "artifact.captured",
    "agent.warning",
    "agent.error",
];

/// What is sent where `events` is not set: what a person or a program outside waits for. What models and tools
/// said is sent only when it is asked for.
const USUAL: [&str; 2] = ["run.*", "gate.*"];

impl Reader {
    /// Checks and completes a `[[webhooks]]`.
    pub(crate) fn webhook(&mut self, full: &str, node: &Node<'_>, hook: &mut Map<String, Value>) {
        self.needs(full, "webhook", &["url", "secret_env"], node, hook);
        if let Some(url) = hook.get("url").and_then(Value::as_str)
            && !url.starts_with("https://")
            && !is_loopback(url)
        {
            let message =
                format!("a webhook of `{full}` would send events unencrypted to another machine");
            self.at(node, "url", message, "use `https://`; `http://` is for this machine only");
        }
        if let Some(url) = hook.get("url").and_then(Value::as_str)
            && !self.webhooks.insert(url.to_owned())
        {
            let message = format!("two of `{full}` have the same `url`");
            self.at(node, "url", message, "write their events into one of them");
        }
        let events = hook.entry("events").or_insert_with(|| json!(USUAL));
        let events: Vec<String> = serde_json::from_value(events.clone()).unwrap_or_default();
        for wanted in &events {
            if EVENT_NAMES.iter().any(|event| matches(wanted, event)) {
                continue;
            }
            let fix = match nearest(wanted, EVENT_NAMES) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("use names such as {}", one_of(&["`run.completed`", "`gate.*`"])),
            };
            self.at(node, "events", format!("`{wanted}` of `{full}.events` is no event"), &fix);
        }
    }
}

/// The webhooks of weaker settings, then those of stronger ones, which win for the same URL.
pub(crate) fn joined(weaker: Vec<Webhook>, stronger: Vec<Webhook>) -> Vec<Webhook> {
    let is_replaced = |hook: &Webhook| stronger.iter().any(|other| other.url == hook.url);
    let kept: Vec<_> = weaker.into_iter().filter(|hook| !is_replaced(hook)).collect();
    kept.into_iter().chain(stronger).collect()
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;
    use crate::parse_settings;

    /// The webhooks of a config.toml with these lines, or what is wrong with them.
    fn check(lines: &str) -> String {
        let text = format!("_version = 1\n[[webhooks]]\n{lines}\n");
        match parse_settings(&text) {
            Ok((settings, findings)) => {
                let hooks = settings.webhooks.iter().map(|it| serde_json::to_string(it).unwrap());
                let findings = findings.iter().map(|it| it.message.clone());
                hooks.chain(findings).collect::<Vec<_>>().join("\n")
            }
            Err(list) => {
                let lines = list.iter().map(|it| {
                    format!("{} ({})", it.message, it.fix.as_deref().unwrap_or_default())
                });
                lines.collect::<Vec<_>>().join("\n")
            }
        }
    }

    #[test]
    fn a_webhook_has_a_url_a_secret_and_events() {
        let full = "url = 'https://h.example/x'\nsecret_env = '$S'";
        assert_snapshot!(check(full), @r#"{"url":"https://h.example/x","secret_env":"S","events":["run.*","gate.*"]}"#);
        assert_snapshot!(check("url = 'http://127.0.0.1:1/x'\nsecret_env = 'S'\nevents = ['stage.failed', 'agent.*']"), @r#"{"url":"http://127.0.0.1:1/x","secret_env":"S","events":["stage.failed","agent.*"]}"#);
        assert_snapshot!(check("events = ['run.complete', 'x']"), @r"
        a webhook of `webhooks` has no `url` (give it one)
        a webhook of `webhooks` has no `secret_env` (give it one)
        `run.complete` of `webhooks.events` is no event (did you mean `run.completed`?)
        `x` of `webhooks.events` is no event (use names such as `run.completed` or `gate.*`)
        ");
        assert_snapshot!(check("url = 'http://h.example/x'\nsecret_env = 'S'\nsecret = 'abc'"), @r"
        a webhook of `webhooks` would send events unencrypted to another machine (use `https://`; `http://` is for this machine only)
        `webhooks.secret` is not a setting (remove it, or correct its name)
        ");
        assert_snapshot!(check(&format!("{full}\n[[webhooks]]\n{full}")), @"two of `webhooks` have the same `url` (write their events into one of them)");
    }

    #[test]
    fn names_and_beginnings_of_names_are_events() {
        let hook = |events: &[&str]| Webhook {
            url: String::new(),
            secret_env: String::new(),
            events: events.iter().map(|it| (*it).to_owned()).collect(),
        };
        assert!(hook(&["run.*"]).wants("run.failed"));
        assert!(!hook(&["run.*"]).wants("gate.asked"));
        assert!(hook(&["*"]).wants("gate.asked"));
        assert!(!hook(&["gate.asked"]).wants("gate.answered"));
        assert!(!hook(&[]).wants("run.failed"));
    }

    #[test]
    fn the_project_wins_for_the_same_url() {
        let hook = |url: &str, secret: &str| Webhook {
            url: url.to_owned(),
            secret_env: secret.to_owned(),
            events: Vec::new(),
        };
        let both = joined(vec![hook("a", "1"), hook("b", "2")], vec![hook("a", "3")]);
        assert_eq!(both, [hook("b", "2"), hook("a", "3")]);
    }
}
