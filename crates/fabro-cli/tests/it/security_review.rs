//! A security review of 47 nodes in the style of upstream's users, run in four situations.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::project::Project;

const WORKFLOW: &str = "flow/workflow.fabro";

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/security-review")
}

fn copy(project: &Project, from: &Path, to: &str) {
    for entry in walkdir::WalkDir::new(from) {
        let entry = entry.unwrap();
        if entry.file_type().is_file() {
            let name = Path::new(to).join(entry.path().strip_prefix(from).unwrap());
            project.write(name.to_str().unwrap(), &fs::read(entry.path()).unwrap());
        }
    }
}

/// The workflow in `flow`, and the repository of the situation in `repo`.
fn prepare(situation: &str) -> Project {
    let project = Project::new();
    copy(&project, &fixture(), "flow");
    copy(&project, &fixture().join("situations").join(situation).join("repo"), "repo");
    project
}

/// The inputs of the situation as options; those of `changed` replace them.
fn inputs(project: &Project, situation: &str, changed: &[(&str, &str)]) -> Vec<String> {
    let text = project.read(&format!("flow/situations/{situation}/inputs.json"));
    let mut inputs: Map<String, Value> = serde_json::from_str(&text).unwrap();
    for (name, value) in changed {
        inputs[*name] = json!(value);
    }
    inputs
        .into_iter()
        .flat_map(|(name, value)| {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            ["-I".to_owned(), format!("{name}={text}")]
        })
        .collect()
}

/// A run that has ended.
struct Review {
    project: Project,
    exit: i32,
    /// Of `inspect`.
    run: Value,
    /// Of `context`, at the end.
    context: Value,
}

impl Review {
    /// Runs a situation without a terminal.
    fn of(situation: &str) -> Self {
        Self::run(prepare(situation), situation, &[])
    }

    fn run(project: Project, situation: &str, changed: &[(&str, &str)]) -> Self {
        let inputs = inputs(&project, situation, changed);
        let model = format!("flow/situations/{situation}/model.json");
        let answers = format!("flow/situations/{situation}/answers.json");
        let mut args = vec!["run", WORKFLOW, "--model-script", &model, "--answers", &answers];
        args.extend(inputs.iter().map(String::as_str));
        let output = project.output(&args);
        let run = project.json(&["inspect", "latest", "--json"]);
        let context = project.json(&["context", "latest", "--json", "--resolve"]);
        let exit = output.status.code().unwrap();
        assert!(run["ended_at"].is_string(), "{}", project.shown(&output));
        Self { project, exit, run, context }
    }

    /// The stages of the main line, or of the branches: `node@2` is a second visit, `node!` a failure, `node~` a
    /// partial success.
    fn path(&self, of_branches: bool) -> Vec<String> {
        let stages = self.run["stages"].as_array().unwrap().iter();
        stages
            .filter(|stage| stage["branch"].is_string() == of_branches)
            .map(|stage| {
                let visit = match &stage["visit"] {
                    visit if visit == 1 => String::new(),
                    visit => format!("@{visit}"),
                };
                let mark = match stage["status"].as_str().unwrap() {
                    "failed" => "!",
                    "partially_succeeded" => "~",
                    _ => "",
                };
                format!("{}{visit}{mark}", stage["node"].as_str().unwrap())
            })
            .collect()
    }

    #[track_caller]
    fn takes(&self, path: &str) {
        assert_eq!(self.path(false), path.split_whitespace().collect::<Vec<_>>());
    }

    /// The outputs of a list, with the names of its elements.
    #[track_caller]
    fn gives(&self, list: &str, expected: &[(&str, Value)]) {
        let context =
            self.project.json(&["context", "latest", "--at", list, "--json", "--resolve"]);
        let names = context["parallel.results"].as_array().unwrap().iter();
        let names = names.map(|result| result["item_label"].clone());
        let outputs = context["parallel.outputs"].as_array().unwrap().iter().cloned();
        let found: Vec<(Value, Value)> = names.zip(outputs).collect();
        let expected: Vec<(Value, Value)> =
            expected.iter().map(|(name, output)| (json!(name), output.clone())).collect();
        assert_eq!(found, expected, "{list}");
    }

