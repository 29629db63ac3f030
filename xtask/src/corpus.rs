//! Public workflows and conditions of other authors, held beside the repository. `FABRO_CORPUS`
//! names a folder with `verdicts.tsv` (a header line, then `path`, `hint`, `shape`, … a line) and
//! `conditions.jsonl` (`expr`, `outcome`, `preferred_label`, `context`, `expect` a line).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use fabro_condition::Condition;
use serde::Deserialize;
use serde_json::Value;

use crate::{complain, editors, say};

/// The rule of findings about files that a workflow names and the corpus lacks.
const MISSING_FILE: &str = "missing-file";

/// Checks both with the `fabro` given.
pub(crate) fn check(corpus: &Path, fabro: &Path) -> Result<()> {
    let read = |name: &str| {
        fs::read_to_string(corpus.join(name)).with_context(|| format!("read {name} of the corpus"))
    };
    let cases = read("conditions.jsonl")?;
    let verdicts = read("verdicts.tsv")?;
    let rows = rows(&verdicts)?;
    let conditions = cases.lines().filter(|line| !line.trim().is_empty()).count();
    ensure!(conditions > 0, "conditions.jsonl lists no conditions");
    let mut wrong = judge_conditions(&cases);
    let printed = validate(corpus, fabro, &rows)?;
    let valid = printed.files.iter().filter(|file| file.valid);
    let valid: Vec<String> = valid.map(|file| file.file.clone()).collect();
    let figures = warning_figures(&printed);
    say(&figures.table());
    if figures.median > MAX_MEDIAN {
        wrong.push(format!("at the median a file has {} warnings", figures.median));
    }
    wrong.extend(judge_workflows(&rows, printed)?);
    for file in &valid {
        let source =
            fs::read_to_string(corpus.join(file)).with_context(|| format!("read {file}"))?;
        wrong.extend(editors::complaints(file, &source));
    }
    wrong.extend(judge_dry_runs(&dry_runs(corpus, fabro, &valid)?));
    say(&format!("corpus: {} workflows, {conditions} conditions", rows.len()));
    for line in &wrong {
        complain(line);
    }
    if !wrong.is_empty() {
        bail!("{} results are not the expected ones", wrong.len());
    }
    Ok(())
}

/// A line of `verdicts.tsv`.
struct Row<'a> {
    path: &'a str,
    /// A guess from the file's name, such as `probably-valid`.
    hint: &'a str,
    /// `complete` when it has a start and an exit.
    shape: &'a str,
}

fn rows(verdicts: &str) -> Result<Vec<Row<'_>>> {
    let row = |line| {
        let mut cells = str::split(line, '\t');
        Some(Row { path: cells.next()?, hint: cells.next()?, shape: cells.next()? })
    };
    let lines = verdicts.lines().zip(1..).skip(1);
    let rows = lines.map(|(line, number)| {
        row(line).with_context(|| format!("verdicts.tsv:{number}: path, hint, shape are wanted"))
    });
    let rows: Vec<_> = rows.collect::<Result<_>>()?;
    ensure!(!rows.is_empty(), "verdicts.tsv lists no files");
    Ok(rows)
}

/// The output of `fabro validate --format json`.
#[derive(Deserialize)]
struct Printed {
    files: Vec<Validated>,
}

#[derive(Deserialize)]
struct Validated {
    file: String,
    valid: bool,
    findings: Vec<Finding>,
}

#[derive(Deserialize)]
struct Finding {
    rule: String,
    severity: String,
    line: Option<u64>,
    #[serde(default)]
    message: String,
}

impl Finding {
    /// Whether a file is missing, of the workflow or of a sub-workflow.
    fn is_missing_file(&self) -> bool {
        self.rule == MISSING_FILE
            || self.rule == "child-workflow" && self.message.ends_with("no such file")
    }
}

/// How many warnings a file may have at the median.
const MAX_MEDIAN: usize = 1;

/// How often validation warns.
#[derive(Debug, PartialEq)]
struct WarningFigures {
    /// By rule: warnings, and the files with one at least.
    by_rule: BTreeMap<String, (usize, usize)>,
    /// The warnings of the file in the middle.
    median: usize,
    files: usize,
}

impl WarningFigures {
    fn table(&self) -> String {
        let line = |(rule, (count, files)): (&String, &(usize, usize))| {
            format!("  {rule:<22} {count:>5} in {files:>4} files\n")
        };
        let lines: String = self.by_rule.iter().map(line).collect();
        format!("warnings:\n{lines}  median of {} files: {}", self.files, self.median)
    }
}

