use super::*;

/// Runs one command for real and returns what it printed, or why it failed.
#[track_caller]
fn printed_by(attrs: &str, inputs: Value) -> String {
    let source = format!("digraph {{ start -> c -> exit; c [shape=parallelogram, {attrs}] }}");
    let scene = Scene::new(&source).inputs(inputs).local();
    scene.drive().unwrap();
    let state = scene.state();
    let outcome = &state.main().unwrap().history[0].end.outcome;
    match &outcome.failure {
        Some(failure) => format!("failed: {}", failure.message),
        None => scene.value("command.output").as_str().unwrap().to_owned(),
    }
}

#[test]
fn variables_carry_any_value() {
    let hostile = "$(touch x) `touch x` 'a' \"b\" \\ a[$(touch x)] -n * ~ ! é\nlast";
    let inputs = || json!({"v": hostile, "n": 3, "list": [1, "a"]});
    let script = r#"script="printf '%s|' \"$V\" \"$N\" \"$LIST\" \"$FIXED\"""#;
    let env = r#"env.V="{{ inputs.v }}", env.N="{{ inputs.n + 1 }}", env.LIST="{{ inputs.list }}", env.FIXED=8080"#;
    assert_eq!(
        printed_by(&format!("{script}, {env}"), inputs()),
        format!("{hostile}|4|[1,\"a\"]|8080|")
    );
    let python = r#"language=python, script="import os; print(os.environ['V'], end='')", env.V="{{ inputs.v }}""#;
    assert_eq!(printed_by(python, inputs()), hostile);
    // The file system has its own say only when the script asks for it.
    assert_eq!(
        printed_by(
            r#"script="echo ${PATH%:*}", env.PATH="{{ inputs.p }}:x""#,
            json!({"p": "/a b"})
        ),
        "/a b"
    );
}

#[test]
fn variables_that_cannot_be_passed_fail_the_stage() {
    let fails =
        |value: String| printed_by(r#"script="true", env.V="{{ inputs.v }}""#, json!({"v": value}));
    insta::assert_snapshot!(fails("a\0b".to_owned()), @"failed: env.V holds a NUL character, which no variable can; read the value from a file");
    insta::assert_snapshot!(fails("x".repeat((128 << 10) - 2)), @"failed: env.V has 131073 bytes, and a variable at most 131072; write large values to a file and pass its path");
    assert_eq!(fails("x".repeat((128 << 10) - 3)), "");
    insta::assert_snapshot!(fails("x".repeat(1 << 20)), @"failed: env.V: `inputs.v` has 1048576 bytes, and a script takes at most 131072 of one value");
    let many: Vec<_> = (0..9).map(|at| format!("env.V{at}=\"{{{{ inputs.v }}}}\"")).collect();
    let attrs = format!("script=true, {}", many.join(", "));
    insta::assert_snapshot!(printed_by(&attrs, json!({"v": "x".repeat(120_000)})), @"failed: the variables of the node have more than 1048576 bytes together; write large values to a file and pass its path");
    insta::assert_snapshot!(printed_by(r#"script=true, env.V="{{ context.gone }}""#, json!({})), @r#"failed: env.V: the context has no key `gone`; write it in an earlier stage, or give a default: `{{ context.gone | default("") }}`"#);
}

#[test]
fn variables_are_recorded_where_templates_changed_them() {
    let source = r#"digraph {
        start -> c -> exit
        c [shape=parallelogram, script="run", env.GOAL="{{ goal }}", env.FIXED="x"]
    }"#;
    let scene = Scene::new(source).prints(&[("run", "")]);
    scene.drive().unwrap();
    let state = scene.state();
    let ended = &state.main().unwrap().history[0].end;
    assert_eq!(ended.script, None);
    assert_eq!(ended.env, [("GOAL".to_owned(), "Ship it".to_owned())].into());
}
