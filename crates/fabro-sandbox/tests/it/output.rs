use fabro_redact::Redactor;
use fabro_sandbox::{Captured, Environment, Exec, Exit, Finished, Keep, LocalExec, agent_env};

use crate::setup::{Place, text};

async fn ends(place: &Place, script: &str, head: usize, tail: usize) -> Finished {
    let mut request = place.request(script);
    request.keep = Keep::Ends { head, tail };
    LocalExec::new().run(request).await.unwrap()
}

#[tokio::test]
async fn both_streams_in_the_order_they_were_written() {
    let place = Place::new();
    let finished = ends(&place, "echo a; echo b >&2; echo c; exit 4", 100, 100).await;
    assert_eq!((finished.exit, finished.stdout), (Exit::Code(4), text("a\nb\nc")));
    assert_eq!(finished.stderr, text(""));
    assert!(!place.path("logs").exists(), "nothing is on disk");
}

#[tokio::test]
async fn a_flood_takes_no_memory_and_no_disk() {
    let place = Place::new();
    let script = "printf start; head -c 100000000 /dev/zero | tr '\\0' x; printf end";
    let finished = ends(&place, script, 7, 5).await;
    assert_eq!(finished.stdout, text("startxx\n[… 99999996 characters omitted …]\nxxend"));
}

#[tokio::test]
async fn a_script_too_long_for_an_argument() {
    let place = Place::new();
    let script = format!("echo hi; : {}", "x".repeat(200_000));
    assert_eq!(ends(&place, &script, 10, 10).await.stdout, text("hi"));
}

#[tokio::test]
async fn an_environment_of_its_own() {
    let place = Place::new();
    let user = [("PATH", "/usr/bin:/bin"), ("OPENAI_API_KEY", "sk-1"), ("LC_ALL", "C")];
    let env = agent_env(
        user.map(|(name, value)| (name.to_owned(), value.to_owned())),
        [("PATH".to_owned(), "/bin:/usr/bin".to_owned())],
    );
    let mut request = place.request("env | grep -v '^_=\\|^SHLVL=\\|^PWD=\\|^OLDPWD=' | sort");
    request.env = Environment::Only(&env);
    let finished = LocalExec::new().run(request).await.unwrap();
    assert_eq!(finished.stdout, text("LC_ALL=C\nPATH=/bin:/usr/bin"));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn only_a_script_with_the_users_environment_keeps_the_privileges_of_an_administrator() {
    let place = Place::new();
    let env = agent_env([("PATH".to_owned(), "/usr/bin:/bin".to_owned())], []);
    let bounding = async |environment| {
        let mut request = place.request("grep CapBnd /proc/self/status | cut -f2");
        request.env = environment;
        let finished = LocalExec::new().run(request).await.unwrap();
        let Captured::Text(text) = finished.stdout else { panic!("it is short") };
        u64::from_str_radix(&text, 16).unwrap()
    };
    let users = bounding(Environment::Inherit(&[])).await;
    let agents = bounding(Environment::Only(&env)).await;
    // CAP_SYS_PTRACE, CAP_SYS_ADMIN, CAP_PERFMON: a user other than root has none of them anyway.
    let withheld = 1 << 19 | 1 << 21 | 1 << 38;
    let is_root = rustix::process::geteuid().is_root();
    assert_eq!(agents, if is_root { users & !withheld } else { users });
    // This process has them still.
    assert_eq!(bounding(Environment::Inherit(&[])).await, users);
}

#[tokio::test]
async fn secrets_are_kept_nowhere() {
    let place = Place::new();
    let redactor = Redactor::new([("TOKEN", "hunter2-hunter2")]);
    let script = "printf 'a hunter2-'; echo hunter2; echo hunter2-hunter2 >&2; printf hunter2";
    let mut request = place.request(script);
    request.redactor = Some(&redactor);
    let finished = LocalExec::new().run(request).await.unwrap();
    assert_eq!(finished.stdout, text("a [redacted:TOKEN]\nhunter2"));
    assert_eq!(finished.stderr, text("[redacted:TOKEN]"));
    assert_eq!(place.log("stdout.log"), b"a [redacted:TOKEN]\nhunter2");
    assert_eq!(place.log("stderr.log"), b"[redacted:TOKEN]\n");

    let mut request = place.request("for i in 1 2 3; do echo hunter2-hunter2; done");
    request.redactor = Some(&redactor);
    request.keep = Keep::Ends { head: 1_000, tail: 0 };
    let finished = LocalExec::new().run(request).await.unwrap();
    let Captured::Text(text) = finished.stdout else { panic!("it is text") };
    assert_eq!(text.lines().filter(|line| *line == "[redacted:TOKEN]").count(), 3, "{text}");
}
