//! Says why a condition holds or does not: `explain 'CONDITION' 'JSON OBJECT'`; without arguments, a
//! condition of its own.

#![expect(clippy::print_stdout, reason = "the point of the example is what it prints")]

use std::collections::BTreeMap;
use std::error::Error;

use fabro_condition::Condition;
use serde_json::Value;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let text =
        args.next().unwrap_or_else(|| "outcome=succeeded && !(context.score < 80)".to_owned());
    let values =
        args.next().unwrap_or_else(|| r#"{"outcome": "succeeded", "score": 85}"#.to_owned());
    let context: BTreeMap<String, Value> = serde_json::from_str(&values)?;

    let condition = Condition::parse(&text)?;
    let result = condition.explain(&context);
    println!("{condition}: {}", result.holds);
    for clause in result.clauses {
        println!("  {}  with `{}`: {}", clause.text, clause.value, clause.holds);
    }
    Ok(())
}
