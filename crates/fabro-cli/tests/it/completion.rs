//! What the shell offers while a line is typed.

use crate::project::Project;

/// The values that are offered for the last word, without options.
fn offered(project: &Project, words: &[&str]) -> Vec<String> {
    let mut command = project.command(&[&["--", "fabro"], words].concat());
    command.env("FABRO_COMPLETE", "fish").env("_CLAP_COMPLETE_INDEX", words.len().to_string());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{words:?}");
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let values = text.lines().map(|line| line.split('\t').next().unwrap().to_owned());
    values.filter(|value| !value.starts_with('-')).collect()
}

#[test]
fn runs_stages_workflows_and_models_are_offered() {
    let project = Project::hello();
    let id = project.json(&["ps", "--json"])[0]["id"].as_str().unwrap().to_owned();
    let check = |words: &[&str], expect: &[&str]| {
        assert_eq!(offered(&project, words), expect, "{words:?}");
    };
    check(&["inspect", ""], &["latest", &id]);
    check(&["inspect", "la"], &["latest"]);
    check(&["events", "-f", &id[..4]], &[&id]);
    check(&["rm", &id, "la"], &["latest"]);
    check(&["show", "latest", "w"], &["write", "write@1", "write@2"]);
    check(&["explain", &id, "ch"], &["check", "check@1", "check@2"]);
    check(&["context", "latest", "--at", "e"], &["exit"]);
    check(&["steer", "latest", "x", "--node", "wr"], &["write"]);
    check(&["run", "he"], &["hello"]);
    check(&["insp"], &["inspect"]);
    check(&["inspect", "latest", "--store", "none", ""], &[]);
    check(&["inspect", "--store", "none", ""], &[]);
    assert!(offered(&project, &["run", "hello", "--model", "claude-"]).len() > 1);
    let empty = Project::with(&[("flow.fabro", "digraph { start -> exit }"), ("notes.txt", "")]);
    assert_eq!(offered(&empty, &["inspect", ""]), Vec::<String>::new());
    assert_eq!(offered(&empty, &["run", "fl"]), ["flow.fabro"]);
    assert!(!empty.path().join(".fabro").exists());
}

#[test]
fn the_choices_of_gates_are_offered() {
    let project = Project::with(&[(
        "gate.fabro",
        r#"digraph { start -> ship; ship [shape=hexagon]; ship -> exit [label="[Y] Yes"]; ship -> ship [label="[N] No"] }"#,
    )]);
    assert_eq!(project.exit(&["run", "gate.fabro"]), 3);
    assert_eq!(offered(&project, &["answer", "latest", ""]), ["Y", "N"]);
    assert_eq!(project.exit(&["answer", "latest", "Y"]), 0);
}

#[test]
fn bash_gets_what_the_program_offers() {
    let project = Project::hello();
    let script = format!(
        "source <({} completion bash)
         COMP_WORDS=(fabro inspect latest wri); COMP_CWORD=3
         $(complete -p fabro | sed 's/.*-F \\([^ ]*\\).*/\\1/') fabro wri latest
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        env!("CARGO_BIN_EXE_fabro")
    );
    let bash = std::process::Command::new("bash")
        .args(["-c", &script])
        .current_dir(project.path())
        .output()
        .unwrap();
    let offered = String::from_utf8(bash.stdout).unwrap();
    let words: Vec<&str> = offered.split_whitespace().collect();
    assert_eq!(words, ["write", "write@1", "write@2"], "{}", String::from_utf8_lossy(&bash.stderr));
}

#[test]
fn every_shell_has_a_script() {
    let project = Project::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = project.output(&["completion", shell]);
        assert!(script.status.success(), "{shell}");
        assert!(String::from_utf8_lossy(&script.stdout).contains("FABRO_COMPLETE"), "{shell}");
    }
    assert!(project.run(&["completion", "--help"]).contains("source <(fabro completion bash)"));
}