    /// The final context has these values.
    #[track_caller]
    fn ends_with(&self, expected: &Value) {
        let expected = expected.as_object().unwrap();
        let found: Map<String, Value> =
            expected.keys().map(|key| (key.clone(), self.context[key].clone())).collect();
        assert_eq!(&found, expected);
    }

    fn prompt(&self, stage: &str) -> String {
        let stage = self.project.json(&["inspect", "latest", stage, "--json"]);
        stage["prompt"].as_str().unwrap().to_owned()
    }
}

/// What a scanner prints that has no hits.
fn no_hits(scanner: &str) -> (&str, Value) {
    (scanner, json!(format!("{scanner}: 0 hits\n{{\"context_updates\": {{\"hits\": []}}}}")))
}

/// What a scanner prints that has one.
fn one_hit(scanner: &'static str, at: &str, pattern: &str, severity: u8) -> (&'static str, Value) {
    let file = at.split(':').next().unwrap();
    let hit = format!(
        "{{\"name\": \"{scanner}:{at}\", \"file\": \"{file}\", \"pattern\": {}, \"severity\": {severity}}}",
        json!(pattern)
    );
    let text = format!("{scanner}: 1 hits\n{{\"context_updates\": {{\"hits\": [{hit}]}}}}");
    (scanner, json!(text))
}

/// What the audit prints of a manifest without an advisory.
fn no_advisory() -> (&'static str, Value) {
    let text = r#"{"context_updates": {"advisories": [], "audit_status": "clean"}}"#;
    ("requirements.txt", json!(text))
}

const CLEAN: &str =
    "start preflight inventory profile check_profile threat_model rank_threats plan_scanners
    scan_each scan_join merge_hits list_manifests audit_each audit_join merge_audits
    review_each review_join merge_reviews verify_each verify_join confirm triage recheck
    score read_score report link approve attest exit";

#[test]
fn a_clean_repository_is_approved() {
    let review = Review::of("clean");
    assert_eq!(review.exit, 0);
    review.takes(CLEAN);
    let scanners = ["code-execution", "shell-injection", "weak-hash"];
    review.gives("scan_each", &scanners.map(no_hits));
    review.gives("audit_each", &[no_advisory()]);
    let none = json!({"findings": []});
    review.gives("review_each", &[("forms", none.clone()), ("queue", none)]);
    review.gives("verify_each", &[]);
    review.ends_with(&json!({
        "ranked_threats": ["code injection", "old dependencies"],
        "threat_count": 2,
        "hits_by_scanner": {"code-execution": 0, "shell-injection": 0, "weak-hash": 0},
        "audits": {"requirements.txt": "clean"},
        "worst_by_area": {"forms": 0, "queue": 0},
        "confirmed_count": 0,
        "risk": 0,
        "grade": "A",
        "attested": true,
        "human.gate.approve.label": "[A] Approve",
    }));
    // The child with inputs of its own has its result; the other one has also changed the context of the review.
    assert_eq!(review.context["child.score"]["output.rate"], json!({"risk": 0, "grade": "A"}));
    assert_eq!(review.context["child.threat_model"]["threat_count"], 2);
    assert_eq!(review.context["total"], Value::Null);
    let prompt = review.prompt("review[1]");
    assert!(prompt.contains("You review the repository repo, a web form service."), "{prompt}");
    assert!(prompt.contains("The scanners found nothing."), "{prompt}");
    assert!(!prompt.contains("Do not report these again."), "{prompt}");
    // The gate shows the link of the report.
    let events = review.project.run(&["events", "latest", "--json"]);
    let link = "Review the Security review report, then choose the next action.\\nhttps://reviews.example.com/repo/report";
    assert!(events.contains(link), "{events}");
    assert!(events.contains("[A] Approve: Grade A, risk 0"), "{events}");
}

