//! The stages of a run as a list.

use std::cmp::Reverse;

use askama::Template;
use fabro_inspect::StageRow;
use fabro_picture::NodeResult;
use fabro_types::{one_line, tokens, took};

use crate::Links;
use crate::graph::result;
use crate::texts::{dollars, render};

/// The longest failure or reason in a row, in characters.
const WHAT: usize = 160;

/// The class of a stage's result.
pub fn class(row: &StageRow) -> &'static str {
    match result(row) {
        NodeResult::Succeeded => "good",
        NodeResult::PartiallySucceeded => "part",
        NodeResult::Failed => "bad",
        NodeResult::Running => "live",
        NodeResult::Waiting => "held",
        NodeResult::Skipped => "dim",
    }
}

/// A sign for the same, for readers without colors.
pub fn sign(row: &StageRow) -> char {
    match class(row) {
        "good" => '✓',
        "part" => '~',
        "bad" => '✗',
        "live" => '▶',
        "held" => '‖',
        _ => '–',
    }
}

/// Which stages a list has, and in which order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StageFilter {
    /// All, by rank.
    #[default]
    All,
    /// Those that failed, an attempt of theirs too.
    Failed,
    /// The slowest first.
    Slow,
    /// The dearest first, by price and then by tokens; without those that used no model.
    Costly,
}

impl StageFilter {
    /// All of them, with their names in addresses.
    pub const ALL: [(Self, &'static str); 4] = [
        (Self::All, "all"),
        (Self::Failed, "failed"),
        (Self::Slow, "slow"),
        (Self::Costly, "costly"),
    ];

    /// The filter of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, it)| *it == name).map(|(filter, _)| filter)
    }

    /// The rows that it lets through, as places in `rows`, in its order. With a search only those whose name
    /// contains it, in any case.
    pub fn select(self, rows: &[StageRow], search: &str) -> Vec<usize> {
        let search = search.trim().to_lowercase();
        let is_wanted = |row: &StageRow| match self {
            Self::All | Self::Slow => true,
            Self::Failed => row.failure.is_some(),
            Self::Costly => row.usage.is_some(),
        };
        let is_found =
            |row: &StageRow| search.is_empty() || row.name().to_lowercase().contains(&search);
        let kept = rows.iter().enumerate().filter(|(_, row)| is_wanted(row) && is_found(row));
        let mut list: Vec<usize> = kept.map(|(at, _)| at).collect();
        match self {
            Self::All | Self::Failed => {}
            Self::Slow => list.sort_by_key(|at| Reverse(rows[*at].duration_ms)),
            Self::Costly => list.sort_by(|one, other| {
                spent(&rows[*other])
                    .partial_cmp(&spent(&rows[*one]))
                    .unwrap_or(std::cmp::Ordering::Equal)
            }),
        }
        list
    }
}

/// The price of a stage, then its tokens.
pub(crate) fn spent(row: &StageRow) -> (f64, u64) {
    row.usage.as_ref().map_or((0.0, 0), |usage| {
        (usage.cost_usd, usage.input_tokens.saturating_add(usage.output_tokens))
    })
}

#[derive(Template)]
#[template(path = "stage_row.html")]
struct Row<'a> {
    id: String,
    rank: u32,
    class: &'static str,
    sign: char,
    status: &'a str,
    branch: Option<&'a str>,
    node: &'a str,
    visit: Option<u32>,
    attempts: Option<u32>,
    what: String,
    is_failure: bool,
    spent: String,
    took: String,
    link: Option<String>,
    body: Option<&'a str>,
}

/// A row of a list of stages: a link, or with a body what opens it.
pub(crate) fn row(row: &StageRow, links: &Links, body: Option<&str>) -> String {
    let failure = row.failure.as_ref().map(|failure| one_line(&failure.to_string(), WHAT));
    let is_failure = failure.is_some();
    let what = failure.unwrap_or_else(|| {
        let to = row.edge.as_deref().map(|to| format!("→ {to}"));
        let choice = row.choice.as_ref();
        let why = choice.and_then(|it| it.taken_condition().or(it.label.as_deref()));
        let why = why.map(|why| format!(" · {}", one_line(why, WHAT)));
        to.map(|to| to + &why.unwrap_or_default()).unwrap_or_default()
    });
    render(&Row {
        id: links.id(&row.name()),
        rank: row.rank,
        class: class(row),
        sign: sign(row),
        status: row.status,
        branch: row.branch.as_deref(),
        node: &row.node,
        visit: (row.visit > 1).then_some(row.visit),
        attempts: (row.attempts > 1).then_some(row.attempts),
        what,
        is_failure,
        spent: spent_text(row),
        took: took(row.duration_ms),
        link: body.is_none().then(|| links.stage(&row.name())),
        body,
    })
}

/// The price of a stage, or its tokens; empty when it used no model.
pub(crate) fn spent_text(row: &StageRow) -> String {
    let Some(usage) = &row.usage else { return String::new() };
    match spent(row) {
        (cost, _) if cost > 0.0 && usage.unpriced_requests > 0 => format!("{} + ?", dollars(cost)),
        (cost, _) if cost > 0.0 => dollars(cost),
        (_, 0) => String::new(),
        (_, used) => format!("{} tok", tokens(used)),
    }
}

/// Rows of a list of stages that link to their pages.
pub fn stage_rows<'a>(rows: impl IntoIterator<Item = &'a StageRow>, links: &Links) -> String {
    rows.into_iter().map(|it| row(it, links, None)).collect()
}
