//! Shows a small run while it is running: `cargo run -p fabro-terminal --example story`.

use std::io::Write as _;
use std::sync::Arc;

use fabro_engine::{Input, Machine, NewRun, Plan, RunState, begin};
use fabro_graph::Workflow;
use fabro_terminal::{Story, StoryLine, took};
use fabro_types::{Outcome, RunId};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let source = "digraph hello { start -> greet -> part -> exit }";
    let workflow = Workflow::from_source("hello", source).map_err(|error| error.message)?;
    let plan = Arc::new(Plan::compile(workflow)?);
    let run_id = RunId::from_parts(1_700_000_000_000, 1);
    let mut events = begin(run_id, 0, &plan, NewRun::default()).events;
    let state = RunState::replay(run_id, &events);

    let mut machine = Machine::new(plan, state);
    machine.handle(1_000, Input::Start);
    loop {
        let next = machine.state().active().next().map(|(branch, _)| Arc::clone(branch));
        let Some(branch) = next else { break };
        let finished = Box::new(Outcome::succeeded().into());
        machine.handle(2_000, Input::Ended { branch, finished });
    }
    events.extend(machine.take_commit().events);

    let mut out = std::io::stdout().lock();
    let mut story = Story::default();
    for told in events.iter().flat_map(|event| story.tell(event)) {
        match told {
            StoryLine::Stage(it) => {
                let to = it.to.as_deref().unwrap_or("nowhere");
                writeln!(out, "{} {} in {} → {to}", it.name, it.status, took(it.duration_ms))?;
            }
            StoryLine::Note(line) => writeln!(out, "{}", line.text)?,
            _ => {}
        }
    }
    Ok(())
}
