//! What must hold for conversations after kills: checks of the log of the run and of the
//! requests to the model.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::workflow::AT_ONCE;
use crate::model::{Asked, INTERRUPTED, text_of};

/// The conversations of one run.
pub(super) struct Conversations<'a> {
    log: &'a [Asked],
    sessions: BTreeMap<String, Session>,
}

/// What was recorded of one session.
#[derive(Default)]
struct Session {
    is_sub: bool,
    /// The numbers of the requests whose answers were recorded, in order.
    answers: Vec<usize>,
    /// Its calls, by id.
    calls: BTreeMap<String, Call>,
    wrong: Vec<String>,
}

#[derive(Default)]
struct Call {
    /// The line that the call adds.
    line: Option<String>,
    /// How many results were recorded; one is right.
    results: usize,
    /// The result.
    output: String,
}

impl Call {
    fn is_interrupted(&self) -> bool {
        self.output.starts_with(INTERRUPTED)
    }
}

impl<'a> Conversations<'a> {
    /// From the events of a run, a line each, and the model's log.
    pub(super) fn new<'e>(events: impl Iterator<Item = &'e String>, log: &'a [Asked]) -> Self {
        let mut sessions: BTreeMap<String, Session> = BTreeMap::new();
        for line in events {
            let event: Value = serde_json::from_str(line).unwrap_or_default();
            let Some(id) = event["session_id"].as_str() else { continue };
            let session = sessions.entry(id.to_owned()).or_default();
            session.is_sub |= !event["parent_session_id"].is_null();
            session.take(&event, log);
        }
        Self { log, sessions }
    }

    /// Everything that is wrong after so many kills; `lines` are those that commands have left.
    pub(super) fn wrong(&self, kills: usize, lines: &BTreeMap<String, usize>) -> Vec<String> {
        let mut wrong = Vec::new();
        for (number, asked) in self.log.iter().enumerate() {
            if let Err(why) = is_whole(&asked.messages) {
                wrong.push(format!("request {}: {why}", number + 1));
            }
        }
        for (id, session) in &self.sessions {
            wrong.extend(session.wrong.iter().map(|why| format!("session {id}: {why}")));
            wrong.extend(session.results().map(|why| format!("session {id}: {why}")));
            wrong.extend(self.continues(session).map(|why| format!("session {id}: {why}")));
        }
        wrong.extend(self.shown());
        wrong.extend(self.paid_twice(kills));
        wrong.extend(self.lines(lines));
        wrong
    }

    /// What the model was shown of results is what was recorded of them.
    fn shown(&self) -> BTreeSet<String> {
        let calls = self.sessions.values().flat_map(|session| &session.calls);
        let recorded: BTreeMap<_, _> = calls.map(|(id, call)| (id.as_str(), call)).collect();
        let messages = self.log.iter().flat_map(|asked| &asked.messages);
        let results = messages.filter(|message| message["role"] == "tool");
        let wrong = results.filter_map(|message| {
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            let was = recorded.get(id).map_or("nothing", |call| &call.output);
            let is = text_of(message);
            (is != was).then(|| format!("the result of {id} was shown as `{is}`, and is `{was}`"))
        });
        wrong.collect()
    }

    /// Answers that were recorded are asked for once, and few are lost.
    fn paid_twice(&self, kills: usize) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut recorded = BTreeSet::new();
        for number in self.sessions.values().flat_map(|session| &session.answers) {
            if !recorded.insert(*number) {
                wrong.push(format!("the answer to request {number} was recorded twice"));
            }
        }
        let mut first: BTreeMap<String, usize> = BTreeMap::new();
        for (number, asked) in self.log.iter().enumerate() {
            let number = number + 1;
            let talk = Value::from(asked.messages.clone()).to_string();
            if let Some(before) = first.get(&talk)
                && !self.is_of_siblings(*before)
            {
                wrong.push(format!(
                    "request {number} asks again for the answer to request {before}, which was recorded"
                ));
            }
            if recorded.contains(&number) {
                first.insert(talk, number);
            }
        }
        let lost = self.log.len() - recorded.len().min(self.log.len());
        let most = kills * AT_ONCE;
        if lost > most {
            wrong.push(format!("{lost} answers were lost in {kills} kills, at most {most} may be"));
        }
        wrong
    }

    /// The answer is one of a subagent that has another beside it: a spawn that was interrupted is asked for
    /// again with the same task, and the two agents ask the same.
    fn is_of_siblings(&self, number: usize) -> bool {
        let parent = |id: &str| id.rsplit_once('/').map(|(parent, _)| parent.to_owned());
        let owner = self
            .sessions
            .iter()
            .find(|(_, session)| session.is_sub && session.answers.contains(&number));
        owner.is_some_and(|(owner, _)| {
            let subs = self.sessions.iter().filter(|(_, session)| session.is_sub);
            subs.filter(|(id, _)| parent(id) == parent(owner)).count() > 1
        })
    }

    /// Each request of a session continues the one before it.
    fn continues(&self, session: &Session) -> impl Iterator<Item = String> {
        session.answers.windows(2).filter_map(|pair| {
            let before = self.asked(pair[0])?;
            let after = self.asked(pair[1])?;
            let had = &before.messages;
            let has = &after.messages;
            let is_continued = has.starts_with(had)
                && has
                    .get(had.len())
                    .is_some_and(|next| ids(next) == before.calls && text_of(next) == before.text);
            let [first, second] = pair else { return None };
            (!is_continued).then(|| format!("request {second} does not continue request {first}"))
        })
    }

    /// Every call left at most one line, and one if it has a result that was not interrupted.
    fn lines(&self, lines: &BTreeMap<String, usize>) -> Vec<String> {
        let mut bounds: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for call in self.sessions.values().flat_map(|session| session.calls.values()) {
            let Some(line) = &call.line else { continue };
            let (least, most) = bounds.entry(line).or_default();
            *least += usize::from(call.results > 0 && !call.is_interrupted());
            *most += 1;
        }
        let wrong = bounds.iter().filter_map(|(line, (least, most))| {
            let left = lines.get(*line).copied().unwrap_or_default();
            let is_right = (least..=most).contains(&&left);
            (!is_right).then(|| format!("calls of {line} left {left} lines, not {least} to {most}"))
        });
        wrong.collect()
    }

    fn asked(&self, number: usize) -> Option<&Asked> {
        self.log.get(number.checked_sub(1)?)
    }
}

