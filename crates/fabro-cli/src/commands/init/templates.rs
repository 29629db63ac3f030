//! The workflows that a project can start from: the first one, and the examples of the repository.

/// A workflow with its files.
#[derive(Debug)]
pub struct Template {
    /// The name of the template, and of the workflow that is made of it.
    pub name: &'static str,
    /// What it shows.
    pub about: &'static str,
    /// Its files by their paths in the workflow's directory, and what `fabro init` writes there.
    pub files: &'static [(&'static str, &'static str)],
}

/// An example, by the names of its files. `templates` is a link to `examples` of the repository, so that the package has
/// the files too.
macro_rules! example {
    ($name:literal, $about:literal, [$($file:literal),+ $(,)?]) => {
        Template {
            name: $name,
            about: $about,
            files: &[$((
                $file,
                include_str!(concat!("../../../templates/", $name, "/", $file)),
            )),+],
        }
    };
}

/// All templates. The first one is the default.
pub const TEMPLATES: &[Template] = &[
    Template {
        name: "hello",
        about: "a first workflow: a model writes, a command checks",
        files: &[
            ("workflow.fabro", include_str!("workflow.fabro")),
            ("workflow.toml", include_str!("workflow.toml")),
            ("model.json", include_str!("model.json")),
        ],
    },
    example!(
        "fix-until-green",
        "an agent in a loop with tests, and a reviewer",
        [
            "README.md",
            "model.json",
            "project/roman.py",
            "project/test_roman.py",
            "review.md",
            "run.toml",
            "workflow.fabro"
        ]
    ),
    example!(
        "red-ci",
        "a failed CI job: diagnosis, fix, patch",
        [
            "README.md",
            "ci.log",
            "diagnose.md",
            "diagnosis.schema.json",
            "fix.md",
            "model.json",
            "patch.sh",
            "project/ci.sh",
            "project/stats.py",
            "project/test_stats.py",
            "run.toml",
            "workflow.fabro"
        ]
    ),
    example!(
        "triage",
        "for_each over issues, validated output, a table by a script",
        [
            "README.md",
            "issues.json",
            "label.md",
            "label.schema.json",
            "model.json",
            "run.toml",
            "table.py",
            "workflow.fabro"
        ]
    ),
    example!(
        "data-pipeline",
        "no model: parallel scripts, a join, a check, a gate if needed",
        [
            "README.md",
            "report.py",
            "run.toml",
            "sales/north.csv",
            "sales/south.csv",
            "sales/west.csv",
            "total.py",
            "workflow.fabro"
        ]
    ),
    example!(
        "research",
        "search over files, answers with sources that are checked",
        [
            "README.md",
            "answer.md",
            "answer.schema.json",
            "check.py",
            "model.json",
            "notes/backup.md",
            "notes/locks.md",
            "notes/wal.md",
            "run.toml",
            "workflow.fabro"
        ]
    ),
    example!(
        "migrate",
        "one change in many files",
        [
            "README.md",
            "model.json",
            "project/test_add.py",
            "project/test_mul.py",
            "rewrite.md",
            "rewrite.schema.json",
            "run.toml",
            "workflow.fabro"
        ]
    ),
    example!(
        "release",
        "parallel preparation, notes by a model, a gate with free text",
        [
            "README.md",
            "answers.json",
            "changes.txt",
            "model.json",
            "notes.md",
            "run.toml",
            "test.sh",
            "workflow.fabro"
        ]
    ),
    example!(
        "review-panel",
        "three reviewers and a judge",
        ["README.md", "change.diff", "judge.md.j2", "model.json", "run.toml", "workflow.fabro"]
    ),
    example!(
        "debate",
        "a conversation between agents with memory",
        ["README.md", "model.json", "run.toml", "workflow.fabro"]
    ),
    example!(
        "github-actions",
        "a review of each pull request, its report kept as an artifact",
        [
            "README.md",
            "change.diff",
            "change.sh",
            "fabro.yml",
            "model.json",
            "review.md",
            "review.schema.json",
            "run.toml",
            "summary.py",
            "workflow.fabro"
        ]
    ),
];
