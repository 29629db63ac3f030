//! Where two runs differ.

use askama::Template;
use fabro_inspect::replay::{Difference, Report};
use fabro_inspect::{Inspect, StageRow};
use fabro_types::{one_line, took};

use crate::Links;
use crate::cost::cost_of;
use crate::texts::render;

/// The longest text of a difference on one line, in characters.
const TEXT: usize = 600;

/// The most differences that are shown.
const MAX_DIFFERENCES: usize = 500;

/// Another run, and where it differs.
pub struct Comparison<'a> {
    /// The run that is compared, the newer one.
    pub run: &'a Inspect,
    /// The older run, which it is compared with.
    pub other: &'a Inspect,
    /// The differences: `recorded` is of the older run, `replayed` of the newer one.
    pub report: &'a Report,
}

struct Line {
    class: &'static str,
    text: String,
}

struct Row {
    stage: String,
    link: Option<String>,
    aspect: String,
    old: String,
    new: String,
    diff: Vec<Line>,
}

#[derive(Template)]
#[template(path = "differences.html")]
struct Differences {
    old: String,
    new: String,
    facts: Vec<(&'static str, String, String)>,
    rows: Vec<Row>,
    left_out: usize,
    compared: u64,
}

/// The figures of both runs, and where their stages differ.
pub(crate) fn differences(it: &Comparison<'_>, rows: &[StageRow], links: &Links) -> String {
    let facts = |run: &Inspect| {
        [
            run.workflow.clone(),
            run.status.as_str().replace('_', " "),
            took(run.duration_ms),
            run.stages.len().to_string(),
            cost_of(&run.usage),
        ]
    };
    let names = ["workflow", "status", "took", "stages", "cost"];
    let pairs = facts(it.other).into_iter().zip(facts(it.run));
    let all = &it.report.differences;
    let row = |difference: &Difference| row(difference, rows, links);
    render(&Differences {
        old: it.other.id.to_string(),
        new: it.run.id.to_string(),
        facts: names.into_iter().zip(pairs).map(|(name, (old, new))| (name, old, new)).collect(),
        rows: all.iter().take(MAX_DIFFERENCES).map(row).collect(),
        left_out: all.len().saturating_sub(MAX_DIFFERENCES),
        compared: it.report.compared,
    })
}

fn row(difference: &Difference, rows: &[StageRow], links: &Links) -> Row {
    let stage = difference.stage.clone().unwrap_or_default();
    let name = match &difference.branch {
        Some(branch) => format!("{branch}/{stage}"),
        None => stage,
    };
    let is_here = rows.iter().any(|row| row.name() == name);
    let text =
        |text: &Option<String>| text.as_deref().map_or("–".to_owned(), |it| one_line(it, TEXT));
    let line = |line: &str| Line {
        class: match line.as_bytes().first() {
            Some(b'+') => "good",
            Some(b'-') => "bad",
            Some(b'@') => "hunk",
            _ => "",
        },
        text: fabro_types::clean(line).into_owned(),
    };
    Row {
        link: is_here.then(|| links.stage(&name)),
        stage: if name.is_empty() { "the run".to_owned() } else { name },
        aspect: difference.aspect.as_str().replace('_', " "),
        old: text(&difference.recorded),
        new: text(&difference.replayed),
        diff: difference.diff.iter().flat_map(|diff| diff.lines().map(line)).collect(),
    }
}