fn warning_figures(printed: &Printed) -> WarningFigures {
    let mut by_rule: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let mut counts = Vec::new();
    for file in &printed.files {
        let warnings = || file.findings.iter().filter(|finding| finding.severity == "warning");
        for finding in warnings() {
            by_rule.entry(finding.rule.clone()).or_default().0 += 1;
        }
        for rule in warnings().map(|finding| &finding.rule).collect::<BTreeSet<_>>() {
            by_rule.entry(rule.clone()).or_default().1 += 1;
        }
        counts.push(warnings().count());
    }
    counts.sort_unstable();
    let median = counts.get(counts.len() / 2).copied().unwrap_or_default();
    WarningFigures { by_rule, median, files: counts.len() }
}

/// Validates all files at once.
fn validate(corpus: &Path, fabro: &Path, rows: &[Row<'_>]) -> Result<Printed> {
    let mut command = Command::new(fabro);
    command.args(["validate", "--format", "json"]).args(rows.iter().map(|row| row.path));
    command.current_dir(corpus).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output().with_context(|| format!("start {}", fabro.display()))?;
    // 2 says that at least one is invalid.
    ensure!(matches!(output.status.code(), Some(0 | 2)), "`fabro validate`: {}", output.status);
    serde_json::from_slice(&output.stdout).context("read what `fabro validate` printed")
}

/// The files with another verdict than expected. A file that looks valid is, but for files it names
/// that are missing here; one without a start or an exit is not; every finding has a line.
fn judge_workflows(rows: &[Row<'_>], printed: Printed) -> Result<Vec<String>> {
    let files = printed.files;
    ensure!(files.len() == rows.len(), "{} of {} files were judged", files.len(), rows.len());
    let mut wrong = Vec::new();
    for (row, Validated { file, valid, findings }) in rows.iter().zip(files) {
        ensure!(file == row.path, "{file} was judged in place of {}", row.path);
        let mut say = |message: String| wrong.push(format!("{}: {message}", row.path));
        let errors: Vec<_> = findings.iter().filter(|it| it.severity == "error").collect();
        if valid != errors.is_empty() {
            say(format!("`valid` is {valid}, with {} errors", errors.len()));
        }
        if findings.iter().any(|finding| finding.line.is_none_or(|line| line == 0)) {
            say("a finding has no line".to_owned());
        }
        let refused = errors.iter().find(|error| !error.is_missing_file());
        match (row.hint, row.shape, refused) {
            ("probably-valid", _, Some(error)) => say(format!("refused by `{}`", error.rule)),
            (_, "fragment", None) => say("accepted without a start or an exit".to_owned()),
            _ => {}
        }
    }
    Ok(wrong)
}

/// A dry run of one workflow: its file, and what it printed when it did not reach the exit.
type DryRun = (String, Option<String>);

/// The part of the valid workflows whose dry run has to reach the exit, in percent.
const LEAST_DRY_RUNS: usize = 95;

/// Walks through every workflow without executing anything.
fn dry_runs(corpus: &Path, fabro: &Path, files: &[String]) -> Result<Vec<DryRun>> {
    let dir = tempfile::tempdir().context("make a directory for the runs")?;
    let store = dir.path().join("store");
    let mut runs = Vec::new();
    for file in files {
        let mut command = Command::new(fabro);
        command.args(["run", "--dry-run", "--goal", "a goal", "--store"]).arg(&store);
        command.arg(fs::canonicalize(corpus.join(file))?).current_dir(dir.path());
        let output = command.stdin(Stdio::null()).output();
        let output = output.with_context(|| format!("start {}", fabro.display()))?;
        let printed = String::from_utf8_lossy(&output.stderr);
        let last = printed.lines().find(|line| line.contains("failed")).unwrap_or_default();
        runs.push((file.clone(), (!output.status.success()).then(|| last.trim().to_owned())));
    }
    Ok(runs)
}

/// The dry runs that do not reach the exit, when they are too many.
fn judge_dry_runs(runs: &[DryRun]) -> Vec<String> {
    let stuck = runs.iter().filter_map(|(file, why)| why.as_ref().map(|why| (file, why)));
    let stuck: Vec<_> = stuck.map(|(file, why)| format!("{file}: the dry run: {why}")).collect();
    say(&format!("corpus: {} of {} dry runs reach the exit", runs.len() - stuck.len(), runs.len()));
    let enough = (runs.len() - stuck.len()) * 100 >= runs.len() * LEAST_DRY_RUNS;
    if enough { Vec::new() } else { stuck }
}

/// The conditions with another result than expected.
fn judge_conditions(cases: &str) -> Vec<String> {
    let lines = cases.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty());
    let judged = lines.map(|(line, number)| (number, condition_complaint(line)));
    let wrong = judged.filter_map(|(number, judged)| match judged {
        Ok(None) => None,
        Ok(Some(complaint)) => Some(format!("conditions.jsonl:{number}: {complaint}")),
        Err(error) => Some(format!("conditions.jsonl:{number}: {error:#}")),
    });
    wrong.collect()
}

/// A line of `conditions.jsonl`.
#[derive(Deserialize)]
struct Case {
    expr: String,
    expect: bool,
    #[serde(default)]
    context: BTreeMap<String, Value>,
    /// `outcome` and `preferred_label`.
    #[serde(flatten)]
    others: BTreeMap<String, Value>,
}

fn condition_complaint(line: &str) -> Result<Option<String>> {
    let Case { expr, expect, mut context, others } =
        serde_json::from_str(line).context("read the case")?;
    context.extend(others);
    let condition = Condition::parse(&expr).with_context(|| format!("read `{expr}`"))?;
    let holds = condition.holds(&context);
    Ok((holds != expect).then(|| format!("`{expr}` is {holds}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn printed(value: Value) -> Printed {
        serde_json::from_value(value).unwrap()
    }

    #[track_caller]
    fn check(hint: &str, shape: &str, errors: &[&str], expect: &[&str]) {
        let findings: Vec<_> = errors
            .iter()
            .map(|rule| json!({"rule": rule, "severity": "error", "line": 1}))
            .chain([json!({"rule": "unreachable", "severity": "warning", "line": 2})])
            .collect();
        let file = json!({"file": "a.dot", "valid": errors.is_empty(), "findings": findings});
        let rows = [Row { path: "a.dot", hint, shape }];
        assert_eq!(judge_workflows(&rows, printed(json!({"files": [file]}))).unwrap(), expect);
    }

    #[test]
    fn a_verdict_that_is_not_expected_is_seen() {
        check("probably-valid", "complete", &[], &[]);
        check("probably-valid", "complete", &["missing-file"], &[]);
        check(
            "probably-valid",
            "complete",
            &["missing-file", "syntax"],
            &["a.dot: refused by `syntax`"],
        );
        check("invalid", "complete", &[], &[]);
        check("invalid", "fragment", &["start"], &[]);
        check("invalid", "fragment", &[], &["a.dot: accepted without a start or an exit"]);
    }

    #[test]
    fn one_dry_run_of_twenty_may_end_early() {
        let run = |why: Option<&str>| ("a.dot".to_owned(), why.map(str::to_owned));
        let mut runs = vec![run(None); 19];
        runs.push(run(Some("no matching edge")));
        assert_eq!(judge_dry_runs(&runs), Vec::<String>::new());
        runs.truncate(1);
        runs.push(run(Some("no matching edge")));
        assert_eq!(judge_dry_runs(&runs), ["a.dot: the dry run: no matching edge"]);
    }

    #[test]
    fn warnings_are_counted_by_rule_and_file() {
        let file = |rules: &[&str]| {
            let findings: Vec<_> = rules
                .iter()
                .map(|rule| json!({"rule": rule, "severity": "warning", "line": 1}))
                .collect();
            json!({"file": "a.dot", "valid": true, "findings": findings})
        };
        let files = [file(&["x", "x", "y"]), file(&["x"]), file(&[])];
        let figures = warning_figures(&printed(json!({"files": files})));
        assert_eq!(figures.median, 1);
        assert_eq!(figures.by_rule["x"], (3, 2));
        assert_eq!(figures.by_rule["y"], (1, 1));
    }

    #[test]
    fn a_line_that_cannot_be_read_is_seen() {
        let error = |verdicts| rows(verdicts).err().unwrap().to_string();
        assert_eq!(error("path\thint\tshape\n"), "verdicts.tsv lists no files");
        assert_eq!(
            error("path\thint\tshape\na.dot\tvalid\n"),
            "verdicts.tsv:2: path, hint, shape are wanted"
        );
    }

    #[test]
    fn an_answer_that_makes_no_sense_is_seen() {
        let rows = [Row { path: "a.dot", hint: "", shape: "" }];
        assert!(judge_workflows(&rows, printed(json!({"files": []}))).is_err());
        let mut file = json!({"file": "a.dot", "valid": true,
            "findings": [{"rule": "a", "severity": "error"}]});
        assert_eq!(
            judge_workflows(&rows, printed(json!({"files": [file]}))).unwrap(),
            ["a.dot: `valid` is true, with 1 errors", "a.dot: a finding has no line"]
        );
        file["file"] = "b.dot".into();
        assert!(judge_workflows(&rows, printed(json!({"files": [file]}))).is_err());
    }

    #[test]
    fn a_condition_that_comes_out_wrong_is_seen() {
        let case = |expr: &str, expect: bool| {
            json!({"expr": expr, "outcome": "success", "context": {"a": 1}, "expect": expect})
                .to_string()
        };
        let cases = [case("a=1", true), case("outcome=succeeded", false), case("(", true)];
        let said = judge_conditions(&cases.join("\n"));
        assert_eq!(said.len(), 2, "{said:?}");
        assert_eq!(said[0], "conditions.jsonl:2: `outcome=succeeded` is true");
    }
}
