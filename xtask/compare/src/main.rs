//! Conditions and workflow files beside other libraries. All take turns in one process, so that a slow
//! minute of the machine is one for each of them; medians are printed.
//!
//! ```text
//! cargo run --release --manifest-path xtask/compare/Cargo.toml
//! ```

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Instant;

use cel_interpreter::{Context as CelContext, Program, Value as CelValue};
use evalexpr::{ContextWithMutableVariables as _, HashMapContext, Value as EvalValue};
use fabro_condition::Condition;
use serde_json::{Value, json};

const ROUNDS: usize = 15;
const EVALUATIONS: u32 = 20_000;

/// The same condition in three languages. All hold in the context.
const CONDITIONS: [(&str, &str); 4] = [
    ("score >= 80 && outcome = success", r#"score >= 80 && outcome == "succeeded""#),
    ("outcome = success", r#"outcome == "succeeded""#),
    (
        "outcome = fail || key_7 < 5 || key_49 > 48",
        r#"outcome == "failed" || key_7 < 5 || key_49 > 48"#,
    ),
    (
        "score >= 80 && outcome = success && key_1 = 1 && key_2 < 3 && key_3 != 4",
        r#"score >= 80 && outcome == "succeeded" && key_1 == 1 && key_2 < 3 && key_3 != 4"#,
    ),
];

fn main() -> Result<(), Box<dyn Error>> {
    println!(
        "| condition | fabro-condition | evalexpr | cel-interpreter |\n| --- | --- | --- | --- |"
    );
    for (ours, theirs) in CONDITIONS {
        let [condition, evalexpr, cel] = conditions(ours, theirs)?;
        println!(
            "| `{}` | {condition:.0} ns | {evalexpr:.0} ns | {cel:.0} ns |",
            ours.replace('|', r"\|")
        );
    }
    let source = workflow();
    println!("\nA workflow of {} bytes:\n\n| reader | time |\n| --- | --- |", source.len());
    for (name, ms) in graphs(&source)? {
        println!("| {name} | {ms:.0} ms |");
    }
    Ok(())
}

/// Nanoseconds of one evaluation.
fn conditions(ours: &str, theirs: &str) -> Result<[f64; 3], Box<dyn Error>> {
    let keys = (0..50_i64).map(|n| (format!("key_{n}"), json!(n)));
    let context: BTreeMap<String, Value> = keys
        .chain([("outcome".to_owned(), json!("succeeded")), ("score".to_owned(), json!(85))])
        .collect();
    let mut variables = HashMapContext::new();
    let mut cel_context = CelContext::default();
    for (key, value) in &context {
        let number = value.as_i64();
        let text = value.as_str().unwrap_or_default();
        let of_evalexpr = number.map_or_else(|| EvalValue::from(text), EvalValue::from);
        variables.set_value(key.clone(), of_evalexpr)?;
        let of_cel = number.map_or_else(|| CelValue::from(text.to_owned()), CelValue::Int);
        cel_context.add_variable_from_value(key.clone(), of_cel);
    }
    let condition = Condition::parse(ours).map_err(|error| error.message)?;
    let tree = evalexpr::build_operator_tree(theirs)?;
    let program = Program::compile(theirs)?;
    let holds = || condition.holds(&context);
    let evaluates = || tree.eval_boolean_with_context(&variables).is_ok_and(|holds| holds);
    let executes = || matches!(program.execute(&cel_context), Ok(CelValue::Bool(true)));
    if !(holds() && evaluates() && executes()) {
        return Err(format!("`{ours}` does not hold everywhere").into());
    }
    let repeat = |evaluate: &dyn Fn() -> bool| {
        (0..EVALUATIONS).for_each(|_| {
            black_box(evaluate());
        });
    };
    let ms = medians([&|| repeat(&holds), &|| repeat(&evaluates), &|| repeat(&executes)]);
    Ok(ms.map(|ms| ms * 1e6 / f64::from(EVALUATIONS)))
}

/// Milliseconds of reading a workflow that all of them understand.
fn graphs(source: &str) -> Result<Vec<(&'static str, f64)>, Box<dyn Error>> {
    let ours = || fabro_graph::Workflow::from_source("compare", source).is_ok();
    let tree = || dot_parser::ast::Graph::try_from(source).is_ok();
    let canonical =
        || dot_parser::ast::Graph::try_from(source).map(dot_parser::canonical::Graph::from).is_ok();
    let graphviz = || graphviz_rust::parse(source).is_ok();
    if !(ours() && tree() && canonical() && graphviz()) {
        return Err("one of the readers refuses the workflow".into());
    }
    let read = |reader: &dyn Fn() -> bool| {
        black_box(reader());
    };
    let ms = medians([&|| read(&ours), &|| read(&tree), &|| read(&canonical), &|| read(&graphviz)]);
    let names = [
        "fabro-graph, the typed graph",
        "dot-parser, its syntax tree",
        "dot-parser, its canonical graph",
        "graphviz-rust, its graph",
    ];
    Ok(names.into_iter().zip(ms).collect())
}

/// Medians in milliseconds of things that take turns.
fn medians<const N: usize>(things: [&dyn Fn(); N]) -> [f64; N] {
    let mut taken = [(); N].map(|()| Vec::with_capacity(ROUNDS));
    for _ in 0..ROUNDS {
        for (thing, taken) in things.iter().zip(&mut taken) {
            let start = Instant::now();
            thing();
            taken.push(start.elapsed().as_secs_f64() * 1e3);
        }
    }
    taken.map(|mut taken| {
        taken.sort_by(f64::total_cmp);
        taken[ROUNDS / 2]
    })
}

/// About a megabyte, without what only our language has.
fn workflow() -> String {
    let mut source =
        "digraph compare {\n  start [shape=Mdiamond]\n  exit [shape=Msquare]\n".to_owned();
    for n in 0..8_000 {
        let _ = writeln!(
            source,
            "  n{n} [shape=box, label=\"Stage number {n}\", prompt=\"Look at part {n} of it, and say what is odd.\"]"
        );
        let _ = writeln!(source, "  n{n} -> n{} [label=\"next\"]", n + 1);
    }
    source + "}\n"
}
