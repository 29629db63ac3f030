//! A run as one HTML file.

use std::collections::BTreeMap;
use std::io::{self, Write as _};

use askama::Template;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fabro_blob::BlobStore;
use fabro_events::Event;
use fabro_graph::Workflow;
use fabro_inspect::{ArtifactRow, CostReport, Inspect, ReportError, StageRow, Stages};
use fabro_picture::{Marks, Picture};
use flate2::Compression;
use flate2::write::DeflateEncoder;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::artifacts::artifacts;
use crate::cost::cost;
use crate::differences::{Comparison, differences};
use crate::graph::{edges, graph, marks};
use crate::overview::overview;
use crate::stage::{CONTEXT_READ, StageExtras, stage};
use crate::stage_list::row;
use crate::texts::{Texts, render, shown};
use crate::timeline::timeline;
use crate::{Links, list_script, patch, style};

/// The size of a report that is kept to, in bytes, unless another one is asked for.
pub const MAX_REPORT: usize = 5_000_000;

/// How many characters of a text are in the file as they are; longer ones are packed.
const SHOWN: usize = 4_000;

/// How many characters of a text are kept, tried in this order until the file is small enough.
const KEPT: [usize; 6] = [usize::MAX, 50_000, 10_000, 2_000, 500, 100];

/// How many stages are packed together, and loaded together.
const BLOCK: usize = 100;

/// How many stages are in the file as they are, for readers without JavaScript.
const PLAIN_STAGES: usize = 300;

/// How many bytes of them.
const PLAIN_BYTES: usize = 1_500_000;

/// A run to report about.
pub struct RunReport<'a> {
    /// Its whole log.
    pub events: &'a [Event],
    /// What it is as a whole.
    pub run: &'a Inspect,
    /// Its workflow.
    pub workflow: Option<&'a Workflow>,
    /// Where its large values are.
    pub blobs: &'a dyn BlobStore,
    /// What it spent, its sub-workflows included.
    pub cost: &'a CostReport,
    /// The files that its stages and those of its sub-workflows left.
    pub artifacts: &'a [ArtifactRow],
    /// What it changed; `None` where that was not recorded.
    pub patch: Option<&'a [u8]>,
    /// What its stages changed, by their full names.
    pub patches: &'a BTreeMap<String, Vec<u8>>,
    /// Its sub-workflows, each with the full name of the stage that ran it.
    pub children: Vec<(String, RunReport<'a>)>,
    /// Another run that it is compared with.
    pub comparison: Option<Comparison<'a>>,
}

#[derive(Template)]
#[template(path = "report.html")]
struct Document<'a> {
    policy: String,
    title: String,
    style: &'a str,
    script: &'a str,
    overview: String,
    differences: Option<String>,
    graph: Option<String>,
    timeline: String,
    stage_count: usize,
    /// The blocks of the list: those that are packed are empty.
    blocks: Vec<String>,
    has_packed: bool,
    index: String,
    patch: Option<(String, String)>,
    artifacts: Option<String>,
    cost: Option<String>,
    packed: Vec<(String, String)>,
    cut: usize,
}

/// A run as one HTML file that needs nothing else: no server, no network, no JavaScript for what a small run
/// has. The file has at most `max` bytes if long texts can be cut for that; it says how many were.
///
/// # Errors
///
/// A large value cannot be read back.
pub fn report(run: &RunReport<'_>, max: usize) -> Result<String, ReportError> {
    let mut html = String::new();
    for kept in KEPT {
        html = write(run, kept)?;
        if html.len() <= max {
            break;
        }
    }
    Ok(html)
}