const FIXED: &str =
    "start preflight inventory profile check_profile threat_model rank_threats plan_scanners
    scan_each scan_join merge_hits list_manifests audit_each audit_join merge_audits
    review_each review_join merge_reviews verify_each verify_join confirm triage
    fix_each fix_join merge_fixes recheck! fix_each@2 fix_join@2 merge_fixes@2 recheck@2
    score read_score report link approve attest! report@2 link@2 approve@2 attest@2 exit";

#[test]
fn findings_are_fixed_in_two_rounds() {
    let review = Review::of("fixed");
    assert_eq!(review.exit, 0);
    review.takes(FIXED);
    let eval = "code-execution:src/forms.py:2";
    let md5 = "weak-hash:src/session.py:5";
    let old = "ADV-101:formlib";
    let redirect = "open-redirect:src/session.py";
    review.gives(
        "scan_each",
        &[
            one_hit("code-execution", "src/forms.py:2", r"\b(eval|exec)\(", 5),
            no_hits("shell-injection"),
            one_hit("weak-hash", "src/session.py:5", r"\b(md5|sha1)\(", 3),
        ],
    );
    let advisory = r#"{"context_updates": {"advisories": [{"name": "ADV-101:formlib", "file": "requirements.txt", "pattern": "^formlib==1.0.1$", "severity": 4}], "audit_status": "vulnerable"}}"#;
    review.gives("audit_each", &[("requirements.txt", json!(advisory))]);
    let finding = json!({
        "name": redirect, "file": "src/session.py", "pattern": "args\\[\"next\"\\]", "severity": 3
    });
    let found = json!({"findings": [finding]});
    review.gives("review_each", &[("forms", json!({"findings": []})), ("session", found)]);
    let verdict = |confirmed, reason| json!({"confirmed": confirmed, "reason": reason});
    review.gives(
        "verify_each",
        &[
            (eval, verdict(true, "user input reaches it")),
            (md5, verdict(false, "the id is not a secret")),
            (old, verdict(true, "the version is listed")),
            (redirect, verdict(true, "any address is accepted")),
        ],
    );
    review.gives(
        "fix_each@1",
        &[
            (eval, json!("eval is now ast.literal_eval.")),
            (old, json!("formlib is now 1.2.0.")),
            (redirect, json!("The redirect stays: it is checked by the caller.")),
        ],
    );
    // The second round has the finding that was open.
    review.gives("fix_each@2", &[(redirect, json!("Only allowed addresses are returned."))]);
    review.ends_with(&json!({
        "hits_by_scanner": {"code-execution": 1, "shell-injection": 0, "weak-hash": 1},
        "audits": {"requirements.txt": "vulnerable"},
        "worst_by_area": {"forms": 0, "session": 3},
        "dismissed": [md5],
        "confirmed_count": 3,
        "open": [],
        "fixed": [old, eval, redirect],
        "blocked_reason": null,
        "risk": 12,
        "grade": "C",
        "attested": true,
    }));
    assert_eq!(review.project.read("repo/requirements.txt"), "formlib==1.2.0\n");
    assert!(review.project.read("repo/src/forms.py").starts_with("import ast\n"));
    let prompt = review.prompt("fix_each@2/fix[0]/fix@2");
    let reason = format!("The last round failed: still open after round 1: {redirect}");
    assert!(prompt.contains(&reason), "{prompt}");
    let prompt = review.prompt("review[0]");
    assert!(prompt.contains(&format!("\n- {eval}\n- {md5}\n")), "{prompt}");
    // The answer of one element had to be repaired, and the first report did not name a finding.
    let events = review.project.run(&["events", "latest", "--json"]);
    assert!(events.contains("I think it is real."), "{events}");
    assert!(events.contains(&format!("not in the report: {redirect}")), "{events}");
}

const OVER_CAP: &str =
    "start preflight inventory profile check_profile threat_model rank_threats plan_scanners
    scan_each scan_join merge_hits list_manifests review_each review_join merge_reviews
    verify_each verify_join confirm triage blocked";

