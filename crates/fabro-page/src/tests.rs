use std::sync::Arc;

use fabro_inspect::StageRow;
use fabro_types::{Failure, FailureClass, Usage};

use super::*;

fn stage_row(node: &str, visit: u32, rank: u32) -> StageRow {
    StageRow {
        rank,
        node: node.into(),
        visit,
        branch: None,
        status: "succeeded",
        started_at: "2026-11-24T02:06:05.000Z".to_owned(),
        ended_at: Some("2026-11-24T02:06:06.000Z".to_owned()),
        attempts: 1,
        edge: Some("exit".into()),
        duration_ms: 1_000 * u64::from(rank),
        usage: None,
        failure: None,
        choice: None,
        files_touched: Vec::new(),
        warnings: Vec::new(),
        started_ms: 1_000 * i64::from(rank),
        until_ms: 2_000 * i64::from(rank),
        first_seq: 0,
        last_seq: 0,
        left_seq: None,
    }
}

fn rows() -> Vec<StageRow> {
    let mut failed = stage_row("test", 1, 2);
    failed.status = "failed";
    failed.failure = Some(Failure::new(FailureClass::Deterministic, "exit code 1"));
    let mut costly = stage_row("fix", 2, 3);
    let cost_usd = 0.0123;
    costly.usage = Some(Usage { cost_usd, input_tokens: 900, turns: 1, ..Usage::default() });
    costly.branch = Some(Arc::from("checks@1/lint"));
    vec![stage_row("build", 1, 1), failed, costly]
}

#[test]
fn filters_select_and_order_stages() {
    let check = |filter: &str, search: &str, expect: &[usize]| {
        let filter = StageFilter::parse(filter).unwrap();
        assert_eq!(filter.select(&rows(), search), expect, "{filter:?} {search}");
    };
    check("all", "", &[0, 1, 2]);
    check("all", " LINT/f", &[2]);
    check("failed", "", &[1]);
    check("slow", "", &[2, 1, 0]);
    check("slow", "t", &[2, 1]);
    check("costly", "", &[2]);
    assert_eq!(StageFilter::parse("cheap"), None);
}

#[test]
fn a_row_links_to_its_stage() {
    let html = stage_rows(&rows(), &Links::Server("/runs/1".into()));
    insta::assert_snapshot!(html, @r#"
    <a class="stage good" id="build@1" href="/runs/1/stages/build@1"><span class="rank">1</span><span class="sign" role="img" aria-label="succeeded" title="succeeded">✓</span><span class="name">build</span><span class="what">→ exit</span><span class="num spent"></span><span class="num">1.0s</span></a>
    <a class="stage bad" id="test@1" href="/runs/1/stages/test@1"><span class="rank">2</span><span class="sign" role="img" aria-label="failed" title="failed">✗</span><span class="name">test</span><span class="what failure">exit code 1</span><span class="num spent"></span><span class="num">2.0s</span></a>
    <a class="stage good" id="checks@1/lint/fix@2" href="/runs/1/stages/checks@1/lint/fix@2"><span class="rank">3</span><span class="sign" role="img" aria-label="succeeded" title="succeeded">✓</span><span class="name"><span class="branch">checks@1/lint/</span>fix<span class="visit">@2</span></span><span class="what">→ exit</span><span class="num spent">$0.0123</span><span class="num">3.0s</span></a>
    "#);
}

#[test]
fn texts_of_a_run_stay_texts() {
    let mut row = stage_row("<script>alert(1)</script>", 1, 1);
    row.branch = Some("a\"onclick=\"b".into());
    row.failure =
        Some(Failure::new(FailureClass::Deterministic, "</a><img src=x>\u{202e}\u{1b}[2J"));
    let links = Links::File(String::new());
    let html = stage_rows([&row], &links) + &timeline(std::slice::from_ref(&row), None, &links);
    for text in ["<script", "<img", "\"onclick", "\u{202e}", "\u{1b}"] {
        assert!(!html.contains(text), "{text:?} in {html}");
    }
}

#[test]
fn long_texts_are_packed_and_the_longest_are_cut() {
    let check = |mut texts: Texts, text: &str, shown: &str, opens: bool, packed: &[&str], cut| {
        let html = texts.block(text);
        assert!(html.contains(&format!(">{shown}</pre>")), "{html}");
        assert_eq!(html.contains("<button"), opens, "{html}");
        assert_eq!(html.contains("Cut:"), cut > 0, "{html}");
        assert_eq!(texts.finish(), (packed.iter().map(ToString::to_string).collect(), cut));
    };
    check(Texts::packed(4, 8), "äöüß", "äöüß", false, &[], 0);
    check(Texts::packed(4, 8), "äöüßa", "äöüß", true, &["äöüßa"], 0);
    check(Texts::packed(4, 8), "123456789", "1234", true, &["12345678"], 1);
    check(Texts::packed(4, 3), "12345", "123", false, &[], 1);
    check(Texts::cut_at(4), "<b>12", "&#60;b&#62;1", false, &[], 1);
}

#[test]
fn a_timeline_of_many_stages_has_a_lane_for_each_node() {
    let rows: Vec<_> =
        (1..=1_000).map(|at| stage_row(["a", "b"][at as usize % 2], at, at)).collect();
    let html = timeline(&rows, None, &Links::File(String::new()));
    assert_eq!(html.matches("class=\"lane").count(), 2);
    assert_eq!(html.matches("<path class=\"good\"").count(), 2);
    assert!(html.len() < 20_000, "{}", html.len());
    assert!(html.contains("a lane for each node."));
    let names: Vec<String> = (0..300).map(|at| format!("n{at}")).collect();
    let rows: Vec<_> = (0..300).map(|at| stage_row(&names[at as usize], 1, at)).collect();
    let html = timeline(&rows, None, &Links::File(String::new()));
    assert_eq!(html.matches("class=\"lane").count(), 200);
    assert!(html.contains("a lane for each node, but for 100 nodes that took less"));
}
