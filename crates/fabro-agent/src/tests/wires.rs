//! A long task on every interface, with servers that refuse what the real ones refuse.

use fabro_fakes::{Block, Response, Server, Vendor, strict};
use fabro_llm::{Catalog, Provider, ProviderKind, Providers};

use super::*;

const TURNS: usize = 60;

/// Calls a tool in each turn, `TURNS` times, and then answers. A request without tools is for a
/// summary.
fn plays() -> impl Fn(&fabro_fakes::Request) -> Response + Send + Sync {
    let turns = AtomicUsize::new(0);
    move |received| {
        if received.json()["tools"].is_null() {
            return Response::text("## Goal\nThe task.");
        }
        let turn = turns.fetch_add(1, Ordering::SeqCst);
        if turn == TURNS {
            return Response::text("Done");
        }
        let call = |part: &str| {
            let lines = if turn.is_multiple_of(7) { 120 } else { 60 };
            let arguments = json!({"file": format!("{turn}{part}"), "lines": lines, "ms": 0});
            // As a model writes it.
            let arguments = arguments.to_string().replace("\":", "\": ");
            Block::Call { id: format!("call_{turn}_{part}"), name: "look".to_owned(), arguments }
        };
        // Every third turn has two calls, every fifth a text before them.
        let text = turn.is_multiple_of(5).then(|| Block::Text { text: vec!["Next".to_owned()] });
        let second = turn.is_multiple_of(3).then(|| call("b"));
        Response::turn(text.into_iter().chain([call("a")]).chain(second).collect())
    }
}

/// What the tools gave, and how many compactions there were.
#[derive(Debug, PartialEq)]
struct Ran {
    results: Vec<String>,
    compactions: usize,
}

/// A session with the model behind a server.
fn session_at(
    server: &Server,
    (name, kind, model): (&str, ProviderKind, &str),
    live: Option<crate::Live>,
) -> (Session, Arc<MemoryJournal>) {
    let base_url = Some(server.base_url());
    let provider = Provider { base_url, ..Provider::new(name, kind) };
    let providers = Providers::new(vec![provider], Catalog::builtin()).unwrap();
    let journal = Arc::new(MemoryJournal::default());
    let session = Session::new(Parts {
        id: Arc::from("build@1"),
        parent: None,
        model: Arc::new(providers),
        tools: tools(&Counts::default()),
        journal: Arc::clone(&journal) as Arc<dyn Journal>,
        settings: Settings {
            model: Some(model.to_owned()),
            reasoning_effort: Some("max".to_owned()),
            live,
            ..settings()
        },
        context: ToolContext::default(),
    });
    (session, journal)
}

#[tokio::test]
async fn what_is_not_sent_as_asked_is_a_warning_once() {
    let server = Server::answering(strict(Vendor::Gemini, plays())).await.unwrap();
    let (mut session, journal) =
        session_at(&server, ("gemini", ProviderKind::Gemini, "gemini-4-argon"), None);
    session.send("Look at all files".to_owned(), &never()).await.unwrap();
    let warnings = journal.notes().into_iter().filter_map(|note| match note.body {
        EventBody::AgentWarning { kind, message, .. } => Some(format!("{kind}: {message}")),
        _ => None,
    });
    assert_eq!(
        warnings.collect::<Vec<_>>(),
        ["model: model `gemini-4-argon` does not take the reasoning effort `max`: `high` is sent"]
    );
}

#[tokio::test]
async fn a_canceled_request_counts_with_what_its_provider_said() {
    let half = Response::text("half").usage(700, 50, 100).ending(fabro_fakes::Ending::Hang);
    let server = Server::start(vec![half]).await.unwrap();
    let at = ("anthropic", ProviderKind::Anthropic, "claude-sonnet-5-5");
    let cancel = CancellationToken::new();
    let begun = Arc::new(tokio::sync::Notify::new());
    let live = Arc::clone(&begun);
    let live: crate::Live = Arc::new(move |_| live.notify_one());
    let (mut session, journal) = session_at(&server, at, Some(live));
    let soon = async {
        begun.notified().await;
        cancel.cancel();
    };
    let (end, ()) = tokio::join!(session.send("go".to_owned(), &cancel), soon);
    assert_eq!(end, Err(crate::SessionError::Canceled));
    let notes = journal.notes();
    let Some(EventBody::AgentError { class, usage: Some(usage), .. }) =
        notes.last().map(|note| &note.body)
    else {
        panic!("{notes:?}")
    };
    assert_eq!(*class, fabro_types::FailureClass::Canceled);
    assert_eq!((usage.input_tokens, usage.cached_tokens, usage.failed_requests), (700, 100, 1));
    // 600 at 2 dollars, 100 at 0.1, one token of output at 10.
    assert!((usage.cost_usd - 0.001_22).abs() < 1e-9, "{}", usage.cost_usd);
    assert_eq!(session.usage().input_tokens, 700);
    // It continues with the message.
    let (mut resumed, _) = session_at(&server, at, None);
    resumed.restore(Transcript::from_notes(&notes, no_blobs).unwrap());
    assert_eq!(resumed.usage().failed_requests, 1);
}