fn write(run: &RunReport<'_>, kept: usize) -> Result<String, ReportError> {
    let links = Links::File(String::new());
    let mut texts = Texts::packed(SHOWN, kept);
    let rows = rows_html(run, &links, &mut texts)?;
    let differences = run.comparison.as_ref().map(|it| differences(it, &run.run.stages, &links));
    let (texts, cut) = texts.finish();
    let mut blocks = Vec::new();
    let mut packed: Vec<(String, String)> = Vec::new();
    let mut plain = 0;
    for (at, block) in rows.chunks(BLOCK).enumerate() {
        plain += block.iter().map(String::len).sum::<usize>();
        if (at + 1) * BLOCK <= PLAIN_STAGES.max(BLOCK) && plain <= PLAIN_BYTES {
            blocks.push(block.concat());
        } else {
            blocks.push(String::new());
            packed.push((format!("rows-{at}"), pack(&json!(block))));
        }
    }
    for (at, text) in texts.iter().enumerate() {
        packed.push((format!("text-{at}"), pack(&json!(text))));
    }
    let all: Vec<&ArtifactRow> = run.artifacts.iter().collect();
    let has_cost = run.cost.total.turns > 0 || !run.cost.models.is_empty();
    let marks = marks(&run.run.stages, &edges(run.events));
    let stages = &run.run.stages;
    let style = style();
    let script = [list_script(), include_str!("../assets/report.js")].concat();
    Ok(render(&Document {
        policy: format!(
            "default-src 'none'; style-src '{}'; script-src '{}'; img-src data:; base-uri 'none'; form-action 'none'",
            hash(&style),
            hash(&script)
        ),
        title: shown(&run.run.workflow).to_string(),
        style: &style,
        script: &script,
        overview: overview(run.run, &links),
        differences,
        graph: run.workflow.map(|it| drawn(it, stages, &marks, &links)),
        timeline: timeline(stages, run.workflow, &links),
        stage_count: stages.len(),
        has_packed: blocks.iter().any(String::is_empty),
        blocks,
        index: pack(&index(stages)),
        patch: run.patch.map(|bytes| (patch::summary(bytes), patch::patch(bytes))),
        artifacts: (!all.is_empty()).then(|| artifacts(&all, true, &links)),
        cost: has_cost.then(|| cost(run.cost, &run.run.id.to_string(), &links)),
        packed,
        cut,
    }))
}

/// The stages of a run, each with its body.
fn rows_html(
    run: &RunReport<'_>,
    links: &Links,
    texts: &mut Texts,
) -> Result<Vec<String>, ReportError> {
    let is_driven = run.run.stages.iter().any(|row| row.status == "running");
    let stages = Stages::new(run.events, is_driven)?;
    let mut files: BTreeMap<&str, Vec<&ArtifactRow>> = BTreeMap::new();
    for file in run.artifacts.iter().filter(|file| file.above.is_none()) {
        files.entry(&file.stage).or_default().push(file);
    }
    let mut list = Vec::with_capacity(run.run.stages.len());
    for it in &run.run.stages {
        let name = it.name();
        let mut report = stages.report(it, run.blobs)?;
        report.read_back_updates(CONTEXT_READ, run.blobs);
        let explain = stages.explain(it);
        let node =
            run.workflow.and_then(|workflow| workflow.find(&it.node).map(|at| workflow.node(at)));
        let extras = StageExtras {
            kind: node.map(|node| node.kind),
            label: node.map(fabro_graph::Node::label).filter(|label| *label != &*it.node),
            explain: explain.as_ref(),
            patch: run.patches.get(&name).map(Vec::as_slice),
            artifacts: files.get(name.as_str()).map_or(&[], Vec::as_slice),
        };
        let mut body = stage(&report, extras, texts, links);
        for (_, child) in run.children.iter().filter(|(stage, _)| *stage == name) {
            body.push_str(&child_html(child, &links.id(&name), texts)?);
        }
        list.push(row(it, links, Some(&body)));
    }
    Ok(list)
}

#[derive(Template)]
#[template(path = "child.html")]
struct Child<'a> {
    overview: String,
    graph: Option<String>,
    rows: &'a [String],
}

fn child_html(
    child: &RunReport<'_>,
    stage: &str,
    texts: &mut Texts,
) -> Result<String, ReportError> {
    let links = Links::File(format!("{stage}›"));
    let rows = rows_html(child, &links, texts)?;
    let marks = marks(&child.run.stages, &edges(child.events));
    let graph = child.workflow.map(|it| drawn(it, &child.run.stages, &marks, &links));
    Ok(render(&Child { overview: overview(child.run, &links), graph, rows: &rows }))
}

/// The picture of a workflow with what a run did.
fn drawn(workflow: &Workflow, rows: &[StageRow], marks: &Marks, links: &Links) -> String {
    let picture = Picture::new(workflow).ok();
    graph(workflow, picture.as_ref(), rows, marks, links)
}

/// What the script needs to find and to sort stages: name, whether it failed, time, price and tokens.
fn index(rows: &[StageRow]) -> serde_json::Value {
    let row = |row: &StageRow| {
        let (cost, tokens) = crate::stage_list::spent(row);
        json!([row.name(), u8::from(row.failure.is_some()), row.duration_ms, cost, tokens])
    };
    rows.iter().map(row).collect()
}

/// A value as JSON, deflated, in Base64.
#[expect(clippy::expect_used, reason = "writing into memory cannot fail")]
fn pack(value: &serde_json::Value) -> String {
    let deflate = |value: &serde_json::Value| -> io::Result<Vec<u8>> {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(value.to_string().as_bytes())?;
        encoder.finish()
    };
    STANDARD.encode(deflate(value).expect("writing into memory cannot fail"))
}

/// A source of a content security policy.
fn hash(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(text)))
}
