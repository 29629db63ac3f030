//! Planning, counting and summarising a conversation of 100,000 messages.

use std::borrow::Cow;

use divan::Bencher;
use fabro_compaction::{
    CallRef, Meter, ResultRef, Role, Turn, deterministic_summary, plan, render_old,
};
use serde_json::{Value, json};

fn main() {
    divan::main();
}

const TURNS: usize = 100_000;

struct Message {
    role: Role,
    text: String,
    id: String,
    arguments: Value,
}

impl Turn for Message {
    fn role(&self) -> Role {
        self.role
    }

    fn text(&self) -> Cow<'_, str> {
        Cow::Borrowed(if self.role == Role::Tool { "" } else { &self.text })
    }

    fn summary(text: String) -> Self {
        Self { role: Role::System, text, id: String::new(), arguments: Value::Null }
    }

    fn calls(&self) -> Vec<CallRef<'_>> {
        if self.role != Role::Assistant {
            return Vec::new();
        }
        let arguments = (&self.arguments).into();
        vec![CallRef { id: &self.id, name: "read_file", arguments }]
    }

    fn results(&self) -> Vec<ResultRef<'_>> {
        if self.role != Role::Tool {
            return Vec::new();
        }
        vec![ResultRef { id: &self.id, text: Cow::Borrowed(&self.text), is_error: false }]
    }
}

/// A question, then calls and their results in turns.
fn conversation() -> Vec<Message> {
    let message = |number: usize| {
        let role = match number {
            0 => Role::User,
            _ if number % 2 == 1 => Role::Assistant,
            _ => Role::Tool,
        };
        let text = "fn health() -> StatusCode { StatusCode::OK }\n".repeat(4);
        let arguments = json!({ "path": format!("src/file_{number}.rs"), "limit": 200 });
        Message { role, text, id: format!("call_{}", number.div_ceil(2)), arguments }
    };
    (0..TURNS).map(message).collect()
}

#[divan::bench]
fn planning(bencher: Bencher<'_, '_>) {
    let turns = conversation();
    bencher.bench_local(|| plan(&turns, 6));
}

#[divan::bench]
fn estimate_of_all(bencher: Bencher<'_, '_>) {
    let turns = conversation();
    bencher.bench_local(|| {
        let mut meter = Meter::default();
        meter.track(&turns);
        meter.tokens()
    });
}

#[divan::bench]
fn estimate_of_one_more(bencher: Bencher<'_, '_>) {
    let turns = conversation();
    let mut meter = Meter::default();
    meter.track(&turns);
    bencher.bench_local(|| {
        meter.track(&turns[..TURNS - 1]);
        meter.track(&turns);
        meter.tokens()
    });
}

#[divan::bench]
fn rendering(bencher: Bencher<'_, '_>) {
    let turns = conversation();
    bencher.bench_local(|| render_old(&turns, 600_000));
}

#[divan::bench]
fn summary_without_a_model(bencher: Bencher<'_, '_>) {
    let turns = conversation();
    bencher.bench_local(|| deterministic_summary(&turns, 12_000));
}