async fn run(vendor: Vendor, name: &str, kind: ProviderKind, model: &str) -> Ran {
    let server = Server::answering(strict(vendor, plays())).await.unwrap();
    let base_url = Some(server.base_url());
    let provider = Provider { base_url, ..Provider::new(name, kind) };
    let providers = Providers::new(vec![provider], Catalog::builtin()).unwrap();
    let providers: Arc<dyn Model> = Arc::new(providers);
    let journal = Arc::new(MemoryJournal::default());
    let parts = |max_turns| Parts {
        id: Arc::from("build@1"),
        parent: None,
        model: Arc::clone(&providers),
        tools: tools(&Counts::default()),
        journal: Arc::clone(&journal) as Arc<dyn Journal>,
        settings: Settings {
            system: "Be short".to_owned(),
            model: Some(model.to_owned()),
            reasoning_effort: Some("max".to_owned()),
            window: Some(3_000),
            max_turns,
            ..settings()
        },
        context: ToolContext::default(),
    };
    let mut session = Session::new(parts(20));
    session.send("Look at all files".to_owned(), &never()).await.unwrap_err();
    // A message of a person, and a compaction on request, where it was interrupted; then another one.
    for max_turns in [40, 200] {
        let mut resumed = Session::new(parts(max_turns));
        resumed.restore(Transcript::from_notes(&journal.notes(), no_blobs).unwrap());
        resumed.compact(&fabro_compaction::Overrides::default(), &never()).await.unwrap();
        assert!(resumed.steering().send(crate::Steer::new("Go on, but faster", "user")));
        session = resumed;
        if let Err(error) = session.resume(&never()).await {
            let body = server.requests().last().unwrap().json();
            assert!(max_turns == 40, "{model}: {error}\n{body:#}");
        }
    }
    let notes = journal.notes();
    let bodies = || notes.iter().map(|note| &note.body);
    let errors: Vec<_> =
        bodies().filter(|body| matches!(body, EventBody::AgentError { .. })).collect();
    assert!(errors.is_empty(), "{model}: {errors:?}");
    let compactions =
        bodies().filter(|body| matches!(body, EventBody::AgentCompactionCompleted(_))).count();
    // A request that is refused is asked again, which nothing else would show.
    let started =
        bodies().filter(|body| matches!(body, EventBody::AgentCompactionStarted { .. })).count();
    assert_eq!(server.requests().len(), TURNS + 1 + started, "{model}");
    let results = bodies().filter_map(|body| match body {
        EventBody::AgentToolCompleted(done) => Some(format!("{} {}", done.tool, done.output)),
        _ => None,
    });
    Ran { results: results.collect(), compactions }
}

#[tokio::test]
async fn a_long_task_is_the_same_on_every_interface() {
    let first = run(Vendor::OpenAi, "openai", ProviderKind::OpenAi, "gpt-6.2-sol").await;
    assert!(first.compactions >= 3, "{}", first.compactions);
    assert_eq!(first.results.len(), TURNS + TURNS / 3);
    let compatible = ProviderKind::OpenAiCompatible;
    for (vendor, name, kind, model) in [
        (Vendor::OpenAi, "openai", ProviderKind::OpenAi, "gpt-5.2"),
        (Vendor::Anthropic, "anthropic", ProviderKind::Anthropic, "claude-fable-5-2"),
        (Vendor::Anthropic, "anthropic", ProviderKind::Anthropic, "claude-sonnet-4-5"),
        (Vendor::Gemini, "gemini", ProviderKind::Gemini, "gemini-4-argon"),
        (Vendor::DeepSeek, "deepseek", compatible, "deepseek-v4-pro"),
        (Vendor::Mistral, "mistral", compatible, "mistral-large-4"),
        (Vendor::Groq, "groq", compatible, "openai/gpt-oss-120b"),
        (Vendor::LlamaCpp, "local", compatible, "some-model"),
    ] {
        let ran = run(vendor, name, kind, model).await;
        assert_eq!(ran.results, first.results, "{model}");
        assert!(ran.compactions >= 3, "{model}: {}", ran.compactions);
    }
}