impl Session {
    fn take(&mut self, event: &Value, log: &[Asked]) {
        let properties = &event["properties"];
        match event["event"].as_str().unwrap_or_default() {
            "agent.message" if properties["role"] == "assistant" => self.answer(properties, log),
            "agent.tool.completed" => {
                let id = properties["call_id"].as_str().unwrap_or_default();
                let Some(call) = self.calls.get_mut(id) else {
                    self.wrong.push(format!("a result of {id}, which was not requested"));
                    return;
                };
                call.results += 1;
                let output = properties["output"].as_str().unwrap_or_default();
                output.clone_into(&mut call.output);
            }
            _ => {}
        }
    }

    /// An answer says which request it belongs to: it must be what was answered.
    fn answer(&mut self, properties: &Value, log: &[Asked]) {
        let usage = &properties["usage"];
        let number = usage["input_tokens"].as_u64().unwrap_or_default();
        let number = usize::try_from(number).unwrap_or_default();
        let content = properties["message"]["content"].as_array().map(Vec::as_slice);
        let content = content.unwrap_or_default();
        let calls = content.iter().filter(|part| part["type"] == "tool_call");
        let given: Vec<_> = calls.clone().map(|call| call["id"].as_str().unwrap_or("")).collect();
        let text: String = content.iter().filter_map(|part| part["text"].as_str()).collect();
        let is_right = number
            .checked_sub(1)
            .and_then(|at| log.get(at))
            .is_some_and(|asked| asked.calls == given && asked.text == text && usage["turns"] == 1);
        if !is_right {
            self.wrong.push(format!("an answer is not that to request {number}: {properties}"));
        }
        self.answers.push(number);
        for call in calls {
            let id = call["id"].as_str().unwrap_or_default().to_owned();
            let command = call["arguments"]["command"].as_str().unwrap_or_default();
            let line = command.split_once("echo ").and_then(|(_, rest)| rest.split_once(" >>"));
            let line = line.map(|(line, _)| line.to_owned());
            self.calls.insert(id, Call { line, ..Call::default() });
        }
    }

    /// Every call has one result; those of an agent that was lost may have none.
    fn results(&self) -> impl Iterator<Item = String> {
        let wrong = self
            .calls
            .iter()
            .filter(|(_, call)| call.results > 1 || (call.results == 0 && !self.is_sub));
        wrong.map(|(id, call)| format!("call {id} has {} results", call.results))
    }
}

/// Whether a provider would take a conversation: it ends with a question or results, and the
/// results of an answer's calls follow it, each once and in order.
fn is_whole(messages: &[Value]) -> Result<(), String> {
    let mut open: Vec<String> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().unwrap_or_default();
        if role == "tool" {
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            if open.first().is_none_or(|first| first != id) {
                return Err(format!("message {at} is the result of {id}, which is not due"));
            }
            open.remove(0);
            continue;
        }
        if let Some(id) = open.first() {
            return Err(format!("message {at} stands where the result of {id} is due"));
        }
        match role {
            "assistant" => open = ids(message),
            "system" if at > 0 && messages[at - 1]["role"] != "system" => {
                return Err(format!("message {at} is a system prompt in the middle"));
            }
            "system" | "user" => {}
            other => return Err(format!("message {at} is from `{other}`")),
        }
    }
    match (open.first(), messages.last()) {
        (Some(id), _) => Err(format!("the result of {id} is missing")),
        (None, Some(last)) if last["role"] != "assistant" => Ok(()),
        _ => Err("it does not end with anything to answer".to_owned()),
    }
}

