use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use fabro_types::BranchPath;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

use crate::{AskError, Interviewer, Question, Reply};

/// Canned answers: each gate has a queue. The source is `answers`. A gate
/// whose queue is empty, or that has none, is unavailable.
///
/// ```
/// use fabro_gate::{Interviewer, Question, QueueInterviewer, Reply};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// let answers = QueueInterviewer::from_json(r#"{"review": ["R", "shorter, please"]}"#)?;
/// let question = Question { node: "review".into(), ..Question::default() };
/// let mut ask = || runtime.block_on(answers.ask(&question));
/// assert_eq!(ask()?, Reply::Answer { text: "R".to_owned(), source: "answers" });
/// assert_eq!(ask()?, Reply::Answer { text: "shorter, please".to_owned(), source: "answers" });
/// assert_eq!(ask()?, Reply::Unavailable);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct QueueInterviewer {
    answers: Mutex<Answers>,
}

impl QueueInterviewer {
    /// Reads an object of answer lists by gate: `{"review": ["A", "free text"]}`. A key may also name the
    /// gate of one list element (`review[1]`) or one visit (`each@1/work[1]/review@1`). The most
    /// specific key wins.
    ///
    /// # Errors
    ///
    /// The text is not JSON, or has another form: the error has the position and the expected form.
    pub fn from_json(text: &str) -> Result<Self, AnswersError> {
        let Lists(answers) = serde_json::from_str(text).map_err(|error| {
            let message = error.to_string();
            let place = format!(" at line {} column {}", error.line(), error.column());
            AnswersError {
                line: error.line().max(1),
                column: error.column().max(1),
                message: message.strip_suffix(&place).unwrap_or(&message).to_owned(),
            }
        })?;
        Ok(Self { answers: Mutex::new(answers) })
    }

    /// The source of its answers, as the log has it.
    pub const SOURCE: &str = "answers";

    /// Skips the first `count` answers of a gate, which an earlier driver of the run used.
    pub fn skip(&self, gate: &GateVisit, count: usize) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(list) = list_of(&mut answers, gate) {
            list.drain(..count.min(list.len()));
        }
    }
}

/// A visit of a gate. It determines which list of answers is used.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct GateVisit {
    /// Its node.
    pub node: Arc<str>,
    /// Which visit of it, from 1.
    pub visit: u32,
    /// The branch; `None` on the main line.
    pub branch: Option<Arc<str>>,
}

impl GateVisit {
    /// The keys that may hold its answers, most specific first: `review[1]` before `review`.
    pub fn names(&self) -> Vec<String> {
        let branch = BranchPath::new(self.branch.as_deref().unwrap_or_default());
        branch.stage_names(&self.node, self.visit)
    }
}

type Answers = BTreeMap<String, VecDeque<String>>;

fn list_of<'l>(lists: &'l mut Answers, gate: &GateVisit) -> Option<&'l mut VecDeque<String>> {
    let name = gate.names().into_iter().find(|name| lists.contains_key(name))?;
    lists.get_mut(&name)
}

#[async_trait]
impl Interviewer for QueueInterviewer {
    async fn ask(&self, question: &Question) -> Result<Reply, AskError> {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let Question { node, visit, branch, .. } = question;
        let gate = GateVisit { node: node.clone(), visit: *visit, branch: branch.clone() };
        let next = list_of(&mut answers, &gate).and_then(VecDeque::pop_front);
        Ok(next.map_or(Reply::Unavailable, |text| Reply::Answer { text, source: Self::SOURCE }))
    }
}

/// A file of answers that does not parse.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
#[non_exhaustive]
pub struct AnswersError {
    /// Line, from 1.
    pub line: usize,
    /// Column in bytes, from 1.
    pub column: usize,
    /// What is wrong and what to write instead.
    pub message: String,
}

struct Lists(Answers);

impl<'de> Deserialize<'de> for Lists {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ListsVisitor).map(Lists)
    }
}

struct ListsVisitor;

impl<'de> Visitor<'de> for ListsVisitor {
    type Value = Answers;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(r#"an object of answers by node, as {"review": ["A", "free text"]}"#)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut lists = BTreeMap::new();
        while let Some(node) = map.next_key::<String>()? {
            if lists.contains_key(&node) {
                let message =
                    format!("`{node}` is listed twice: put all its answers into one list");
                return Err(A::Error::custom(message));
            }
            lists.insert(node, map.next_value()?);
        }
        Ok(lists)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_where_and_what_to_write() {
        let files = [
            "",
            "[\"A\"]",
            "{\"a\": \"A\"}",
            "{\n \"a\": [1]}",
            "{\"a\": [], \"a\": []}",
            "{\"a\": [[[[",
        ];
        let errors = files.map(|text| QueueInterviewer::from_json(text).unwrap_err().to_string());
        insta::assert_snapshot!(errors.join("\n"), @r#"
        line 1, column 1: EOF while parsing a value
        line 1, column 1: invalid type: sequence, expected an object of answers by node, as {"review": ["A", "free text"]}
        line 1, column 9: invalid type: string "A", expected a sequence
        line 2, column 8: invalid type: integer `1`, expected a string
        line 1, column 13: `a` is listed twice: put all its answers into one list
        line 1, column 7: invalid type: sequence, expected a string
        "#);
    }

    #[tokio::test]
    async fn the_most_specific_answer_list_wins() {
        let lists = r#"{"ask": ["1", "2"], "ask[1]": ["x", "y"], "each@2/work[1]/ask@2": ["z"]}"#;
        let answers = QueueInterviewer::from_json(lists).unwrap();
        let gate = |branch: &str, visit| GateVisit {
            node: "ask".into(),
            visit,
            branch: Some(branch).filter(|branch| !branch.is_empty()).map(Arc::from),
        };
        answers.skip(&gate("each@1/work[1]", 1), 1);
        let mut answered = Vec::new();
        for (branch, visit) in [
            ("each@1/work[0]", 1),
            ("each@1/work[1]", 1),
            ("each@1/work[1]", 1),
            ("each@2/work[1]", 2),
            ("", 3),
        ] {
            let GateVisit { node, visit, branch } = gate(branch, visit);
            let question = Question { node, visit, branch, ..Question::default() };
            answered.push(match answers.ask(&question).await.unwrap() {
                Reply::Answer { text, .. } => text,
                Reply::Unavailable => "-".to_owned(),
            });
        }
        assert_eq!(answered, ["1", "y", "-", "z", "2"]);
    }

    #[tokio::test]
    async fn each_gate_has_its_own_list() {
        let answers = QueueInterviewer::from_json(r#"{"a": ["1", "2"], "b": ["3"]}"#).unwrap();
        let mut answered = Vec::new();
        for node in ["a", "b", "a", "b", "c"] {
            let question = Question { node: node.into(), ..Question::default() };
            answered.push(match answers.ask(&question).await.unwrap() {
                Reply::Answer { text, .. } => text,
                Reply::Unavailable => "-".to_owned(),
            });
        }
        assert_eq!(answered, ["1", "3", "2", "-", "-"]);
    }
}
