//! Spending limits of concurrent stages.

use std::time::Duration;

use fabro_events::{Note, PauseReason};
use serde_json::json;

use super::*;

/// Every stage requests turns at this price while the budget allows it, at most `turns`. Programs
/// take a reservation.
struct Spender {
    cost_usd: f64,
    tokens: u64,
    turns: u32,
    /// The most that each program run spends; `None` for stages that check the budget turn by turn.
    program: Option<f64>,
    shares: Mutex<Vec<String>>,
}

impl Spender {
    fn turns(cost_usd: f64, tokens: u64) -> Self {
        Self { cost_usd, tokens, turns: 4, program: None, shares: Mutex::default() }
    }

    async fn record(&self, stage: &Stage, cost_usd: f64) -> Usage {
        let usage = Usage { turns: 1, cost_usd, input_tokens: self.tokens, ..Usage::default() };
        let note: Note = EventBody::AgentMessage {
            role: "assistant".into(),
            text: "more".into(),
            message: Some(Arc::new(json!("more"))),
            usage: Some(usage.clone()),
            given: None,
            purpose: None,
        }
        .into();
        stage.reporter.record(vec![note], Vec::new(), Vec::new()).await.unwrap();
        usage
    }

    async fn run_program(&self, stage: &Stage, wants: f64) -> StageEnd {
        let mut used = stage.at.spent.clone();
        let Ok(reservation) = stage.budget.reserve() else {
            return StageEnd::Suspended(PauseReason::Budget);
        };
        let reservation = reservation.unwrap();
        let share = reservation.dollars();
        self.shares.lock().unwrap().push(format!("{} {share:.3}", stage.at.node));
        tokio::time::sleep(Duration::from_secs(1)).await;
        let wants = wants - used.cost_usd;
        used.add(&self.record(stage, wants.min(share)).await);
        if wants > share {
            reservation.used_up(share);
            return StageEnd::Suspended(PauseReason::Budget);
        }
        Outcome { usage: Some(used), ..Outcome::succeeded() }.into()
    }
}

#[async_trait]
impl Handler for Spender {
    async fn execute(&self, stage: Stage) -> StageEnd {
        if stage.spec().llm().is_none() {
            return Outcome::succeeded().into();
        }
        if let Some(wants) = self.program {
            return self.run_program(&stage, wants).await;
        }
        let mut used = stage.at.spent.clone();
        while used.turns < self.turns {
            if !stage.budget.may_spend() {
                return StageEnd::Suspended(PauseReason::Budget);
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            used.add(&self.record(&stage, self.cost_usd).await);
        }
        Outcome { usage: Some(used), ..Outcome::succeeded() }.into()
    }
}

/// A workflow with `count` concurrent agents.
fn agents(count: usize, limit: &str) -> Bench {
    let nodes: String = (0..count)
        .map(|n| format!("a{n}[prompt=x] fork -> a{n} -> join;"))
        .collect::<Vec<_>>()
        .concat();
    Bench::new(
        &format!(
            "digraph {{ graph [{limit}]; start -> fork; fork [shape=component, max_parallel=20]; {nodes} join [shape=tripleoctagon] join -> exit }}"
        ),
        &[],
    )
}

fn drive_with(bench: &Bench, spender: &Arc<Spender>, first: Input) -> RunEnd {
    bench.drive_in(World { handler: Arc::clone(spender) as _, ..bench.world() }, first)
}

#[test]
fn concurrent_stages_exceed_the_limit_by_at_most_one_turn_each() {
    let bench = agents(10, "max_cost=0.10");
    let spender = Arc::new(Spender::turns(0.03, 0));
    let paused = RunEnd::Paused(PauseReason::Budget);
    assert_eq!(drive_with(&bench, &spender, Input::Start), paused);
    // All start their first turn before any turn ends.
    let spent = bench.state().usage_so_far().cost_usd;
    assert!((0.3 - spent).abs() < 1e-9, "{spent}");
    // A resume without a higher limit spends nothing.
    assert_eq!(drive_with(&bench, &spender, Input::Resume { max_cost: None }), paused);
    let spent = bench.state().usage_so_far().cost_usd;
    assert!((0.3 - spent).abs() < 1e-9, "{spent}");
    let end = drive_with(&bench, &spender, Input::Resume { max_cost: Some(5.0) });
    assert!(matches!(end, RunEnd::Over(..)), "{end:?}");
    assert!((bench.state().usage.cost_usd - 1.2).abs() < 1e-9);
}

#[test]
fn tokens_of_concurrent_stages_are_summed() {
    let bench = agents(10, "max_tokens_total=400");
    let spender = Arc::new(Spender::turns(0.0, 110));
    assert_eq!(drive_with(&bench, &spender, Input::Start), RunEnd::Paused(PauseReason::Budget));
    assert_eq!(bench.state().usage_so_far().input_tokens, 1_100);
}

#[test]
fn programs_share_the_remaining_budget() {
    let bench = agents(6, "max_cost=1.0");
    let spender = Arc::new(Spender { program: Some(0.9), ..Spender::turns(0.0, 0) });
    assert_eq!(drive_with(&bench, &spender, Input::Start), RunEnd::Paused(PauseReason::Budget));
    let spent = bench.state().usage_so_far().cost_usd;
    assert!((spent - 1.0).abs() < 1e-9, "{spent}");
    insta::assert_snapshot!(spender.shares.lock().unwrap().join(", "), @"a0 0.167, a1 0.167, a2 0.167, a3 0.167, a4 0.167, a5 0.167");
}

/// A program that needs more than its share gets what other programs release.
#[test]
fn unused_reservations_go_to_other_programs() {
    let source = "digraph { graph [max_cost=1.0]; start -> fork; fork [shape=component];
        a [prompt=x] b [prompt=x] fork -> a -> join; fork -> b -> c -> join; c [prompt=x]
        join [shape=tripleoctagon] join -> exit }";
    let bench = Bench::new(source, &[]);
    let spender = Arc::new(Spender { program: Some(0.3), ..Spender::turns(0.0, 0) });
    let end = drive_with(&bench, &spender, Input::Start);
    assert!(matches!(end, RunEnd::Over(..)), "{end:?}");
    insta::assert_snapshot!(spender.shares.lock().unwrap().join(", "), @"a 0.500, b 0.500, c 0.400");
    let bench = agents(2, "max_cost=0.5");
    let spender = Arc::new(Mixed(Spender { program: Some(0.3), ..Spender::turns(0.0, 0) }));
    let world = World { handler: Arc::clone(&spender) as _, ..bench.world() };
    let end = bench.drive_in(world, Input::Start);
    assert!(matches!(end, RunEnd::Over(..)), "{end:?}");
    insta::assert_snapshot!(spender.0.shares.lock().unwrap().join(", "), @"a0 0.250, a1 0.250, a1 0.150");
}

/// `a0` needs 0.1, the others 0.3.
struct Mixed(Spender);

#[async_trait]
impl Handler for Mixed {
    async fn execute(&self, stage: Stage) -> StageEnd {
        if stage.spec().llm().is_none() {
            return Outcome::succeeded().into();
        }
        let wants = if *stage.at.node == *"a0" { 0.1 } else { 0.3 };
        self.0.run_program(&stage, wants).await
    }
}
