use fabro_sandbox::{CAPTURE_LIMIT, Captured, Exec, ExecError, Exit, LocalExec};

use crate::setup::{Place, text};

#[track_caller]
fn check_text(captured: &Captured, expected: &str) {
    assert_eq!(*captured, text(expected));
}

#[tokio::test]
async fn code_output_directory_and_environment() {
    let mut place = Place::new();
    place.env = vec![("GREETING".to_owned(), "a 'b' $c".to_owned())];
    let finished =
        place.run("echo \"$GREETING\"; pwd -P; cat; echo oops >&2; exit 42").await.unwrap();
    assert_eq!(finished.exit, Exit::Code(42));
    let cwd = place.directory.path().canonicalize().unwrap();
    check_text(&finished.stdout, &format!("a 'b' $c\n{}", cwd.display()));
    check_text(&finished.stderr, "oops");
}

#[tokio::test]
async fn the_log_keeps_what_the_text_trims() {
    let place = Place::new();
    let finished = place.run(r"printf '\n a\xff\r\n\n\n'").await.unwrap();
    check_text(&finished.stdout, "\n a\u{fffd}");
    assert_eq!(place.log("stdout.log"), b"\n a\xff\r\n\n\n");
    assert_eq!(place.log("stderr.log"), b"");
}

#[tokio::test]
async fn text_ends_at_the_limit() {
    let place = Place::new();
    for (bytes, large) in [(CAPTURE_LIMIT, false), (CAPTURE_LIMIT + 1, true), (64 << 20, true)] {
        let finished = place.run(&format!("head -c {bytes} /dev/zero | tr '\\0' x")).await.unwrap();
        match finished.stdout {
            Captured::Text(text) => assert!(!large && text.len() == bytes, "{bytes}"),
            Captured::Large { path, bytes: counted } => {
                assert!(large, "{bytes}");
                assert_eq!(counted, bytes as u64);
                assert_eq!(std::fs::metadata(path).unwrap().len(), counted);
            }
        }
    }
}

#[tokio::test]
async fn both_streams_may_flood_at_once() {
    let script = "head -c 8000000 /dev/zero & head -c 8000000 /dev/zero >&2; wait";
    let finished = Place::new().run(script).await.unwrap();
    for captured in [finished.stdout, finished.stderr] {
        assert!(matches!(captured, Captured::Large { bytes: 8_000_000, .. }), "{captured:?}");
    }
}

#[tokio::test]
async fn standard_output_may_be_opened_again() {
    let finished = Place::new()
        .run("echo one; echo two > /dev/stdout; echo three; echo four > /dev/stderr")
        .await
        .unwrap();
    check_text(&finished.stdout, "one\ntwo\nthree");
    check_text(&finished.stderr, "four");
}

#[tokio::test]
async fn python_has_its_own_arguments_and_modules() {
    let short = "import sys; print(sys.argv, repr(sys.path[0]), __name__)".to_owned();
    let long = format!("# {}\n{short}", "é".repeat(100_000));
    let place = Place::python();
    for script in [short, long] {
        let finished = place.run(&script).await.unwrap();
        check_text(&finished.stdout, "['-c'] '' __main__");
        assert_eq!(finished.exit, Exit::Code(0));
    }
}

#[tokio::test]
async fn a_script_may_be_longer_than_an_argument() {
    let place = Place::new();
    for length in [131_000, 131_060, 131_070, 131_071, 131_072, 131_080, 1 << 20] {
        let mut script = "echo $#; : ".to_owned();
        script.extend(std::iter::repeat_n('x', length - script.len() - 9));
        script.push_str("\necho end");
        assert_eq!(script.len(), length);
        check_text(&place.run(&script).await.unwrap().stdout, "0\nend");
    }
    let names: Vec<_> = std::fs::read_dir(place.path("logs")).unwrap().collect();
    assert_eq!(names.len(), 1, "the script's file is removed: {names:?}");
}

#[tokio::test]
async fn what_cannot_start_says_what_to_do() {
    let mut place = Place::new();
    let nul = place.run("echo \0").await.unwrap_err();
    insta::assert_snapshot!(nul, @"script contains a NUL character at byte 5: remove it");

    let mut request = place.request("true");
    request.cwd = std::path::Path::new("/nowhere/at/all");
    let directory = LocalExec::new().run(request).await.unwrap_err();
    insta::assert_snapshot!(directory, @"working directory /nowhere/at/all is not a directory: create it, or choose another");

    let mut request = place.request("true");
    request.keep = place.logs("/dev/null/stdout.log", "stderr.log");
    let log = LocalExec::new().run(request).await.unwrap_err();
    insta::assert_snapshot!(log, @"write /dev/null/stdout.log: Not a directory (os error 20); free some space or choose another place");

    place.env = vec![("BIG".to_owned(), "x".repeat(200_000))];
    let environment = place.run("true").await.unwrap_err();
    insta::assert_snapshot!(environment, @"environment too large to start bash: pass large values in files");

    place.language = fabro_sandbox::Language::Python;
    place.env = vec![("PATH".to_owned(), "/nowhere".to_owned())];
    let python = place.run("pass").await.unwrap_err();
    insta::assert_snapshot!(python, @"python3 not found: install python3, or put it on the PATH");
    assert!(matches!(python, ExecError::Missing(_)));
}

#[tokio::test]
async fn one_executor_runs_many_at_once() {
    let exec = LocalExec::new();
    let places: Vec<_> = (0..20).map(|_| Place::new()).collect();
    let mut runs = tokio::task::JoinSet::new();
    let exec = std::sync::Arc::new(exec);
    for (number, place) in places.into_iter().enumerate() {
        let exec = exec.clone();
        runs.spawn(async move {
            (number, exec.run(place.request(&format!("echo {number}"))).await.unwrap())
        });
    }
    while let Some(ran) = runs.join_next().await {
        let (number, finished) = ran.unwrap();
        assert_eq!(finished.stdout, text(&number.to_string()));
    }
}
