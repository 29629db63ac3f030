//! Stages along time, without the times in which nothing happened.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use askama::Template;
use fabro_graph::Workflow;
use fabro_inspect::StageRow;
use fabro_types::{NodeKind, took};

use crate::Links;
use crate::stage_list::{class, sign};
use crate::texts::{counted, render};

/// The width of the bars' drawing.
const WIDTH: f64 = 1_000.0;

/// The width of a gap that is cut.
const GAP: f64 = 14.0;

/// A timeline of more stages has a lane for each node.
const MAX_STAGES: usize = 100;

/// The most bars of a lane: others are joined.
const MAX_BARS: usize = 200;

/// Bars that are this near have no space between them that can be seen, and are joined.
const TOUCHING: f64 = 0.05;

/// The most lanes: those of the nodes that took longest.
const MAX_LANES: usize = 200;

/// A piece of time that is drawn to scale, and where.
struct Piece {
    from_ms: i64,
    until_ms: i64,
    x: f64,
    width: f64,
}

/// The time of a run as it is drawn.
struct Scale {
    pieces: Vec<Piece>,
}

impl Scale {
    /// Times without a bar are cut, when they are long.
    fn new(bars: &[(i64, i64)]) -> Self {
        let mut sorted = bars.to_vec();
        sorted.sort_unstable();
        let mut busy: Vec<(i64, i64)> = Vec::new();
        for (from, until) in sorted {
            match busy.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(until),
                _ => busy.push((from, until)),
            }
        }
        let worked: i64 = busy.iter().map(|(from, until)| until - from).sum();
        // A gap is worth cutting when it is a good part of what is left.
        let limit = (worked / 10).max(2_000);
        let mut joined: Vec<(i64, i64)> = Vec::new();
        for (from, until) in busy {
            match joined.last_mut() {
                Some(last) if from - last.1 < limit => last.1 = until,
                _ => joined.push((from, until)),
            }
        }
        let gaps = joined.len().saturating_sub(1) as f64;
        let total: i64 = joined.iter().map(|(from, until)| (until - from).max(1)).sum();
        let left = (WIDTH - gaps * GAP).max(WIDTH / 4.0);
        let gap = if gaps > 0.0 { (WIDTH - left) / gaps } else { 0.0 };
        let mut x = 0.0;
        let mut pieces = Vec::new();
        for (from_ms, until_ms) in joined {
            let width = left * (until_ms - from_ms).max(1) as f64 / total.max(1) as f64;
            pieces.push(Piece { from_ms, until_ms, x, width });
            x += width + gap;
        }
        Self { pieces }
    }

    fn x(&self, ms: i64) -> f64 {
        let piece = self.pieces.iter().rfind(|piece| piece.from_ms <= ms).or(self.pieces.first());
        let Some(piece) = piece else { return 0.0 };
        let length = (piece.until_ms - piece.from_ms).max(1) as f64;
        let part = (ms - piece.from_ms) as f64 / length;
        piece.x + piece.width * part.clamp(0.0, 1.0)
    }

    /// Where gaps are, and how long they lasted.
    fn gaps(&self) -> Vec<Gap> {
        let pairs = self.pieces.iter().zip(self.pieces.iter().skip(1));
        let gap = |(before, after): (&Piece, &Piece)| Gap {
            x: format!("{:.1}", before.x + before.width),
            width: format!("{:.1}", after.x - before.x - before.width),
            took: took(u64::try_from(after.from_ms - before.until_ms).unwrap_or_default()),
        };
        pairs.map(gap).collect()
    }
}

/// A time without a stage.
struct Gap {
    x: String,
    width: String,
    took: String,
}

