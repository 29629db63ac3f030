use insta::assert_snapshot;
use tempfile::TempDir;

use super::*;

/// A folder with these files in it.
fn tree(files: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    dir
}

/// What `arg` means in the folder `cwd` of the tree; its place is shown as `DIR`.
#[track_caller]
fn check(dir: &TempDir, cwd: &str, arg: &str) -> String {
    let shown = match locate(arg, &dir.path().join(cwd), Some(Path::new("/home/ann"))) {
        Ok(Target { workflow_file, run_file: None }) => workflow_file.display().to_string(),
        Ok(Target { workflow_file, run_file: Some(run_file) }) => {
            format!("{} from {}", workflow_file.display(), run_file.path.display())
        }
        Err(error) => error.to_string(),
    };
    shown.replace(&dir.path().display().to_string(), "DIR")
}

fn project() -> TempDir {
    let run_file = "_version = 1\n[workflow]\ngraph = 'flow.fabro'\n";
    tree(&[
        (".fabro/workflows/review/workflow.toml", run_file),
        (".fabro/workflows/review/flow.fabro", ""),
        (".fabro/workflows/plan/workflow.fabro", ""),
        (".fabro/workflows/quick.fabro", ""),
        ("src/.fabro/workflows/plan.fabro", ""),
        ("src/main.dot", ""),
        ("src/odd/NAME", ""),
        ("lib/odd/NAME", ""),
        ("src/run.toml", "_version = 1\n[run]\ngoal = '@goal.md'\n"),
        ("src/workflow.fabro", ""),
        ("src/goal.md", "Do it\n"),
        ("src/lost.toml", "_version = 1\n[workflow]\ngraph = 'mian.dot'\n"),
        ("lib/misspelled.toml", "_version = 1\ngrph = 'main.dot'\n[run]\nfoo = 1\n"),
        ("src/bad.toml", "_version = 1\n[run]\ngoal = 3\n"),
    ])
}

#[test]
fn files_names_and_run_files_are_found() {
    let dir = project();
    assert_eq!(check(&dir, "src", "main.dot"), "DIR/src/main.dot");
    assert_eq!(check(&dir, "", "src/odd/NAME"), "DIR/src/odd/NAME");
    assert_eq!(check(&dir, "", "src/run.toml"), "DIR/src/workflow.fabro from DIR/src/run.toml");
    assert_eq!(check(&dir, "lib", "quick"), "DIR/.fabro/workflows/quick.fabro");
    assert_eq!(check(&dir, "", "plan"), "DIR/.fabro/workflows/plan/workflow.fabro");
    // A folder with a `.fabro` is a separate project.
    assert_eq!(check(&dir, "src/odd", "plan"), "DIR/src/.fabro/workflows/plan.fabro");
    assert!(check(&dir, "src/odd", "quick").starts_with("there is no workflow `quick`"));
    std::fs::write(dir.path().join("notes.json"), "{}").unwrap();
    assert!(check(&dir, "", "notes.json").starts_with("`notes.json` is neither a workflow nor"));
    assert_eq!(
        check(&dir, "lib/odd", "review"),
        "DIR/.fabro/workflows/review/flow.fabro from DIR/.fabro/workflows/review/workflow.toml"
    );
}

