use serde_json::json;

use super::*;
use crate::{ToolCall, ToolSpec};

const SOURCE: ReasoningSource<'_> = ReasoningSource { provider: "anthropic", model: "m" };

fn text(text: &str) -> Content {
    Content::Text { text: text.to_owned() }
}

fn call(id: &str) -> Content {
    let name = "ls".to_owned();
    Content::ToolCall(ToolCall { id: id.to_owned(), name, arguments: json!({"path": "a"}) })
}

fn result(id: &str, text: &str) -> Content {
    Content::ToolResult { id: id.to_owned(), text: text.to_owned(), is_error: false }
}

fn message(role: Role, content: Vec<Content>) -> Arc<Message> {
    Arc::new(Message { role, content })
}

fn tool(name: &str) -> ToolSpec {
    let parameters = Arc::new(json!({"type": "object"}));
    ToolSpec { name: name.to_owned(), description: String::new(), parameters }
}

fn request(messages: Vec<Arc<Message>>) -> Request {
    let mut request = Request::new(messages);
    request.tools = [tool("ls")].into();
    request
}

/// A conversation with two answers, each with the signed thought that was made for it.
fn signed() -> Request {
    let mut request = request(vec![Message::system("s").into(), Message::user("u").into()]);
    for id in ["c1", "c2"] {
        let prefix = fit(Cow::Borrowed(&request), SOURCE).1.digest();
        let thought = Reasoning {
            signature: Some(format!("seal of {id}")),
            provider: Some("anthropic".to_owned()),
            model: Some("m".to_owned()),
            prefix: Some(prefix),
            ..Reasoning::default()
        };
        let messages = Arc::make_mut(&mut request.messages);
        let content = vec![Content::Reasoning(thought), text("t"), call(id)];
        messages.push(message(Role::Assistant, content));
        messages.push(message(Role::Tool, vec![result(id, "r")]));
    }
    request
}

/// The messages that are sent, one a line.
fn sent(request: &Request, source: ReasoningSource<'_>) -> String {
    let (request, _) = fit(Cow::Borrowed(request), source);
    let line = |message: &Arc<Message>| {
        let contents = message.content.iter().map(|content| match content {
            Content::Text { text } => text.clone(),
            Content::Reasoning(thought) => {
                format!("<{}{}>", thought.text, thought.signature.as_deref().unwrap_or_default())
            }
            Content::ToolCall(call) => format!("call {}", call.id),
            Content::ToolResult { id, text, .. } => format!("{id}={text}"),
        });
        format!("{:?}: {}", message.role, contents.collect::<Vec<_>>().join(" "))
    };
    request.messages.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[track_caller]
fn check_seals(change: impl Fn(&mut Request), source: ReasoningSource<'_>, expect: &[&str]) {
    let mut request = signed();
    change(&mut request);
    let sent = sent(&request, source);
    let seals: Vec<_> =
        ["c1", "c2"].into_iter().filter(|id| sent.contains(&format!("<seal of {id}>"))).collect();
    assert_eq!(seals, expect, "{sent}");
}

#[test]
fn signed_thoughts_go_back_until_something_before_them_changes() {
    let set = |at: usize, content: Vec<Content>| {
        move |request: &mut Request| {
            let messages = Arc::make_mut(&mut request.messages);
            messages[at] = message(messages[at].role, content.clone());
        }
    };
    check_seals(|_| {}, SOURCE, &["c1", "c2"]);
    // Appending changes nothing.
    let append = |request: &mut Request| {
        Arc::make_mut(&mut request.messages).push(Message::user("x").into());
    };
    check_seals(append, SOURCE, &["c1", "c2"]);
    // A shortened result, another question, another system prompt, other tools.
    check_seals(set(3, vec![result("c1", "…")]), SOURCE, &["c1"]);
    check_seals(set(1, vec![text("other")]), SOURCE, &[]);
    check_seals(set(0, vec![text("other")]), SOURCE, &[]);
    check_seals(|request| request.tools = [tool("ls"), tool("x")].into(), SOURCE, &[]);
    // A summary in the place of the first messages.
    let compact = |request: &mut Request| {
        let messages = Arc::make_mut(&mut request.messages);
        messages.splice(1..4, [Message::system("summary").into(), Message::user("go on").into()]);
    };
    check_seals(compact, SOURCE, &[]);
    // A late message of the system, which most interfaces send at the beginning.
    let late = |request: &mut Request| {
        Arc::make_mut(&mut request.messages).push(Message::system("late").into());
    };
    check_seals(late, SOURCE, &[]);
    // Another model, another interface.
    check_seals(|_| {}, ReasoningSource { model: "n", ..SOURCE }, &[]);
    check_seals(|_| {}, ReasoningSource { provider: "gemini", ..SOURCE }, &[]);
}

#[test]
fn texts_in_pieces_have_the_hash_of_the_whole() {
    let mut pieces = PrefixHash::default();
    let mut whole = PrefixHash::default();
    for piece in ["a", "", "bc"] {
        pieces.add_piece(piece);
    }
    whole.add(&text("abc"));
    assert_eq!(pieces.digest(), whole.digest());
    whole.add(&result("x", ""));
    assert_ne!(pieces.digest(), whole.digest());
}

#[test]
fn thoughts_without_a_signature_go_back_to_their_model() {
    let thought = |model: &str| {
        Content::Reasoning(Reasoning {
            text: format!("of {model}"),
            provider: Some("anthropic".to_owned()),
            model: Some(model.to_owned()),
            prefix: Some("another".to_owned()),
            ..Reasoning::default()
        })
    };
    let content = vec![thought("m"), thought("n"), text("t")];
    let request = request(vec![message(Role::Assistant, content)]);
    assert_eq!(sent(&request, SOURCE), "Assistant: <of m> t");
}

#[test]
fn calls_and_results_come_in_pairs() {
    let user = || Message::user("u").into();
    let request = request(vec![
        user(),
        message(Role::Assistant, vec![call("c1"), call("c2")]),
        user(),
        message(Role::Tool, vec![result("c2", "late")]),
        message(Role::Assistant, vec![text("t")]),
        message(Role::Tool, vec![result("c9", "lost")]),
        message(Role::Assistant, vec![call("c3")]),
    ]);
    insta::assert_snapshot!(sent(&request, SOURCE), @r"
    User: u
    Assistant: call c1 call c2
    Tool: c1=[no result: the call was interrupted] c2=late
    User: u
    Assistant: t
    User: [Tool result: lost]
    Assistant: call c3
    Tool: c3=[no result: the call was interrupted]
    ");
}

#[test]
fn without_tools_calls_are_words() {
    let mut request = signed();
    request.tools = Arc::default();
    insta::assert_snapshot!(sent(&request, SOURCE), @r#"
    System: s
    User: u
    Assistant: t [Tool call ls: {"path":"a"}]
    User: [Tool result: r]
    Assistant: t [Tool call ls: {"path":"a"}]
    User: [Tool result: r]
    "#);
}
