use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};

use super::*;
use crate::{Script, StopReason, TurnCounts};

/// Plays answers and checks which model is asked.
struct Double {
    turns: Mutex<Vec<(&'static str, Result<&'static str, ModelError>)>>,
    asked: Mutex<Vec<String>>,
}

impl Double {
    fn new(turns: Vec<(&'static str, Result<&'static str, ModelError>)>) -> Self {
        Self { turns: Mutex::new(turns), asked: Mutex::default() }
    }
}

impl Model for Double {
    fn stream(&self, request: Request) -> BoxStream<'static, Result<Part, ModelError>> {
        let fallback = Fallback { provider: request.provider, model: request.model };
        let name = fallback.to_string();
        let mut turns = self.turns.lock().unwrap();
        let (expected, turn) = turns.remove(0);
        assert_eq!(name, expected);
        self.asked.lock().unwrap().push(name);
        let usage = Usage { input_tokens: 10, turns: 1, ..Usage::default() };
        let parts = match turn {
            Ok(text) => vec![
                Ok(Part::Text(text.to_owned())),
                Ok(Part::End { usage, stop: StopReason::Complete }),
            ],
            Err(error) => vec![Ok(Part::Text("half".to_owned())), Err(error)],
        };
        stream::iter(parts).boxed()
    }
}

fn fails(kind: ErrorKind) -> Result<&'static str, ModelError> {
    Err(ModelError::new(kind).with_message(format!("{kind:?}")))
}

fn later(seconds: u64) -> Result<&'static str, ModelError> {
    let mut error = ModelError::new(ErrorKind::RateLimit).with_message("later");
    error.retry_after = Some(Duration::from_secs(seconds));
    Err(error)
}

fn asking(fallbacks: &[&str]) -> RequestPolicy {
    RequestPolicy {
        retry: RetryPolicy { jitter: false, ..RetryPolicy::default() },
        fallbacks: fallbacks.iter().map(|name| Fallback::new(*name)).collect(),
        ..RequestPolicy::default()
    }
}

/// What happened, line by line, then the result and how long it took.
async fn log(
    turns: Vec<(&'static str, Result<&'static str, ModelError>)>,
    asking: &RequestPolicy,
) -> String {
    let model = Double::new(turns);
    let started = Instant::now();
    let mut request = Request::new(Vec::new());
    request.provider = Some("p".to_owned());
    request.model = Some("m".to_owned());
    let mut lines = Vec::new();
    let watch = |progress: Progress<'_>| match progress {
        Progress::Part(Part::Text(text)) => lines.push(format!("part {text}")),
        Progress::Part(_) => {}
        Progress::Retrying { error, wait, failed } => {
            lines.push(format!("retrying after {failed} in {wait:?}: {error}"));
        }
        Progress::Failover { to, error } => lines.push(format!("failover to {to}: {error}")),
    };
    let result = match ask(&model, request, asking, watch).await {
        Ok(reply) => format!("{} ({:?})", reply.text(), reply.usage.requests()),
        Err(error) => format!("{:?}: {error} ({})", error.kind, error.usage.requests()),
    };
    assert!(model.turns.lock().unwrap().is_empty(), "not all turns were taken");
    lines.push(format!("{result} after {:?}", started.elapsed()));
    lines.join("\n")
}