#[test]
fn too_many_findings_block_the_release() {
    let review = Review::of("over-cap");
    assert_eq!(review.exit, 1);
    review.takes(OVER_CAP);
    let exec = "code-execution:src/run.py:5";
    let shell = "shell-injection:src/run.py:6";
    let sha1 = "weak-hash:src/hash.py:5";
    let timeout = "no-timeout:src/run.py";
    review.gives(
        "scan_each",
        &[
            one_hit("code-execution", "src/run.py:5", r"\b(eval|exec)\(", 5),
            one_hit("shell-injection", "src/run.py:6", r"shell\s*=\s*True", 4),
            one_hit("weak-hash", "src/hash.py:5", r"\b(md5|sha1)\(", 3),
        ],
    );
    let finding = json!({
        "name": timeout,
        "file": "src/run.py",
        "pattern": "subprocess\\.run\\((?!.*timeout)",
        "severity": 1
    });
    // An area without a file was left out.
    review.gives("review_each", &[("runner", json!({"findings": [finding]}))]);
    let yes = json!({"confirmed": true, "reason": "it is in use"});
    let no = json!({"confirmed": false, "reason": "not a weakness"});
    let verdicts = [(exec, yes.clone()), (shell, yes.clone()), (sha1, yes), (timeout, no)];
    review.gives("verify_each", &verdicts);
    let reason = format!("3 confirmed findings, at most 2 allowed: {exec}, {shell}, {sha1}");
    review.ends_with(&json!({
        "manifests": [],
        "confirmed_count": 3,
        "dismissed": [timeout],
        "blocked_reason": reason,
    }));
    assert_eq!(review.run["status"], "failed");
    assert_eq!(review.run["failure"]["message"], reason);
}

const FAILED_REVIEWER: &str =
    "start preflight inventory profile check_profile threat_model rank_threats
    list_manifests audit_each audit_join merge_audits review_each~ review_join
    gaps second_each second_join merge_second verify_each verify_join confirm triage recheck
    score read_score report link approve report@2 link@2 approve@2 attest exit";

#[test]
fn an_area_without_a_review_is_reviewed_again() {
    let review = Review::of("failed-reviewer");
    assert_eq!(review.exit, 0);
    review.takes(FAILED_REVIEWER);
    assert!(review.path(true).contains(&"review!".to_owned()));
    review.gives("audit_each", &[no_advisory()]);
    let limit = "no-rate-limit:src/auth.py";
    let traversal = "path-traversal:src/api.py";
    let found = json!({"findings": [
        {"name": limit, "file": "src/auth.py", "pattern": "def login", "severity": 2}
    ]});
    review.gives("review_each", &[("api", Value::Null), ("auth", found)]);
    let found = json!({"findings": [
        {"name": traversal, "file": "src/api.py", "pattern": "open\\(path\\)", "severity": 4}
    ]});
    review.gives("second_each", &[("api", found)]);
    let no = json!({"confirmed": false, "reason": "the caller checks it"});
    review.gives("verify_each", &[(limit, no.clone()), (traversal, no)]);
    review.ends_with(&json!({
        "ranked_threats": ["old dependencies"],
        "dismissed": [limit, traversal],
        "confirmed_count": 0,
        "grade": "A",
        "attested": true,
        "human.gate.approve.label": "[A] Approve",
    }));
    let gaps = review.context["gaps"].as_array().unwrap();
    assert_eq!(gaps.len(), 1, "{gaps:?}");
    let failure = gaps[0]["failure"].as_str().unwrap();
    let prompt = review.prompt("second_review[0]");
    let told = format!("The first reviewer of the area \"api\" failed: {failure}");
    assert!(prompt.contains(&told), "{prompt}");
    let prompt = review.prompt("report@2");
    let told = "A person asked for this change: Say which areas were reviewed twice.";
    assert!(prompt.contains(told), "{prompt}");
    assert!(!review.prompt("report@1").contains("A person asked"));
}

const REJECTED: &str =
    "start preflight inventory profile check_profile threat_model rank_threats plan_scanners
    scan_each scan_join merge_hits list_manifests audit_each audit_join merge_audits
    review_each review_join merge_reviews verify_each verify_join confirm triage recheck
    score read_score report link approve rejected";