#[test]
fn what_is_not_there_is_said_with_what_is() {
    let dir = project();
    let lib = dir.path().join("lib");
    let Err(ConfigError::NoWorkflow { tried, near, .. }) = locate("reviwe", &lib, None) else {
        panic!("found");
    };
    assert_eq!((tried.len(), near), (3 * 2, vec!["review".to_owned()]));
    assert_snapshot!(check(&dir, "", "reviwe"), @"there is no workflow `reviwe` (did you mean `review`?); looked for DIR/.fabro/workflows/reviwe/workflow.toml, DIR/.fabro/workflows/reviwe/workflow.fabro, DIR/.fabro/workflows/reviwe.fabro");
    assert_snapshot!(check(&dir, "", "src/mian.dot"), @"there is no file DIR/src/mian.dot (did you mean `main.dot`?)");
    assert_snapshot!(check(&dir, "", "review.fabro"), @"there is no file DIR/review.fabro (did you mean `review`?)");
    assert_snapshot!(check(&dir, "", "src/review.fabro"), @"there is no file DIR/src/review.fabro");
    assert_snapshot!(check(&dir, "", "src/"), @"DIR/src/ is not a file: name a workflow file (.fabro, .dot, .gv) or a run.toml (did you mean one of `DIR/src/bad.toml`, `DIR/src/lost.toml`, `DIR/src/main.dot`?)");
    assert_snapshot!(check(&dir, "", "src/lost.toml"), @"DIR/src/lost.toml:3:9: the workflow DIR/src/mian.dot is not a file (did you mean `main.dot`?)");
    assert_snapshot!(check(&dir, "", "lib/misspelled.toml"), @r"
    DIR/lib/misspelled.toml:1:1: the workflow DIR/lib/workflow.fabro is not a file (name the workflow: `workflow.graph`)
    DIR/lib/misspelled.toml:2:1: warning: `grph` is not a setting (did you mean `workflow.graph`?)
    DIR/lib/misspelled.toml:4:1: warning: `run.foo` is not a setting (remove it, or correct its name)
    ");
    assert_snapshot!(check(&dir, "", "src/bad.toml"), @"DIR/src/bad.toml:3:8: `run.goal` is an integer, but a string is expected (write it in quotes)");
    assert_snapshot!(check(&dir, "", ""), @"`` does not name a workflow: give a workflow file, a run.toml, or the name of a workflow");
    assert_snapshot!(check(&dir, "", ".."), @"`..` does not name a workflow: give a workflow file, a run.toml, or the name of a workflow");
}

#[test]
fn files_of_a_folder_are_listed_and_named_for_a_name() {
    let dir = tree(&[
        ("note.fabro", ""),
        ("old.dot", ""),
        ("run.toml", "_version = 1\n[workflow]\ngraph = 'note.fabro'\n"),
        ("Cargo.toml", "[package]\nname = 'x'\n"),
        ("workflow.toml", "_version = 1\n"),
        ("src/workflow.fabro", ""),
        ("src/run.toml", "_version = 1\n"),
        ("folder.fabro/x", ""),
    ]);
    let files = |at: &str| Vec::from_iter(workflow_files(&dir.path().join(at)));
    assert_eq!(files(""), ["note.fabro", "old.dot", "run.toml"]);
    assert_eq!(files("src"), ["run.toml", "workflow.fabro"]);
    assert!(files("gone").is_empty());
    assert!(
        check(&dir, "", "note")
            .starts_with("there is no workflow `note` (did you mean `note.fabro`?)")
    );
}

#[test]
fn a_goal_comes_from_a_file_or_stands_for_itself() {
    let dir = project();
    let mut run_file = load(&dir.path().join("src/run.toml")).unwrap();
    assert_eq!(run_file.goal(None).unwrap().as_deref(), Some("Do it"));
    let mut check = |goal: &str, expect: &str| {
        run_file.config.goal = Some(goal.into());
        let goal = run_file.goal(Some(dir.path())).map_err(|error| error.to_string());
        let text = goal.unwrap_or_else(Some).unwrap_or_default();
        assert_eq!(text.replace(&dir.path().display().to_string(), "DIR"), expect);
    };
    check("plain", "plain");
    check("@@plain", "@plain");
    check("@~/src/goal.md", "Do it");
    check("@../src/goal.md", "Do it");
    check("@gone.md", "cannot read DIR/src/gone.md: No such file or directory (os error 2)");
    run_file.config.goal = None;
    assert_eq!(run_file.goal(None).unwrap(), None);
}

#[test]
fn values_of_a_run_file_are_found_in_it() {
    let text = "\u{feff}_version = 1\n[run]\ngoal = \"\"\"\nFix é {{ x }}\n\"\"\"\n[run.model]\nscript = 'm.json'\nname = \"a\\tb\"\n";
    let dir = tree(&[("r.toml", text)]);
    let run_file = load(&dir.path().join("r.toml")).unwrap();
    let part = |setting: &str, text: &str, word: &str| {
        let at = text.find(word).unwrap();
        let span = run_file.span_within(setting, text, Span::new(at, at + word.len()));
        run_file.warnings.text[span.start..span.end].to_owned()
    };
    let whole = |setting: &str| {
        let span = run_file.span_of(setting);
        run_file.warnings.text[span.start..span.end].to_owned()
    };
    assert_eq!(whole("run.model.script"), "'m.json'");
    assert_eq!(whole("run.model.provider"), "");
    assert_eq!(whole("run.goal.more"), "");
    let goal = run_file.goal(None).unwrap().unwrap();
    assert_eq!(part("run.goal", &goal, "{{ x }}"), "{{ x }}");
    // Escapes are not followed.
    assert_eq!(part("run.model.name", "a\tb", "b"), "\"a\\tb\"");
}

#[test]
fn paths_of_a_run_file_are_relative_to_it() {
    let dir = tree(&[("r.toml", "_version = 1\n[run.model]\nscript = 'm.json'\n")]);
    let mut run_file = load(&dir.path().join("r.toml")).unwrap();
    assert_eq!(run_file.model_script(None), Some(dir.path().join("m.json")));
    run_file.config.model.script = Some("~/m.json".into());
    assert_eq!(
        run_file.model_script(Some(Path::new("/home/ann"))),
        Some("/home/ann/m.json".into())
    );
    run_file.config.graph = Some("/abs/w.dot".into());
    assert_eq!(run_file.workflow_file(None), Path::new("/abs/w.dot"));
}

#[test]
fn unreadable_files_are_refused() {
    let dir = tree(&[("big.toml", &"#".repeat((1 << 20) + 1))]);
    fs::write(dir.path().join("binary.toml"), [0xff, 0xfe, 0]).unwrap();
    assert_snapshot!(check(&dir, "", "big.toml"), @"DIR/big.toml is larger than 1048576 bytes: shorten it");
    assert_snapshot!(check(&dir, "", "binary.toml"), @"cannot read DIR/binary.toml: stream did not contain valid UTF-8");
    #[cfg(target_os = "linux")]
    assert!(matches!(read_text(Path::new("/dev/zero")), Err(ConfigError::NotAFile(..))));
}

#[test]
fn files_above_the_project_and_of_other_users_are_not_read() {
    let dir = tree(&[
        (".fabro/workflows/above.fabro", ""),
        (".fabro/config.toml", "_version = 1\n[run]\nprepare = 3\n"),
        ("fabro.toml", "_version = 1\n"),
        ("project/.git/HEAD", ""),
        ("project/fabro.toml", "_version = 1\n[run.model]\nname = 'own'\n"),
        ("project/sub/x", ""),
        ("project/workflows/own.fabro", ""),
    ]);
    let sub = dir.path().join("project/sub");
    assert!(check(&dir, "project/sub", "above").starts_with("there is no workflow `above`"));
    assert_eq!(check(&dir, "project/sub", "own"), "DIR/project/./workflows/own.fabro");
    let own = |name: &str| {
        crate::settings(&sub, None, None).map(|it| it.0.model.name == Some(name.into()))
    };
    assert!(own("own").unwrap());
    // Files that others can write are refused, not skipped.
    for name in ["fabro.toml", "workflows/own.fabro"] {
        let path = dir.path().join("project").join(name);
        let mode = std::os::unix::fs::PermissionsExt::from_mode;
        fs::set_permissions(&path, mode(0o666)).unwrap();
        let error = match name {
            "fabro.toml" => crate::settings(&sub, None, None).unwrap_err(),
            _ => locate("own", &sub, None).unwrap_err(),
        };
        assert!(matches!(error, ConfigError::Writable(found) if found.ends_with(name)), "{name}");
        fs::set_permissions(&path, mode(0o644)).unwrap();
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can make files of other users");
        return;
    }
    let give =
        |name: &str| std::os::unix::fs::chown(dir.path().join(name), Some(12345), None).unwrap();
    give("project/fabro.toml");
    assert!(matches!(crate::settings(&sub, None, None), Err(ConfigError::Owner { .. })));
    // Anyone can put a `.git` or a `.fabro` into `/tmp`.
    give("project/.git");
    give(".fabro");
    assert_eq!(crate::project_dir(&sub), None);
    assert!(own("own").is_ok_and(|is_own| !is_own));
}
