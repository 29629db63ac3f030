use proptest::prelude::*;

use super::*;

#[test]
fn messages_are_written_down() {
    let turns = [
        system(format!("{SUMMARY_TAG}\n## Goal\nShip it\n\n## File Operations\nRead:\n- a.rs")),
        user("Go on"),
        assistant("Tests first.").call("1", "shell", json!({"command": "cargo test"})).call(
            "2",
            "read_file",
            json!({"path": "a.rs"}),
        ),
        failure("1", "exit code 101"),
        result("2", "fn a() {}"),
        result("3", "of nothing"),
        message(Role::Tool, "plain"),
    ];
    insta::assert_snapshot!(render_old(&turns, usize::MAX), @r#"
    [summary of what came before]
    ## Goal
    Ship it

    [user]
    Go on

    [assistant]
    Tests first.
    -> shell {"command":"cargo test"}
    -> read_file {"path":"a.rs"}

    [tool]
    <- shell failed: exit code 101

    [tool]
    <- read_file: fn a() {}

    [tool]
    <- a tool: of nothing

    [tool]
    plain
    "#);
}

#[test]
fn arguments_and_results_are_cut_at_500_characters() {
    for (length, more) in
        [(500, ""), (501, "… (1 more characters)"), (999, "… (499 more characters)")]
    {
        let text: String = "ä€😀".chars().cycle().take(length).collect();
        let shown: String = text.chars().take(500).collect();
        let result = render_old(&[result("1", &text)], usize::MAX);
        assert_eq!(result, format!("[tool]\n<- a tool: {shown}{more}"));
        let call = Msg { calls: vec![("1".into(), "say".into(), json!(text))], ..assistant("") };
        let quoted: String = json!(text).to_string().chars().take(500).collect();
        let result = render_old(&[call], usize::MAX);
        assert!(result.starts_with(&format!("[assistant]\n-> say {quoted}… (")), "{result}");
        let plain = render_old(&[message(Role::Tool, &text)], usize::MAX);
        assert_eq!(plain, format!("[tool]\n{shown}{more}"));
        // What people and models say is not cut.
        let said = render_old(&[user(&text)], usize::MAX);
        assert_eq!(said, format!("[user]\n{text}"));
    }
}

#[test]
fn the_longest_texts_are_cut_first() {
    let turns = [user("short"), assistant(&"long ".repeat(1_000)), user("also short")];
    insta::assert_snapshot!(render_old(&turns, 300), @r"
    [user]
    short

    [assistant]
    long long long long long long long long long long long long long long long long long long long long long long long long long long long long long
    … (4784 characters omitted) …
    g long long long long long long long long long long long long long long 

    [user]
    also short
    ");
}

#[test]
fn messages_are_left_out_in_the_middle() {
    let turns: Vec<_> = (0..100).map(|number| user(&format!("number {number}"))).collect();
    insta::assert_snapshot!(render_old(&turns, 200), @r"
    [user]
    number 0

    [user]
    number 1

    (93 messages omitted)

    [user]
    number 95

    [user]
    number 96

    [user]
    number 97

    [user]
    number 98

    [user]
    number 99
    ");
}

proptest! {
    #[test]
    fn the_limit_holds(
        texts in proptest::collection::vec(("[ustaS]", "(?s).{0,300}"), 0..12),
        max_chars in 0_usize..1_500,
    ) {
        let turns: Vec<_> = texts
            .iter()
            .map(|(kind, text)| Msg { text: text.clone(), ..short_message(kind) })
            .collect();
        prop_assert!(chars(&render_old(&turns, max_chars)) <= max_chars);
    }
}