/// The bars of a stage or a node.
struct Lane {
    name: String,
    link: String,
    sign: char,
    took: String,
    class: &'static str,
    /// All bars of a result in one element, and its class.
    bars: Vec<(&'static str, String)>,
}

struct Bar {
    x: f64,
    width: f64,
    class: &'static str,
}

#[derive(Template)]
#[template(path = "timeline.html")]
struct Timeline {
    lanes: Vec<Lane>,
    gaps: Vec<Gap>,
    cut: String,
    by_node: bool,
    /// How many nodes have no lane.
    left_out: Option<String>,
    total: String,
}

/// The stages of a run along time. Long times in which no stage worked are cut: those between stages, and
/// those in which only people or clocks were waited for.
pub fn timeline(rows: &[StageRow], workflow: Option<&Workflow>, links: &Links) -> String {
    let waits = |row: &StageRow| {
        let node = workflow.and_then(|workflow| workflow.find(&row.node));
        let kind = node.and_then(|at| workflow.map(|workflow| workflow.node(at).kind));
        matches!(kind, Some(NodeKind::Human | NodeKind::Wait))
    };
    let bars: Vec<(i64, i64)> = rows
        .iter()
        .map(|row| (row.started_ms, if waits(row) { row.started_ms } else { row.until_ms }))
        .collect();
    let scale = Scale::new(&bars);
    let by_node = rows.len() > MAX_STAGES;
    let mut lanes: BTreeMap<Arc<str>, Vec<&StageRow>> = BTreeMap::new();
    let mut order: Vec<Arc<str>> = Vec::new();
    for row in rows {
        let name: Arc<str> = if by_node { Arc::clone(&row.node) } else { row.name().into() };
        if !lanes.contains_key(&name) {
            order.push(Arc::clone(&name));
        }
        lanes.entry(name).or_default().push(row);
    }
    let took_ms = |name: &Arc<str>| lanes[name].iter().map(|row| row.duration_ms).sum::<u64>();
    let left_out = order.len().saturating_sub(MAX_LANES);
    if left_out > 0 {
        let mut longest = order.clone();
        longest.sort_by_key(|name| std::cmp::Reverse(took_ms(name)));
        let shown: BTreeSet<Arc<str>> = longest.into_iter().take(MAX_LANES).collect();
        order.retain(|name| shown.contains(name));
    }
    let lane = |name: Arc<str>| {
        let rows = lanes.get(&name)?;
        let last = rows.last()?;
        Some(Lane {
            link: links.stage(&last.name()),
            sign: sign(last),
            took: took(took_ms(&name)),
            class: class(last),
            bars: joined(rows, &scale),
            name: name.to_string(),
        })
    };
    render(&Timeline {
        lanes: order.into_iter().filter_map(lane).collect(),
        cut: counted(scale.pieces.len().saturating_sub(1), "time"),
        gaps: scale.gaps(),
        by_node,
        left_out: (left_out > 0).then(|| counted(left_out, "node")),
        total: took(rows.iter().map(|row| row.duration_ms).sum()),
    })
}

/// The bars of a lane, as paths of lines. Bars of the same result that touch are one; where there are many, those that
/// nearly touch are one too.
fn joined(rows: &[&StageRow], scale: &Scale) -> Vec<(&'static str, String)> {
    let near = if rows.len() > MAX_BARS { WIDTH / MAX_BARS as f64 } else { TOUCHING };
    let mut bars: Vec<Bar> = Vec::new();
    for row in rows {
        // A stage at the very end is seen too.
        let x = scale.x(row.started_ms).min(WIDTH - 2.0);
        let end = scale.x(row.until_ms).max(x + 2.0);
        let class = class(row);
        match bars.last_mut() {
            Some(last) if last.class == class && x - last.x - last.width < near => {
                last.width = (end - last.x).max(last.width);
            }
            _ => bars.push(Bar { x, width: end - x, class }),
        }
    }
    let mut drawn: Vec<(&str, Path)> = Vec::new();
    for bar in bars {
        let at = drawn.iter().position(|(of, _)| *of == bar.class).unwrap_or_else(|| {
            drawn.push((bar.class, Path::default()));
            drawn.len() - 1
        });
        drawn[at].1.line(bar.x, bar.width);
    }
    drawn.into_iter().map(|(class, path)| (class, path.text)).collect()
}

/// Horizontal lines in the middle of a lane, each placed relative to the end of the one before: a page has thousands.
#[derive(Default)]
struct Path {
    text: String,
    /// The end of the last line, in tenths.
    end: i64,
}

impl Path {
    fn line(&mut self, x: f64, width: f64) {
        let tenths = |length: f64| (length * 10.0).round() as i64;
        let (from, until) = (tenths(x), tenths(x + width));
        let (gap, length) = (from - self.end, until - from);
        let (letter, y) = if self.text.is_empty() { ("M", " 5h") } else { ("m", " 0h") };
        self.text.push_str(letter);
        self.text.push_str(&shortest(gap));
        self.text.push_str(y);
        self.text.push_str(&shortest(length));
        self.end = until;
    }
}

/// A number of tenths in the shortest form.
fn shortest(tenths: i64) -> String {
    let sign = if tenths < 0 { "-" } else { "" };
    match (tenths.abs() / 10, tenths.abs() % 10) {
        (whole, 0) => format!("{sign}{whole}"),
        (whole, part) => format!("{sign}{whole}.{part}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_placed_from_the_end_of_the_one_before() {
        let check = |bars: &[(f64, f64)], expect: &str| {
            let mut path = Path::default();
            for (x, width) in bars {
                path.line(*x, *width);
            }
            assert_eq!(path.text, expect, "{bars:?}");
        };
        check(&[(0.0, 2.0)], "M0 5h2");
        check(&[(0.04, 12.44), (18.64, 9.3)], "M0 5h12.5m6.1 0h9.3");
        // Errors of rounding do not add up.
        let thirds: Vec<_> = (0..3).map(|at| (f64::from(at) * 10.0 / 3.0, 1.0)).collect();
        check(&thirds, "M0 5h1m2.3 0h1m2.4 0h1");
        // A later stage of the lane may begin before the end of the one before.
        check(&[(10.0, 20.0), (15.0, 2.0)], "M10 5h20m-15 0h2");
    }

    #[test]
    fn long_gaps_are_cut_and_short_ones_stay() {
        let check = |bars: &[(i64, i64)], at: &[i64], expect: &[f64], gaps: &[&str]| {
            let scale = Scale::new(bars);
            let places: Vec<f64> = at.iter().map(|ms| scale.x(*ms).round()).collect();
            assert_eq!(places, expect, "{bars:?}");
            let cut: Vec<String> = scale.gaps().into_iter().map(|gap| gap.took).collect();
            assert_eq!(cut, gaps, "{bars:?}");
        };
        check(&[], &[0, 5], &[0.0, 0.0], &[]);
        check(&[(0, 10_000)], &[0, 5_000, 10_000, 20_000], &[0.0, 500.0, 1_000.0, 1_000.0], &[]);
        check(&[(0, 5_000), (6_000, 10_000)], &[5_000, 6_000], &[500.0, 600.0], &[]);
        check(
            &[(0, 5_000), (3_605_000, 3_610_000)],
            &[0, 5_000, 1_000_000, 3_605_000, 3_610_000],
            &[0.0, 493.0, 493.0, 507.0, 1_000.0],
            &["1h 00m"],
        );
        // Many gaps leave a quarter of the width for the stages.
        let many: Vec<_> = (0..200).map(|at| (at * 100_000, at * 100_000 + 10)).collect();
        let scale = Scale::new(&many);
        assert!((scale.x(199 * 100_000 + 10) - WIDTH).abs() < 1.0);
    }
}