/// The ids of the calls of a message.
fn ids(message: &Value) -> Vec<String> {
    let calls = message["tool_calls"].as_array().map(Vec::as_slice).unwrap_or_default();
    calls.iter().filter_map(|call| call["id"].as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn question() -> Value {
        json!({"role": "user", "content": "PLAN a@1: shell, say"})
    }

    fn calls(of: &[&str]) -> Value {
        let calls: Vec<_> = of.iter().map(|id| json!({"id": id})).collect();
        json!({"role": "assistant", "tool_calls": calls})
    }

    fn result(id: &str) -> Value {
        json!({"role": "tool", "tool_call_id": id, "content": "done"})
    }

    fn asked(messages: &[Value], calls: &[&str], text: &str) -> Asked {
        let calls = calls.iter().map(|&id| id.to_owned()).collect();
        Asked { messages: messages.to_vec(), calls, text: text.to_owned() }
    }

    fn answer(number: usize, content: &Value) -> String {
        json!({"event": "agent.message", "session_id": "a@1", "properties": {"role": "assistant",
            "message": {"content": content}, "usage": {"input_tokens": number, "turns": 1}}})
        .to_string()
    }

    fn completed(id: &str, output: &str) -> String {
        json!({"event": "agent.tool.completed", "session_id": "a@1",
            "properties": {"call_id": id, "output": output}})
        .to_string()
    }

    fn call(id: &str) -> Value {
        json!([{"type": "tool_call", "id": id, "arguments": {"command": "echo a@1 >> x"}}])
    }

    #[track_caller]
    fn check(events: &[String], log: &[Asked], kills: usize, lines: usize, wrong: &[&str]) {
        let lines = BTreeMap::from([("a@1".to_owned(), lines)]);
        assert_eq!(Conversations::new(events.iter(), log).wrong(kills, &lines), wrong);
    }

    #[test]
    fn conversations_in_order_are_whole() {
        let whole = |messages: &[Value]| is_whole(messages);
        assert_eq!(whole(&[question(), calls(&["a", "b"]), result("a"), result("b")]), Ok(()));
        let wrong = |messages: &[Value]| whole(messages).unwrap_err();
        assert_eq!(
            wrong(&[question(), calls(&["a"]), question()]),
            "message 2 stands where the result of a is due"
        );
        assert_eq!(
            wrong(&[question(), calls(&["a"]), result("a"), result("a")]),
            "message 3 is the result of a, which is not due"
        );
        assert_eq!(wrong(&[question(), calls(&["a"])]), "the result of a is missing");
        assert_eq!(wrong(&[question(), calls(&[])]), "it does not end with anything to answer");
    }

    #[test]
    fn what_is_paid_twice_is_found() {
        let text = json!([{"type": "text", "text": "Done."}]);
        let once = [asked(&[question()], &[], "Done.")];
        check(&[answer(1, &text)], &once, 0, 0, &[]);
        let twice = [once[0].clone(), once[0].clone()];
        // The first answer was lost.
        check(&[answer(2, &text)], &twice, 1, 0, &[]);
        check(
            &[answer(2, &text)],
            &twice,
            0,
            0,
            &["1 answers were lost in 0 kills, at most 0 may be"],
        );
        check(
            &[answer(1, &text)],
            &twice,
            1,
            0,
            &["request 2 asks again for the answer to request 1, which was recorded"],
        );
    }

    #[test]
    fn results_and_lines_are_counted() {
        let check = |results: &[&str], kills: usize, lines: usize, wrong: &[&str]| {
            let shown = json!({"role": "tool", "tool_call_id": "c",
                "content": results.last().copied().unwrap_or_default()});
            let after = [question(), calls(&["c"]), shown];
            let log = [asked(&[question()], &["c"], ""), asked(&after, &[], "Done.")];
            let mut events = vec![answer(1, &call("c"))];
            events.extend(results.iter().map(|output| completed("c", output)));
            events.push(answer(2, &json!([{"type": "text", "text": "Done."}])));
            check(&events, &log, kills, lines, wrong);
        };
        check(&["done"], 0, 1, &[]);
        check(&["done"], 0, 2, &["calls of a@1 left 2 lines, not 1 to 1"]);
        check(&["[interrupted: …]"], 1, 0, &[]);
        check(&[], 1, 1, &["session a@1: call c has 0 results"]);
        check(&["a", "b"], 1, 1, &["session a@1: call c has 2 results"]);
    }

    #[test]
    fn what_was_shown_otherwise_is_found() {
        let said = json!({"role": "assistant", "content": "Ok.", "tool_calls": [{"id": "c"}]});
        let after = [question(), said, result("c")];
        let log = [asked(&[question()], &["c"], "Done."), asked(&after, &[], "Done.")];
        let done = json!({"type": "text", "text": "Done."});
        let first = json!([done, call("c")[0]]);
        let events = [answer(1, &first), completed("c", "undone"), answer(2, &json!([done]))];
        check(
            &events,
            &log,
            0,
            1,
            &[
                "session a@1: request 2 does not continue request 1",
                "the result of c was shown as `done`, and is `undone`",
            ],
        );
    }
}
