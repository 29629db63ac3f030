//! An agent that speaks ACP and does what its prompt says, in one word and its arguments. The tests
//! of this crate talk to it.
#![expect(
    clippy::exit,
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "it fails as real agents do"
)]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_client_protocol::v1::schema::{
    AgentCapabilities, CancelNotification, ContentBlock, ContentChunk, Cost, Diff,
    InitializeRequest, InitializeResponse, LoadSessionRequest, LoadSessionResponse,
    NewSessionRequest, NewSessionResponse, PermissionOption, PermissionOptionKind, PromptRequest,
    PromptResponse, ReadTextFileRequest, RequestPermissionOutcome, RequestPermissionRequest,
    SessionConfigOption, SessionConfigOptionCategory, SessionConfigSelectOption,
    SessionNotification, SessionUpdate, SetSessionConfigOptionRequest,
    SetSessionConfigOptionResponse, SetSessionModeRequest, SetSessionModeResponse, StopReason,
    ToolCall, ToolCallLocation, ToolCallUpdate, ToolCallUpdateFields, ToolKind, UsageUpdate,
    WriteTextFileRequest,
};
use agent_client_protocol::v1::{ConnectionTo, Responder};
use agent_client_protocol::{Agent, ByteStreams, Client, Error, Result, UntypedMessage};
use agent_client_protocol::{on_receive_notification, on_receive_request};
use serde_json::json;
use tokio_util::compat::{TokioAsyncReadCompatExt, TokioAsyncWriteCompatExt};