#[test]
fn other_ends_fail_with_their_reasons() {
    let failure = |review: &Review| review.run["failure"]["message"].clone();
    // A person rejects the review.
    let project = prepare("clean");
    project.write("flow/situations/clean/answers.json", br#"{"approve": ["R"]}"#);
    let review = Review::run(project, "clean", &[]);
    assert_eq!(review.exit, 1);
    review.takes(REJECTED);
    assert_eq!(failure(&review), "the review of repo was rejected");
    // Findings are still open after the last round.
    let review = Review::run(prepare("fixed"), "fixed", &[("rounds", "1")]);
    assert_eq!(review.exit, 1);
    let path = review.path(false);
    assert!(path.ends_with(&["recheck!".to_owned(), "blocked".to_owned()]), "{path:?}");
    assert_eq!(failure(&review), "still open after round 1: open-redirect:src/session.py");
    // There is nothing to review.
    let review = Review::run(prepare("clean"), "clean", &[("repo", "nowhere")]);
    assert_eq!(review.exit, 1);
    review.takes("start preflight blocked");
    assert_eq!(failure(&review), "there is nothing to review in nowhere");
}

#[test]
fn the_workflow_is_valid_and_formatted() {
    let project = prepare("clean");
    let inputs = inputs(&project, "clean", &[]);
    let mut args = vec!["validate", WORKFLOW, "--format", "json"];
    args.extend(inputs.iter().map(String::as_str));
    let report = project.json(&args);
    assert_eq!(report["files"][0]["findings"], serde_json::json!([]));
    assert_eq!(project.exit(&["fmt", "--check", "flow"]), 0);
}

/// The fixture has the size of its users' workflows, and every part of it is used by a situation.
#[test]
fn the_workflow_keeps_its_size() {
    let project = prepare("clean");
    let dot = project.run(&["graph", WORKFLOW, "--format", "dot"]);
    // `"id" ["key"="value", ...]`, one node a line.
    let lines = dot.lines().map(str::trim).filter(|line| line.starts_with('"'));
    let nodes: Vec<(&str, &str)> = lines
        .filter_map(|line| line[1..].split_once('"'))
        .filter(|(_, rest)| !rest.starts_with(" ->"))
        .collect();
    let ids: BTreeSet<&str> = nodes.iter().map(|(id, _)| *id).collect();
    assert_eq!((ids.len(), nodes.len()), (47, 47), "{dot}");
    let with = |parts: &[&str]| {
        nodes.iter().filter(|(_, rest)| parts.iter().all(|part| rest.contains(part))).count()
    };
    assert_eq!(with(&["\"for_each\"="]), 6, "{dot}");
    assert_eq!(with(&["\"shape\"=\"tripleoctagon\""]), 6, "{dot}");
    let steering = ["\"shape\"=\"parallelogram\"", "\"output_schema\"=\"routing\""];
    assert_eq!(with(&steering), 21, "{dot}");
    let [command, routing] = steering;
    assert_eq!(with(&[command, routing, "\"stdin_source\"=\"context."]), 12, "{dot}");
    assert_eq!(with(&[command, routing, "parallel.results\""]), 6, "{dot}");
    assert_eq!(with(&["\"goal_gate\"=\"true\"", "\"retry_target\"="]), 2, "{dot}");
    assert_eq!(with(&["\"stack.child_workflow\"="]), 2, "{dot}");
    assert_eq!(with(&["\"status\"=\"failed\""]), 2, "{dot}");
    assert_eq!(with(&["\"review_target\"=\"true\""]), 1, "{dot}");

    let main_lines = [CLEAN, FIXED, OVER_CAP, FAILED_REVIEWER, REJECTED].join(" ");
    let of_branches =
        "scan audit review grade_review second_review verify fix check_fix".split_whitespace();
    let visited: BTreeSet<&str> = main_lines
        .split_whitespace()
        .map(|stage| stage.split(['@', '!', '~']).next().unwrap())
        .chain(of_branches)
        .collect();
    assert_eq!(visited, ids);
}
