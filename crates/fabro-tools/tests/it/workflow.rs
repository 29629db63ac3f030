use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use fabro_tools::{
    AppendError, ToolContext, WorkflowContext, append_workflow_context, get_workflow_context,
};
use insta::assert_snapshot;
use serde_json::{Map, Value, json};

use crate::setup::Agent;

/// A context in memory.
#[derive(Default)]
struct MemoryContext {
    values: Map<String, Value>,
    notes: Mutex<Vec<String>>,
}

#[async_trait]
impl WorkflowContext for MemoryContext {
    fn read(&self, keys: &[String]) -> Map<String, Value> {
        let wanted = |key: &String| keys.is_empty() || keys.contains(key);
        let values = self.values.iter().filter(|(key, _)| wanted(key));
        values.map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    async fn append(&self, text: &str) -> Result<(), AppendError> {
        self.notes.lock().unwrap().push(text.to_owned());
        Ok(())
    }
}

#[tokio::test]
async fn what_the_workflow_knows() {
    let values = json!({"plan": "short", "long": "ä".repeat(3_000), "n": {"a": [1, 2]}});
    let Value::Object(values) = values else { panic!("it is an object") };
    let context = MemoryContext { values, ..MemoryContext::default() };
    let mut agent = Agent::new([get_workflow_context(Arc::new(context))]);
    agent.context = ToolContext {
        workflow_summary: "They agreed.".to_owned(),
        recent_turns: vec!["planner: yes".to_owned()],
        round: 7,
    };
    let told = agent.ok("get_workflow_context", json!({})).await;
    assert_snapshot!(told.replace(&"ä".repeat(2_000), "ä…ä"), @r#"
    {
      "workflow_summary": "They agreed.",
      "recent_turns": [
        "planner: yes"
      ],
      "round": 7,
      "context": {
        "plan": "short",
        "long": "ä…ä [… 1000 more characters]",
        "n": {
          "a": [
            1,
            2
          ]
        }
      }
    }
    "#);
    let told = agent.ok("get_workflow_context", json!({"keys": ["long", "none"]})).await;
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["context"], json!({"long": "ä".repeat(3_000)}));
    assert_eq!(told["round"], 7);
}

#[tokio::test]
async fn notes() {
    let context = Arc::new(MemoryContext::default());
    let agent = Agent::new([append_workflow_context(context.clone())]);
    assert_eq!(agent.ok("append_workflow_context", json!({"text": "use v2"})).await, "noted");
    assert_eq!(*context.notes.lock().unwrap(), ["use v2"]);
    agent.fails("append_workflow_context", json!({"text": ""})).await;
    agent.fails("append_workflow_context", json!({"text": "x".repeat(4_001)})).await;
    agent.fails("append_workflow_context", json!({})).await;
    assert_eq!(context.notes.lock().unwrap().len(), 1);
}

struct Full;

#[async_trait]
impl WorkflowContext for Full {
    fn read(&self, _: &[String]) -> Map<String, Value> {
        Map::new()
    }

    async fn append(&self, _: &str) -> Result<(), AppendError> {
        Err(AppendError { reason: "the store is read-only".to_owned() })
    }
}

#[tokio::test]
async fn a_note_that_is_not_taken() {
    let agent = Agent::new([append_workflow_context(Arc::new(Full))]);
    assert_snapshot!(agent.fails("append_workflow_context", json!({"text": "x"})).await, @"the workflow did not take the note: the store is read-only");
}