/// What was set, and the prompt that waits to be canceled.
#[derive(Default)]
struct State {
    set: Vec<String>,
    waiting: Option<Responder<PromptResponse>>,
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let start = std::env::args().nth(1).unwrap_or_default();
    if start == "broken" {
        eprintln!("cannot find my settings");
        std::process::exit(9);
    }
    let loads = start == "loads";
    println!("A line that is no message.");
    let state = Arc::<Mutex<State>>::default();
    let (modes, options, prompts, cancels) =
        (Arc::clone(&state), Arc::clone(&state), Arc::clone(&state), state);
    Agent
        .v1()
        .on_receive_request(
            async move |hello: InitializeRequest, responder, _| {
                let can = AgentCapabilities::new().load_session(loads);
                responder.respond(
                    InitializeResponse::new(hello.protocol_version).agent_capabilities(can),
                )
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |_: NewSessionRequest, responder, _| {
                if start == "login" {
                    return responder.respond_with_error(Error::auth_required());
                }
                let values = vec![SessionConfigSelectOption::new("big", "Big")];
                let which = SessionConfigOption::select("which-model", "Model", "big", values);
                let which = which.category(SessionConfigOptionCategory::Model);
                let fast = SessionConfigOption::boolean("fast", "Fast", false);
                let offered = (start != "plain").then(|| vec![which, fast]);
                responder.respond(NewSessionResponse::new("s1").config_options(offered))
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |load: LoadSessionRequest, responder, client: ConnectionTo<Client>| {
                if &*load.session_id.0 != "s1" {
                    return responder.respond_with_error(Error::new(-32002, "no such session"));
                }
                // What was said before.
                say(&client, "earlier")?;
                responder.respond(LoadSessionResponse::new())
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: SetSessionModeRequest, responder, _| {
                if &*request.mode_id.0 == "none" {
                    return responder.respond_with_error(Error::invalid_params());
                }
                locked(&modes).set.push(format!("mode={}", request.mode_id));
                responder.respond(SetSessionModeResponse::new())
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: SetSessionConfigOptionRequest, responder, _| {
                let chosen = serde_json::to_value(&request.value)?["value"].clone();
                locked(&options).set.push(format!("{}={chosen}", request.config_id));
                responder.respond(SetSessionConfigOptionResponse::new(Vec::new()))
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: PromptRequest, responder, client: ConnectionTo<Client>| {
                let ContentBlock::Text(text) = &request.prompt[0] else {
                    return responder.respond_with_error(Error::invalid_params());
                };
                let prompt = text.text.clone();
                if prompt == "wait" {
                    say(&client, "waiting")?;
                    locked(&prompts).waiting = Some(responder);
                    return Ok(());
                }
                let set = locked(&prompts).set.join(" ");
                let worker = client.clone();
                client.spawn(async move {
                    responder.respond_with_result(work(&worker, &prompt, &set).await)
                })
            },
            on_receive_request!(),
        )
        .on_receive_notification(
            async move |_: CancelNotification, _| {
                eprintln!("canceled");
                let waiting = locked(&cancels).waiting.take();
                match waiting {
                    Some(waiting) => waiting.respond(PromptResponse::new(StopReason::Cancelled)),
                    None => Ok(()),
                }
            },
            on_receive_notification!(),
        )
        .connect_to(ByteStreams::new(
            tokio::io::stdout().compat_write(),
            tokio::io::stdin().compat(),
        ))
        .await
}

fn say(client: &ConnectionTo<Client>, text: &str) -> Result<()> {
    let chunk = SessionUpdate::AgentMessageChunk(ContentChunk::new(text.into()));
    client.send_notification(SessionNotification::new("s1", chunk))
}

async fn work(client: &ConnectionTo<Client>, prompt: &str, set: &str) -> Result<PromptResponse> {
    let words: Vec<_> = prompt.split(' ').collect();
    let stop = match words[0] {
        "max" => StopReason::MaxTokens,
        "refuse" => StopReason::Refusal,
        _ => StopReason::EndTurn,
    };
    match words[..] {
        ["say", ..] => {
            say(client, "You ")?;
            say(client, "said:")?;
            let call = ToolCall::new("c1", "Thinking about it");
            client
                .send_notification(SessionNotification::new("s1", SessionUpdate::ToolCall(call)))?;
            say(client, prompt)?;
        }
        ["set"] => say(client, set)?,
        ["permit", kind, path] => say(client, &permit(client, kind, path).await?)?,
        ["read", path] => {
            let request = ReadTextFileRequest::new("s1", path);
            match client.send_request(request).block_task().await {
                Ok(read) => say(client, &read.content)?,
                Err(error) => say(client, &error.message)?,
            }
        }
        ["write", path, content] => {
            let request = WriteTextFileRequest::new("s1", path, content);
            match client.send_request(request).block_task().await {
                Ok(_) => say(client, "written")?,
                Err(error) => say(client, &error.message)?,
            }
        }
        // Announced first; the request has the id only.
        ["announce", kind, path] => {
            let call = ToolCall::new("c3", format!("{kind} {path}"))
                .kind(serde_json::from_value::<ToolKind>(json!(kind))?)
                .locations(vec![ToolCallLocation::new(path)]);
            let call = SessionUpdate::ToolCall(call);
            client.send_notification(SessionNotification::new("s1", call))?;
            say(client, &ask(client, "c3", ToolCallUpdateFields::new()).await?)?;
        }
        // Announces a call of one kind, and asks for permission for another one.
        ["announce", kind, path, "ask", other] => {
            let call = ToolCall::new("c3", format!("{kind} {path}"))
                .kind(serde_json::from_value::<ToolKind>(json!(kind))?)
                .locations(vec![ToolCallLocation::new(path)]);
            let call = SessionUpdate::ToolCall(call);
            client.send_notification(SessionNotification::new("s1", call))?;
            let fields = match other {
                "diff" => ToolCallUpdateFields::new().content(vec![Diff::new(path, "new").into()]),
                kind => ToolCallUpdateFields::new()
                    .kind(serde_json::from_value::<ToolKind>(json!(kind))?),
            };
            say(client, &ask(client, "c3", fields).await?)?;
        }
        ["spend", dollars, ref then @ ..] => {
            let cost = Cost::new(dollars.parse().unwrap_or_default(), "USD");
            let usage = SessionUpdate::UsageUpdate(UsageUpdate::new(7000, 200_000).cost(cost));
            client.send_notification(SessionNotification::new("s1", usage))?;
            if *then == ["wait"] {
                std::future::pending::<()>().await;
            }
            say(client, "spent")?;
        }
        ["unknown"] => {
            let update = json!({"sessionId": "s1", "update": {"sessionUpdate": "brand_new"}});
            client.send_notification(UntypedMessage::new("session/update", update)?)?;
            let options = json!([
                {"optionId": "odd", "name": "Odd", "kind": "brand_new"},
                {"optionId": "yes", "name": "Yes", "kind": "allow_always"},
            ]);
            let call = json!({"toolCallId": "c4", "kind": "read"});
            let request = json!({"sessionId": "s1", "toolCall": call, "options": options});
            let request = UntypedMessage::new("session/request_permission", request)?;
            let answer = client.send_request(request).block_task().await?;
            say(client, &answer["outcome"].to_string())?;
        }
        ["leave", program, ref args @ ..] => {
            let child = std::process::Command::new(program).args(args).spawn();
            say(client, &child.map(|child| child.id()).unwrap_or_default().to_string())?;
        }
        ["fail"] => {
            let data = json!({"type": "rate_limit", "details": "come back later"});
            return Err(Error::new(-32603, "Internal error").data(data));
        }
        ["die"] => {
            eprintln!("out of memory");
            std::process::exit(7);
        }
        _ => say(client, &prompt.len().to_string())?,
    }
    Ok(PromptResponse::new(stop))
}

async fn permit(client: &ConnectionTo<Client>, kind: &str, path: &str) -> Result<String> {
    let mut fields = ToolCallUpdateFields::new();
    fields.kind = Some(serde_json::from_value(json!(kind))?);
    fields.title = Some(format!("{kind} {path}"));
    fields.locations = Some(vec![ToolCallLocation::new(path)]);
    ask(client, "c2", fields).await
}

async fn ask(
    client: &ConnectionTo<Client>,
    id: &'static str,
    fields: ToolCallUpdateFields,
) -> Result<String> {
    let options = vec![
        PermissionOption::new("no", "No", PermissionOptionKind::RejectOnce),
        PermissionOption::new("always", "Always", PermissionOptionKind::AllowAlways),
        PermissionOption::new("once", "Once", PermissionOptionKind::AllowOnce),
    ];
    let call = ToolCallUpdate::new(id, fields);
    let request = RequestPermissionRequest::new("s1", call, options);
    match client.send_request(request).block_task().await?.outcome {
        RequestPermissionOutcome::Selected(option) => Ok(option.option_id.to_string()),
        _ => Ok("canceled".to_owned()),
    }
}
