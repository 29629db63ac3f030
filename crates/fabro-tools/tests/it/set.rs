use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use fabro_llm::ToolSpec;
use fabro_redact::Redactor;
use fabro_tools::{Call, CallGuard, Limits, Output, Tool, ToolSet, file_tools};
use fabro_types::Permissions;
use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::setup::Agent;

/// Says what it was asked to say.
struct Echo(ToolSpec);

impl Echo {
    fn tool(schema: Value) -> Arc<dyn Tool> {
        Arc::new(Self(ToolSpec {
            name: "echo".to_owned(),
            description: "Says it again.".to_owned(),
            parameters: Arc::new(schema),
        }))
    }
}

#[async_trait]
impl Tool for Echo {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn needs(&self) -> Permissions {
        Permissions::Full
    }

    fn instructions(&self) -> Option<&str> {
        Some("Shout.\n")
    }

    async fn call(&self, call: Call<'_>) -> Output {
        Output::ok(call.arguments.get("text").and_then(Value::as_str).unwrap_or("nothing"))
    }
}

fn echo() -> Agent {
    let schema = json!({
        "type": "object", "additionalProperties": false,
        "properties": {"text": {"type": "string"}, "times": {"type": "integer", "maximum": 9}},
    });
    Agent::new([Echo::tool(schema)])
}

