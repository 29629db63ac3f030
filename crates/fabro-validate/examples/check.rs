//! Checks a workflow in memory and prints what is found, with its place:
//! `cargo run -p fabro-validate --example check`.

use std::io::{self, Write as _};

use fabro_graph::MemorySources;
use fabro_types::LineIndex;
use fabro_validate::check;

const SOURCE: &str = r#"digraph Fix {
    start -> plan -> fix -> test
    test -> exit [condition="outcome=succeeded"]
    test -> fix
    plan [prompt="@prompts/plan.md"]
    fix  [prompt="Fix it. The test said: {{ context.command.output }}", max_visits=5]
    test [shape=parallelogram, script="cargo test", retry_target=fxi]
}
"#;

fn main() -> io::Result<()> {
    let files = [("prompts/plan.md".to_owned(), "Plan the fix.".to_owned())];
    let checked = check("fix", SOURCE, &MemorySources(files.into()), None);
    let lines = LineIndex::new(SOURCE);
    let mut out = io::stdout().lock();
    for finding in &checked.findings {
        let at = lines.position(finding.span.start);
        writeln!(out, "{}:{} {} [{}]", at.line, at.column, finding.message, finding.rule)?;
        writeln!(out, "    {}", lines.line(at.line).trim())?;
        if let Some(fix) = &finding.fix {
            writeln!(out, "    fix: {fix}")?;
        }
    }
    writeln!(out, "{}", if checked.is_valid() { "valid" } else { "not valid" })
}