#[tokio::test(start_paused = true)]
async fn transient_errors_are_retried() {
    let turns = vec![
        ("p/m", fails(ErrorKind::Overloaded)),
        ("p/m", fails(ErrorKind::BrokenStream)),
        ("p/m", Ok("whole")),
    ];
    insta::assert_snapshot!(log(turns, &asking(&[])).await, @r"
    part half
    retrying after 1 in 1s: Overloaded
    part half
    retrying after 2 in 2s: BrokenStream
    part whole
    whole (3) after 3s
    ");
}

#[tokio::test(start_paused = true)]
async fn three_tries_are_made() {
    let turns = vec![
        ("p/m", fails(ErrorKind::Timeout)),
        ("p/m", fails(ErrorKind::Unreachable)),
        ("p/m", fails(ErrorKind::RateLimit)),
    ];
    insta::assert_snapshot!(log(turns, &asking(&[])).await, @r"
    part half
    retrying after 1 in 1s: Timeout
    part half
    retrying after 2 in 2s: Unreachable
    part half
    RateLimit: RateLimit (3) after 3s
    ");
    let once = RequestPolicy { retry: RetryPolicy::none(), ..RequestPolicy::default() };
    insta::assert_snapshot!(log(vec![("p/m", fails(ErrorKind::Timeout))], &once).await, @r"
    part half
    Timeout: Timeout (1) after 0ns
    ");
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_obeyed_up_to_a_minute() {
    insta::assert_snapshot!(log(vec![("p/m", later(60)), ("p/m", Ok("x"))], &asking(&[])).await, @r"
    part half
    retrying after 1 in 60s: later
    part x
    x (2) after 60s
    ");
    insta::assert_snapshot!(log(vec![("p/m", later(61))], &asking(&[])).await, @r"
    part half
    RateLimit: later (1) after 0ns
    ");
    insta::assert_snapshot!(log(vec![("p/m", later(61)), ("b", Ok("x"))], &asking(&["b"])).await, @r"
    part half
    failover to b: later
    part x
    x (2) after 0ns
    ");
}

#[tokio::test(start_paused = true)]
async fn fallbacks_are_used_where_they_may_help() {
    let turns = vec![
        ("p/m", fails(ErrorKind::Auth)),
        ("b", fails(ErrorKind::Quota)),
        ("c", fails(ErrorKind::BrokenStream)),
        ("c", Ok("whole")),
    ];
    insta::assert_snapshot!(log(turns, &asking(&["b", "c"])).await, @r"
    part half
    failover to b: Auth
    part half
    failover to c: Quota
    part half
    retrying after 1 in 1s: BrokenStream
    part whole
    whole (4) after 1s
    ");
    for kind in [
        ErrorKind::InvalidRequest,
        ErrorKind::ContentFilter,
        ErrorKind::ContextOverflow,
        ErrorKind::Script,
    ] {
        let line = log(vec![("p/m", fails(kind))], &asking(&["b"])).await;
        assert_eq!(line, format!("part half\n{kind:?}: {kind:?} (1) after 0ns"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_transient_error_is_reported_first() {
    let turns =
        vec![("p/m", fails(ErrorKind::Auth)), ("b", later(100)), ("c", fails(ErrorKind::Quota))];
    insta::assert_snapshot!(log(turns, &asking(&["b", "c"])).await, @r"
    part half
    failover to b: Auth
    part half
    failover to c: later
    part half
    RateLimit: Auth; the fallbacks failed too: later; Quota (3) after 0ns
    ");
    let turns = vec![("p/m", fails(ErrorKind::Auth)), ("b", fails(ErrorKind::InvalidRequest))];
    insta::assert_snapshot!(log(turns, &asking(&["b", "c"])).await, @r"
    part half
    failover to b: Auth
    part half
    Auth: Auth; the fallbacks failed too: InvalidRequest (2) after 0ns
    ");
}

#[tokio::test(start_paused = true)]
async fn failed_requests_count_for_their_node() {
    let script = r#"{"plan": [{"text": "no"}, {"error": "timeout", "usage": {"input_tokens": 7}}, {"text": "yes"}]}"#;
    let script = Script::from_json(script).unwrap();
    let model = script.model("plan", &TurnCounts::unit("plan".into(), 1));
    let request = Request::new(Vec::new());
    let reply = ask(&model, request, &RequestPolicy::default(), |_| {}).await.unwrap();
    assert_eq!(
        (reply.text().as_str(), reply.usage.requests(), reply.usage.input_tokens),
        ("yes", 2, 7)
    );
}

#[test]
fn delays_grow_and_vary_within_bounds() {
    let error = ModelError::new(ErrorKind::Overloaded);
    let policy = RetryPolicy { tries: 100, ..RetryPolicy::default() };
    for seed in 0..200 {
        for failed in 1..99 {
            let base = 2_f64.powi(i32::try_from(failed).unwrap() - 1);
            let wait = policy.delay(&error, failed, seed).unwrap().as_secs_f64();
            assert!(wait >= (base * 0.5).min(60.0) && wait <= (base * 1.5).min(60.0), "{wait}");
        }
    }
    let different: std::collections::BTreeSet<_> =
        (0..50).map(|seed| policy.delay(&error, 1, seed)).collect();
    assert!(different.len() > 40);
    assert_eq!(policy.delay(&error, 1, 7), policy.delay(&error, 1, 7));
    let wild = RetryPolicy { factor: f64::NAN, ..policy };
    assert_eq!(wild.delay(&error, 1, 0).map(|wait| wait <= policy.cap), Some(true));
    let wild = RetryPolicy { factor: -1e300, jitter: false, ..policy };
    assert_eq!(wild.delay(&error, 4, 0), Some(policy.cap));
}

#[tokio::test(start_paused = true)]
async fn a_failover_lasts_until_the_first_model_has_rested() {
    let policy = asking(&["b"]);
    let run = async |turns| log(turns, &policy).await;
    let first = run(vec![("p/m", fails(ErrorKind::Quota)), ("b", Ok("one"))]).await;
    insta::assert_snapshot!(first, @"
    part half
    failover to b: Quota
    part one
    one (2) after 0ns
    ");
    // Another clone of the policy, as of another stage: no climbing of the ladder.
    insta::assert_snapshot!(log(vec![("b", Ok("two"))], &policy.clone()).await, @"
    part two
    two (1) after 0ns
    ");
    // The fallback fails too: what rests is asked after all, and rests no more.
    let back = run(vec![("b", fails(ErrorKind::Auth)), ("p/m", Ok("three"))]).await;
    insta::assert_snapshot!(back, @"
    part half
    failover to p/m: Auth
    part three
    three (2) after 0ns
    ");
    insta::assert_snapshot!(run(vec![("p/m", Ok("four"))]).await, @"
    part four
    four (1) after 0ns
    ");
    // All rest: in their order.
    let none = run(vec![("p/m", fails(ErrorKind::Auth)), ("b", fails(ErrorKind::Auth))]).await;
    insta::assert_snapshot!(none, @"
    part half
    failover to b: Auth
    part half
    Auth: Auth; the fallbacks failed too: Auth (2) after 0ns
    ");
    insta::assert_snapshot!(run(vec![("p/m", fails(ErrorKind::Auth)), ("b", Ok("five"))]).await, @"
    part half
    failover to b: Auth
    part five
    five (2) after 0ns
    ");
    tokio::time::advance(REST).await;
    insta::assert_snapshot!(run(vec![("p/m", Ok("six"))]).await, @"
    part six
    six (1) after 0ns
    ");
}

#[tokio::test(start_paused = true)]
async fn a_model_rests_as_long_as_its_provider_says() {
    let policy = asking(&["b"]);
    log(vec![("p/m", later(3600)), ("b", Ok("x"))], &policy).await;
    tokio::time::advance(Duration::from_secs(3599)).await;
    log(vec![("b", Ok("x"))], &policy).await;
    tokio::time::advance(Duration::from_secs(1)).await;
    log(vec![("p/m", Ok("x"))], &policy).await;
}