#[tokio::test]
async fn what_a_model_gets_wrong_is_told() {
    let agent = echo();
    assert_snapshot!(agent.fails("ecko", json!({})).await, @"there is no tool `ecko`: did you mean `echo`?");
    assert_snapshot!(agent.fails("rm", json!({})).await, @"there is no tool `rm`: choose from echo");
    assert_snapshot!(agent.fails("echo", json!("{\"text\": \"so")).await, @"the arguments of `echo` are not valid JSON (EOF while parsing a string at line 1 column 12): call it again, with all of them");
    assert_snapshot!(agent.fails("echo", json!("{\"text\": 1}")).await, @"the arguments of `echo` are a string: pass a JSON object");
    assert_snapshot!(agent.fails("echo", json!({"text": 1, "times": 12, "x": "y"})).await, @r#"the arguments of `echo` are not valid: /text: value is not of type "string"; /times: value is greater than the maximum of 9; Additional properties are not allowed ('x' was unexpected). Call it again."#);
    assert_eq!(agent.ok("echo", Value::Null).await, "nothing");
    assert_eq!(agent.ok("echo", json!({"text": "hi"})).await, "hi");
    let long = "x".repeat(1 << 20);
    assert!(agent.fails(&long, json!({})).await.len() < 200);
    assert!(agent.fails("echo", json!({ long: 1 })).await.len() < 1_000);
    let deep = (0..100).fold(json!(1), |value, _| json!([value]));
    assert!(agent.fails("echo", json!({"text": deep})).await.len() < 1_000);
}

#[tokio::test]
async fn a_schema_that_is_broken_is_told_and_fetches_nothing() {
    for (schema, said) in [
        (json!({"type": "strng"}), "/type"),
        (json!({"$ref": "http://127.0.0.1:1/schema"}), "127.0.0.1"),
        (json!({"$ref": "file:///etc/passwd"}), "etc/passwd"),
        (json!([]), "not an object"),
    ] {
        let text = Agent::new([Echo::tool(schema)]).fails("echo", json!({})).await;
        assert!(text.contains("JSON Schema is not valid") && text.contains(said), "{text}");
    }
    let redos = json!({"properties": {"text": {"pattern": "^(a+)+(?=b)$"}}});
    let agent = Agent::new([Echo::tool(redos)]);
    agent.run("echo", json!({"text": "a".repeat(100_000)})).await;
}

/// Allows what is short, and keeps what calls gave.
#[derive(Default)]
struct Short(Mutex<Vec<String>>);

#[async_trait]
impl CallGuard for Short {
    async fn ended(&self, tool: &str, call: Call<'_>, output: &Output) {
        let line = format!("{tool} {} {} {}", call.id, output.is_error, output.text);
        self.0.lock().unwrap().push(line);
    }

    async fn refusal(&self, tool: &str, call: Call<'_>) -> Option<String> {
        let text = call.arguments.get("text")?.as_str()?;
        (text.len() > 3).then(|| format!("{tool} {} is too long", call.id))
    }
}

#[tokio::test]
async fn a_guard_is_asked_before_each_call_and_told_of_its_end() {
    let mut agent = echo();
    let guard = Arc::new(Short::default());
    agent.tools = agent.tools.with_guard(Arc::clone(&guard) as _).for_another_agent();
    assert_eq!(agent.ok("echo", json!({"text": "hi"})).await, "hi");
    assert_eq!(agent.fails("echo", json!({"text": "hello"})).await, "echo 1 is too long");
    // It need not look at what would be refused anyway.
    let wrong = agent.fails("echo", json!({"text": "hello", "times": 12})).await;
    assert!(wrong.contains("are not valid"), "{wrong}");
    agent.tools = agent.tools.select(&["echo"]).bounded(1_000);
    assert_eq!(agent.fails("echo", json!({"text": "hello"})).await, "echo 1 is too long");
    assert_eq!(
        *guard.0.lock().unwrap(),
        ["echo 1 false hi", "echo 1 true echo 1 is too long", "echo 1 true echo 1 is too long"]
    );
}

#[tokio::test]
async fn permissions() {
    let tools = file_tools(Arc::new(fabro_sandbox::MemoryFiles::default()))
        .into_iter()
        .fold(echo().tools, ToolSet::with);
    let names = |permissions| tools.allowed(permissions).names().join(" ");
    assert_snapshot!(names(Permissions::ReadOnly), @"glob grep list_dir read_file");
    assert_snapshot!(names(Permissions::ReadWrite), @"apply_patch edit_file glob grep list_dir read_file write_file");
    assert_snapshot!(names(Permissions::Full), @"apply_patch echo edit_file glob grep list_dir read_file write_file");
    let specs = tools.specs(Permissions::ReadOnly);
    assert!(specs.iter().map(|spec| &*spec.name).eq(["glob", "grep", "list_dir", "read_file"]));
    assert_eq!(tools.instructions(Permissions::ReadWrite), "");
    assert_eq!(tools.instructions(Permissions::Full), "### echo\n\nShout.");
    assert_eq!(tools.select(&["grep", "echo", "none"]).names(), ["echo", "grep"]);

    let agent = echo();
    let refused = agent
        .tools
        .run("echo", "1", &json!({}), &agent.context, &agent.cancel, Permissions::ReadWrite)
        .await;
    assert!(refused.is_error);
    assert_snapshot!(refused.text, @r#"`echo` is not permitted: it needs permissions "full", and this agent has "read-write". Go on without it, or say in your answer that permissions="full" on the node or in [run.agent] would allow it."#);
}

#[tokio::test]
async fn every_schema_is_closed_and_every_description_says_something() {
    let tools = file_tools(Arc::new(fabro_sandbox::MemoryFiles::default()));
    for tool in tools {
        let spec = tool.spec();
        assert_eq!(spec.parameters["additionalProperties"], false, "{}", spec.name);
        assert_eq!(spec.parameters["type"], "object", "{}", spec.name);
        assert!(spec.description.len() > 80, "{}", spec.name);
        let properties = spec.parameters["properties"].as_object().unwrap();
        assert!(properties.values().all(|it| it["description"].is_string()), "{}", spec.name);
    }
}

#[tokio::test]
async fn outputs_are_redacted_then_cut() {
    let mut agent = echo();
    let redactor = Redactor::new([("PASSWORD", "hunter2-hunter2")]);
    let limits = Limits { head: 12, tail: 12, line: 1_000 };
    agent.tools = agent.tools.with_redactor(redactor).with_limits(limits);
    let text = |text: &str| json!({"text": text});
    assert_eq!(agent.ok("echo", text("a hunter2-hunter2")).await, "a [redacted:PASSWORD]");
    // A cut through the secret would leave a half of it.
    let cut = agent.ok("echo", text(&format!("1234 hunter2-hunter2 {}", "x".repeat(99)))).await;
    assert_snapshot!(cut, @r"
    1234 [redact
    [… 100 characters omitted …]
    xxxxxxxxxxxx
    ");
    let long = "ä".repeat(1 << 20);
    let cut = agent.ok("echo", text(&long)).await;
    assert!(cut.contains("characters omitted") && cut.chars().count() < 100, "{cut}");
}

#[tokio::test]
async fn names_of_files_are_redacted() {
    let (mut agent, files) = Agent::with(&[]);
    agent.tools = agent.tools.with_redactor(Redactor::new([("PASSWORD", "hunter2-hunter2")]));
    let name = "notes/hunter2-hunter2.txt";
    let written = agent.run("write_file", json!({"file_path": name, "content": "x"})).await;
    assert_eq!(written.files_modified, ["notes/[redacted:PASSWORD].txt"]);
    let read = agent.run("read_file", json!({"file_path": name})).await;
    assert_eq!(read.files_read, ["notes/[redacted:PASSWORD].txt"]);
    assert_eq!(files.all()[name], b"x");
}
