use fabro_events::QuestionType;
use fabro_gate::options;
use insta::assert_snapshot;

use super::frame::{answered, frame};
use super::keys::Key;
use super::*;

fn question(labels: &[&str]) -> Question {
    Question {
        text: "Ship it?".to_owned(),
        options: options(labels.iter().map(|&label| (label, "target"))),
        ..Question::default()
    }
}

fn typed(prompt: &mut Prompt, text: &str) -> Step {
    let mut keys = Keys::default();
    keys.push(text.as_bytes());
    let mut step = Step::Unfinished;
    while let Some(key) = keys.next(true) {
        step = prompt.key(key);
    }
    step
}

/// What is seen; `▏` stands before the character the cursor is on.
fn seen(prompt: &Prompt, columns: usize, rows: usize) -> String {
    let frame = frame(prompt, columns, rows);
    let mut lines: Vec<String> = frame.lines.iter().map(|line| line.text.clone()).collect();
    for line in &lines {
        assert!(frame::columns(line) < columns.max(3), "{line:?} is too wide");
    }
    assert!(lines.len() <= rows.max(5), "too many lines: {lines:?}");
    if let Some((row, column)) = frame.cursor {
        let mut left = column;
        let line = &mut lines[row];
        let at = line.char_indices().find(|(_, c)| {
            let is_here = left == 0;
            left = left.saturating_sub(frame::columns(&c.to_string()));
            is_here
        });
        let at = at.map_or(line.len(), |(at, _)| at);
        line.insert(at, '▏');
    }
    lines.join("\n")
}

#[track_caller]
fn check(question: Question, keys: &str, expected: &str) {
    let mut prompt = Prompt::new(question);
    let told = match typed(&mut prompt, keys) {
        Step::Answered(text) => format!("answer {text:?}"),
        Step::Unfinished => prompt.note.clone().unwrap_or_else(|| "open".to_owned()),
        step => format!("{step:?}"),
    };
    assert_eq!(told, expected, "{keys:?}");
}

#[test]
fn keys_choose_an_option() {
    let check = |keys, expected| check(question(&["Approve", "[N] No", "Revise"]), keys, expected);
    check("\r", r#"answer "A""#);
    check("\x1b[B\r", r#"answer "N""#);
    check("\x1b[A\r", r#"answer "R""#);
    check("\x1b[B\x1b[B\x1b[B\r", r#"answer "A""#);
    check("\x1b[F\r", r#"answer "R""#);
    check("n\r", r#"answer "N""#);
    check("3\r", r#"answer "R""#);
    check("revi\r", r#"answer "R""#);
    check("rn\r", r#"answer "N""#);
    check("n\x7f\x7f\r", r#"answer "N""#);
    check("approve\r", r#"answer "A""#);
    check("2", "open");
    check("\x1b[200~revise\n\x1b[201~", "open");
    check("\x1b[200~revise\n\x1b[201~\r", r#"answer "R""#);
    check(" \r", r#"answer "A""#);
    check("\x1b[D\x1b[C\r", r#"answer "A""#);
    check("\x1b", "Postponed");
    check("\x03", "Interrupted");
}

#[test]
fn enter_is_refused_until_an_error_is_cleared() {
    let check = |keys: &str, expected: &str| {
        check(question(&["Yes", "[N] No", "Revise"]), keys, expected);
    };
    let error = |typed: &str| format!("no option for \"{typed}\": Backspace erases it, or use ↑↓");
    check("x", &error("x"));
    check("zzz", &error("zzz"));
    check("zzz\r\r\r", &error("zzz"));
    check("zzz\x1b[D \x1b[3~\r", &error("zzz"));
    // A word that ends with a key is not that key.
    check("crazy\r", &error("crazy"));
    check("nx\r", &error("nx"));
    check("\x1b[200~\x1b[31m\x1b[201~\r", &error("[31m"));
    // Cleared by another word after Enter, by erasing, or by moving.
    check("zzz\rn\r", r#"answer "N""#);
    check("zzz\rno\r", r#"answer "N""#);
    check("zz\x7f\r", &error("z"));
    check("zz\x7f\x7fn\r", r#"answer "N""#);
    check("nx\x7f\r", r#"answer "N""#);
    check("zzz\x15r\r", r#"answer "R""#);
    check("zzz\x1b[B\r", r#"answer "N""#);
}

#[test]
fn an_option_that_cannot_be_chosen_is_refused() {
    let ask = |question_type| {
        let mut ask = Question { question_type, ..question(&["Ship", "Hold", "Revise"]) };
        ask.options[0].unavailable = Some("tests is \"failed\"".to_owned());
        ask
    };
    let refused = "[S] Ship cannot be chosen: tests is \"failed\"";
    let one = || ask(QuestionType::MultipleChoice);
    check(one(), "\r", r#"answer "H""#);
    check(one(), "s\r\r", refused);
    check(one(), "\x1b[A\r", refused);
    check(one(), "s\rh\r", r#"answer "H""#);
    check(ask(QuestionType::YesNo), "ship\r", refused);
    check(ask(QuestionType::MultiSelect), "s ", refused);
    check(ask(QuestionType::MultiSelect), "s h \r", r#"answer "H""#);
    check(
        Question { freeform: true, ..one() },
        "s\r",
        "\"s\" cannot be chosen, because tests is \"failed\": choose [H] Hold, [R] Revise or write some text",
    );
    assert_snapshot!(seen(&Prompt::new(one()), 80, 24), @r#"
    ? Ship it?
      [S] Ship (not now: tests is "failed")
    > [H] Hold
      [R] Revise
      ↑↓ or a key, Enter answers, Esc leaves it for later
    "#);
}

#[test]
fn the_key_of_the_free_text_edge_asks_for_its_text() {
    let ask = || Question {
        freeform: true,
        text_option: options([("[R] Revise", "plan")]).pop(),
        ..question(&["[A] Approve"])
    };
    check(ask(), "r", "open");
    check(ask(), "r\r", "open");
    check(ask(), "r\rshorter\r", r#"answer "[R] shorter""#);
    check(ask(), "revise\ra\r", r#"answer "[R] a""#);
    check(ask(), "[R]\r\r", "write the text for [R] Revise, or press Esc to choose again");
    check(ask(), "r\r\x1b", "open");
    check(ask(), "rather not\r", r#"answer "rather not""#);
    check(ask(), "r\r\x1b\x1b", "Postponed");
    let mut prompt = Prompt::new(ask());
    assert_snapshot!(seen(&prompt, 80, 24), @r"
    ? Ship it?
      [A] Approve  [R] Revise (your own words); a paste keeps its lines
    > ▏
      Enter needs a key or text, Esc leaves it for later
    ");
    let mut hint = |text: &str| {
        assert_eq!(typed(&mut prompt, &format!("\x15{text}")), Step::Unfinished);
        seen(&prompt, 80, 24).lines().last().unwrap_or_default().trim().to_owned()
    };
    assert_snapshot!(hint("approve"), @"Enter chooses [A] Approve, Esc leaves it for later");
    assert_snapshot!(hint("rather not"), @"Enter sends this text to [R] Revise, Esc leaves it for later");
    assert_snapshot!(hint("\x1b[200~one\ntwo\x1b[201~"), @"Enter sends these 2 lines to [R] Revise, Esc leaves it for later");
    assert_snapshot!(hint("r"), @"Enter asks for the text of [R] Revise, Esc leaves it for later");
    assert_eq!(typed(&mut prompt, "\r中 x"), Step::Unfinished);
    assert_snapshot!(seen(&prompt, 80, 24), @r"
    ? Ship it?
    [R] Revise > 中 x▏
      Enter sends this text, Esc goes back to the options
    ");
}

#[test]
fn the_limit_and_the_default_are_counted_down() {
    let limit = |default: Option<&str>, left: u64| {
        let mut ask = question(&["Ship", "Hold"]);
        ask.options[0].to = "ship".into();
        ask.options[0].unavailable = (left == 1).then(|| "no".to_owned());
        ask.default_choice = default.map(Into::into);
        let mut prompt = Prompt::new(ask);
        prompt.time_left = Some(std::time::Duration::from_millis(left));
        seen(&prompt, 60, 24).lines().nth(3).unwrap().trim().to_owned()
    };
    assert_eq!(limit(Some("ship"), 26_001), "answers [S] Ship in 0:27");
    assert_eq!(limit(Some("ship"), 0), "answers [S] Ship in 0:00");
    assert_eq!(limit(Some("ship"), 1), "fails in 0:01: its default cannot be chosen");
    assert_eq!(limit(None, 3_599_000), "fails in 59:59 without an answer");
    assert_eq!(limit(None, 3_600_000), "fails in 1:00:00 without an answer");
    assert_eq!(limit(None, 7 * 86_400_000), "fails in 7 days 0 hours without an answer");
}

#[test]
fn many_options_have_their_numbers() {
    let labels: Vec<_> = (0..40).map(|_| "a").collect();
    check(question(&labels), "12\r", r#"answer "12""#);
    check(question(&labels), "99\r", r#"no option for "99": Backspace erases it, or use ↑↓"#);
}

#[test]
fn words_for_yes_and_no_are_understood_where_they_are_asked_for() {
    let ask =
        || Question { question_type: QuestionType::YesNo, ..question(&["[1] Ship", "[2] Stay"]) };
    check(ask(), "no\r", r#"answer "2""#);
    check(ask(), "y\r", r#"answer "1""#);
}

#[test]
fn several_options_are_marked() {
    let ask = || Question {
        question_type: QuestionType::MultiSelect,
        ..question(&["Approve", "No", "Revise"])
    };
    check(ask(), "\r", "choose at least one: the space bar marks it");
    check(ask(), " \x1b[B\x1b[B \r", r#"answer "A,R""#);
    check(ask(), "r a \r", r#"answer "A,R""#);
    check(ask(), "  \r", "choose at least one: the space bar marks it");
}

#[test]
fn text_is_typed_and_edited() {
    let ask = || Question { freeform: true, ..question(&["Approve", "No"]) };
    check(ask(), "shortér, please\r", r#"answer "shortér, please""#);
    check(ask(), "ab\x1b[Dx\x1b[Hy\x1b[Fz\r", r#"answer "yaxbz""#);
    check(ask(), "añ\x7fb\x1b[D\x1b[3~c\r", r#"answer "ac""#);
    check(ask(), "one two  \x17three\r", r#"answer "one three""#);
    check(ask(), "gone\x15kept\r", r#"answer "kept""#);
    check(ask(), "\x7f\x17\x15\x1b[3~\x1b[Dq\r", r#"answer "q""#);
    check(ask(), "\x1b[200~a\r\n\tb\x07\x1b[201~\r", r#"answer "a\n\tb""#);
    check(ask(), " \r", r#""" is not an answer: choose [A] Approve, [N] No or write some text"#);
    let many = "x".repeat(99_999);
    check(ask(), &format!("{many}yz"), "an answer has at most 100000 characters");
}

#[test]
fn a_list_is_drawn() {
    let mut prompt =
        Prompt::new(question(&["Approve", "[N] No", "中文, which is a rather long one"]));
    assert_eq!(typed(&mut prompt, "n"), Step::Unfinished);
    assert_snapshot!(seen(&prompt, 80, 24), @r"
    ? Ship it?
      [A] Approve
    > [N] No
      [中] 中文, which is a rather long one
      ↑↓ or a key, Enter answers, Esc leaves it for later
    ");
    assert_snapshot!(seen(&prompt, 20, 24), @r"
    ? Ship it?
      [A] Approve
    > [N] No
      [中] 中文, which
      is a rather long
      one
      ↑↓ or a key,
      Enter answers,
      Esc leaves it for
      later
    ");
    assert_eq!(typed(&mut prompt, "?"), Step::Unfinished);
    assert_snapshot!(seen(&prompt, 80, 24), @r#"
    ? Ship it?
      [A] Approve
      [N] No
      [中] 中文, which is a rather long one
      ! no option for "n?": Backspace erases it, or use ↑↓
    "#);
}

#[test]
fn where_options_do_not_fit_the_highlighted_one_is_shown_whole() {
    let long = |key: &str| format!("[{key}] an option with a label of more than one line");
    let labels: Vec<_> = ["1", "2", "3", "4"].map(long).into();
    let labels: Vec<_> = labels.iter().map(String::as_str).collect();
    let mut ask = question(&labels);
    ask.options[1].unavailable = Some("context.tests is \"failed\"".to_owned());
    let mut prompt = Prompt::new(ask);
    prompt.queued = 2;
    assert_snapshot!(seen(&prompt, 40, 12), @r"
    ? Ship it?
    > [1] an option with a label of more
      than one line
      [2] an option with a label of more…
      [3] an option with a label of more…
      [4] an option with a label of more…
      ↑↓ or a key, Enter answers, Esc
      leaves it for later · 2 more
      questions wait
    ");
    assert_snapshot!(seen(&prompt, 40, 20), @r#"
    ? Ship it?
    > [1] an option with a label of more
      than one line
      [2] an option with a label of more
      than one line (not now: context.tests
      is "failed")
      [3] an option with a label of more
      than one line
      [4] an option with a label of more
      than one line
      ↑↓ or a key, Enter answers, Esc
      leaves it for later · 2 more
      questions wait
    "#);
    typed(&mut prompt, "2");
    assert_snapshot!(seen(&prompt, 40, 8), @r"
    ? Ship it?
      [1] an option with a label of more…
    > [2] an option with a label of more
      than one line (not now: context.test…
      [3] an option with a label of more…
      [4] an option with a label of more…
      ↑↓ or a key, Enter answers, Esc
      leaves it for later · 2 more
    ");
}

#[test]
fn marks_and_a_window_of_many_are_drawn() {
    let labels: Vec<_> = (1..=40).map(|number| format!("[{number}] Option")).collect();
    let labels: Vec<_> = labels.iter().map(String::as_str).collect();
    let ask = Question { question_type: QuestionType::MultiSelect, ..question(&labels) };
    let mut prompt = Prompt::new(ask);
    assert_eq!(typed(&mut prompt, "7 8"), Step::Unfinished);
    assert_snapshot!(seen(&prompt, 80, 8), @r"
    ? Ship it?
      ○ [5] Option
      ○ [6] Option
      ● [7] Option
    > ○ [8] Option
      ○ [9] Option
      ○ [10] Option
      8 of 40 · ↑↓ or a key, space marks, Enter answers, Esc leaves it for later
    ");
    for (columns, rows) in [(1, 1), (2, 2), (3, 5), (10, 3)] {
        seen(&prompt, columns, rows);
    }
}

#[test]
fn text_is_drawn_with_its_cursor() {
    let ask = Question { freeform: true, ..question(&["Approve", "No"]) };
    let mut prompt = Prompt::new(ask);
    assert_snapshot!(seen(&prompt, 80, 24), @r"
    ? Ship it?
      [A] Approve  [N] No  or your own words; a paste keeps its lines
    > ▏
      Enter needs a key or text, Esc leaves it for later
    ");
    let text = "\x1b[200~line\nand 中文 and so on\x1b[201~\x1b[D\x1b[D\x1b[D";
    assert_eq!(typed(&mut prompt, text), Step::Unfinished);
    assert_snapshot!(seen(&prompt, 20, 24), @r"
    ? Ship it?
      [A] Approve  [N]
    No  or your own
    words; a paste
    keeps its lines
    > line⏎and 中文 and
     so▏ on
      Enter sends these
      2 lines, Esc
      leaves it for
      later
    ");
    assert_eq!(typed(&mut prompt, "\x1b[F\x15123456789 123456"), Step::Unfinished);
    assert_snapshot!(seen(&prompt, 20, 24), @r"
    ? Ship it?
      [A] Approve  [N]
    No  or your own
    words; a paste
    keeps its lines
    > 123456789 123456▏
      Enter sends this
      text, Esc leaves
      it for later
    ");
    for (columns, rows) in [(1, 1), (2, 2), (3, 5), (10, 3)] {
        seen(&prompt, columns, rows);
    }
}

#[test]
fn a_long_question_is_broken_between_words() {
    let text = "First, which is rather long:\nshall it all be deployed to production-cluster?";
    let ask = Question { text: text.to_owned(), ..question(&["Yes"]) };
    let prompt = Prompt::new(ask.clone());
    assert_snapshot!(seen(&prompt, 18, 24), @r"
    ? First, which is
    rather long:
    shall it all be
    deployed to
    production-cluste
    r?
    > [Y] Yes
      ↑↓ or a key,
      Enter answers,
      Esc leaves it
      for later
    ");
    assert_snapshot!(seen(&prompt, 18, 6), @r"
    ? First, which is
    rather long:
    …
    > [Y] Yes
      ↑↓ or a key,
    ");
    assert_snapshot!(answered(&ask, "Yes", 40).join("\n"), @r"
    ? First, which is rather long:
    shall it all be deployed to
    production-cluster?  Yes
    ");
}

#[test]
fn escape_sequences_do_not_reach_the_terminal() {
    assert_eq!(without_controls("a\u{1b}[2Jb\r\n\tc\u{9b}d\u{7}"), "a[2Jb\n\tcd");
    let question = Question {
        text: "\u{1b}x".to_owned(),
        item: Some("\u{7}y".to_owned()),
        options: options([("z\u{1b}", "z")]),
        ..Question::default()
    };
    let shown = printable(&question);
    assert_eq!((shown.text.as_str(), shown.item.as_deref()), ("x", Some("y")));
    assert_eq!(shown.options[0].label, "z");
    let key = Key::Paste("a\u{9b}2J\u{1b}b".to_owned());
    let mut prompt = Prompt::new(Question { freeform: true, ..Question::default() });
    assert_eq!(prompt.key(key), Step::Unfinished);
    assert_eq!(prompt.key(Key::Enter), Step::Answered("a2Jb".to_owned()));
}

/// A terminal of its own: the side of the keyboard, and that of the program.
mod pair {
    use std::os::fd::OwnedFd;
    use std::time::Duration;

    use rustix::fs::{Mode, OFlags, open};
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use rustix::termios::{LocalModes, tcgetattr};

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&keyboard).unwrap();
        unlockpt(&keyboard).unwrap();
        let name = ptsname(&keyboard, Vec::new()).unwrap();
        let program = open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        (keyboard, program)
    }

    fn press(keyboard: &OwnedFd, keys: &str) {
        assert_eq!(rustix::io::write(keyboard, keys.as_bytes()).unwrap(), keys.len());
    }

    /// What has come on the screen, up to where so many questions were over.
    fn shown(keyboard: &OwnedFd, questions: usize) -> String {
        let mut all = Vec::new();
        let end = "\x1b[?25h";
        while String::from_utf8_lossy(&all).matches(end).count() < questions {
            let mut bytes = [0; 4096];
            let count = rustix::io::read(keyboard, &mut bytes).unwrap();
            all.extend_from_slice(&bytes[..count]);
        }
        String::from_utf8_lossy(&all).replace('\x1b', "^").replace("\r\n", "\n").replace('\r', "<")
    }

    fn is_as_before(program: &OwnedFd) -> bool {
        let wanted = LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
        tcgetattr(program).unwrap().local_modes.contains(wanted)
    }

    /// Asks while these keys are pressed, each after so many milliseconds.
    async fn ask_while(
        (keyboard, program): (&OwnedFd, &OwnedFd),
        answered: &mut Option<Instant>,
        question: Question,
        presses: &[(u64, &str)],
    ) -> Step {
        let screen = Screen::new(program, program).unwrap();
        let type_keys = async {
            for (after, keys) in presses {
                tokio::time::sleep(Duration::from_millis(*after)).await;
                press(keyboard, keys);
            }
        };
        let asking = prompt_until_answered(screen, answered, question);
        tokio::join!(asking, type_keys).0.unwrap()
    }

    // In real time: a terminal passes keys on when it likes, and a paused clock does not wait for it.
    #[tokio::test]
    async fn only_keys_typed_at_a_question_answer_it() {
        let (keyboard, program) = pair();
        let ends = (&keyboard, &program);
        let mut answered = None;
        // Before it is shown, as whole lines and as a started one.
        press(&keyboard, "\r\rn\r\x1b[B");
        // The kernel passes keys on a moment later.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let first = question(&["Approve", "No"]);
        // What comes behind the answer is dropped with it.
        let step = ask_while(ends, &mut answered, first, &[(50, "n\r\x1b[B\r")]).await;
        assert_eq!(step, Step::Answered("N".to_owned()));
        assert!(is_as_before(&program));
        // The second press of a double Enter, and a held key.
        let begin = Instant::now();
        let presses = [(20, "\r"), (20, "\r\r"), (20, "\r"), (1_000, "\r")];
        let step = ask_while(ends, &mut answered, question(&["Approve", "Revise"]), &presses).await;
        assert_eq!(step, Step::Answered("A".to_owned()));
        assert!(answered.unwrap() - begin >= Duration::from_millis(1_060));
        // A key that chooses is never too early.
        let step = ask_while(ends, &mut answered, question(&["See", "End"]), &[(1, "e\r")]).await;
        assert_eq!(step, Step::Answered("E".to_owned()));
        assert_snapshot!(shown(&keyboard, 3), @r"
        n
        ^[[B^[?2004h<^[K^[1m? Ship it?^[0m<
        ^[K^[1m> [A] Approve^[0m<
        ^[K  [N] No<
        ^[K^[2m  ↑↓ or a key, Enter answers, Esc leaves it for later^[0m^[J^[3A<^[?25l<^[K? Ship it?  No<
        ^[J^[?2004l^[?25h^[?2004h<^[K^[1m? Ship it?^[0m<
        ^[K^[1m> [A] Approve^[0m<
        ^[K  [R] Revise<
        ^[K^[2m  ↑↓ or a key, Enter answers, Esc leaves it for later^[0m^[J^[3A<^[?25l<^[K? Ship it?  Approve<
        ^[J^[?2004l^[?25h^[?2004h<^[K^[1m? Ship it?^[0m<
        ^[K^[1m> [S] See^[0m<
        ^[K  [E] End<
        ^[K^[2m  ↑↓ or a key, Enter answers, Esc leaves it for later^[0m^[J^[3A<^[?25l<^[K? Ship it?  End<
        ^[J^[?2004l^[?25h
        ");
    }

    #[tokio::test(start_paused = true)]
    async fn a_withdrawn_question_takes_no_key_and_is_erased() {
        let (keyboard, program) = pair();
        let mut answered = None;
        let screen = Screen::new(&program, &program).unwrap();
        assert!(!is_as_before(&program));
        let ask = Question {
            failures: vec!["a".to_owned(), "b".to_owned()],
            ..question(&["Approve", "No"])
        };
        let asking = prompt_until_answered(screen, &mut answered, ask);
        assert!(tokio::time::timeout(Duration::from_millis(90), asking).await.is_err());
        assert!(is_as_before(&program));
        assert_snapshot!(shown(&keyboard, 1), @r"
        ^[?2004h✗ a<
        ✗ b<
        <^[K^[1m? Ship it?^[0m<
        ^[K^[1m> [A] Approve^[0m<
        ^[K  [N] No<
        ^[K^[2m  ↑↓ or a key, Enter answers, Esc leaves it for later^[0m^[J^[3A<^[?25l<^[2A^[K^[B^[J^[A^[?2004l^[?25h
        ");

        let presses = [(30, "\x1b[B\r")];
        let step =
            ask_while((&keyboard, &program), &mut answered, question(&["See", "End"]), &presses)
                .await;
        assert_eq!(step, Step::Answered("E".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn escape_and_a_closed_terminal_end_a_question() {
        let (keyboard, program) = pair();
        let mut answered = None;
        let step = ask_while(
            (&keyboard, &program),
            &mut answered,
            question(&["Approve"]),
            &[(30, "\x1b")],
        )
        .await;
        assert_eq!(step, Step::Postponed);
        let screen = Screen::new(&program, &program).unwrap();
        drop(keyboard);
        assert!(
            prompt_until_answered(screen, &mut answered, question(&["Approve"])).await.is_err()
        );
    }
}
