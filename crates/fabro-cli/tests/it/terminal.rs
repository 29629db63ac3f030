//! The command on a pseudo-terminal, seen through a terminal emulator that wraps its lines anew
//! when it is resized, as most terminals do.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::project::Project;

const TIMEOUT: Duration = Duration::from_mins(1);

/// A command on a terminal of its own.
struct Terminal {
    screen: Arc<Mutex<avt::Terminal>>,
    /// The raw output.
    raw: Arc<Mutex<String>>,
    device: Arc<OwnedFd>,
    child: Child,
    reader: JoinHandle<()>,
}

impl Terminal {
    fn start(project: &Project, args: &[&str], columns: u16, rows: u16) -> Self {
        let screen = avt::Terminal::with_scrollback(columns.into(), rows.into(), None).unwrap();
        Self::start_on(project, args, columns, rows, Arc::new(Mutex::new(screen)))
    }

    /// Like [`start`](Self::start), with earlier output on the screen.
    fn start_on(
        project: &Project,
        args: &[&str],
        columns: u16,
        rows: u16,
        screen: Arc<Mutex<avt::Terminal>>,
    ) -> Self {
        let device = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&device).unwrap();
        unlockpt(&device).unwrap();
        let name = ptsname(&device, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY;
        let line = rustix::fs::open(&name, flags, Mode::empty()).unwrap();
        let device = Arc::new(device);
        set_size(&device, columns, rows);
        let mut command = project.command(args);
        command.env("TERM", "xterm-256color").env_remove("NO_COLOR");
        command.stdin(line.try_clone().unwrap()).stdout(line.try_clone().unwrap()).stderr(line);
        let child = command.spawn().unwrap();
        // The command has the only other ends of the line: when it ends, reading ends.
        drop(command);
        let raw = Arc::new(Mutex::new(String::new()));
        let reader = {
            let screen = Arc::clone(&screen);
            let raw = Arc::clone(&raw);
            let mut output = File::from(device.try_clone().unwrap());
            std::thread::spawn(move || {
                let mut bytes = [0; 4096];
                let mut text = Vec::new();
                while let Ok(count @ 1..) = output.read(&mut bytes) {
                    text.extend_from_slice(&bytes[..count]);
                    // A character may be cut in two.
                    let whole = match str::from_utf8(&text) {
                        Ok(_) => text.len(),
                        Err(error) => error.valid_up_to(),
                    };
                    let rest = text.split_off(whole);
                    let whole = str::from_utf8(&text).unwrap();
                    raw.lock().unwrap().push_str(whole);
                    screen.lock().unwrap().feed([whole]);
                    text = rest;
                }
            })
        };
        Self { screen, raw, device, child, reader }
    }

    fn resize(&self, columns: u16, rows: u16) {
        let mut screen = self.screen.lock().unwrap();
        set_size(&self.device, columns, rows);
        screen.resize(columns.into(), rows.into());
    }

    fn keys(&self, keys: &str) {
        rustix::io::write(&*self.device, keys.as_bytes()).unwrap();
    }

    /// What can be seen at the moment.
    fn visible(&self) -> String {
        let screen = self.screen.lock().unwrap();
        let rows: Vec<_> =
            screen.screen().visible_lines().map(|line| line.text().trim_end().to_owned()).collect();
        rows.join("\n")
    }

    #[track_caller]
    fn wait_for(&self, text: &str) {
        let start = Instant::now();
        while !self.visible().contains(text) {
            assert!(start.elapsed() < TIMEOUT, "no `{text}` in:\n{}", self.visible());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn interrupt(&self) {
        let pid = Pid::from_child(&self.child);
        rustix::process::kill_process(pid, Signal::INT).unwrap();
    }

    fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits until a killed command has ended.
    fn join(mut self) {
        self.child.wait().unwrap();
        self.reader.join().unwrap();
    }

    /// The exit code and all lines, once the command has ended.
    fn end(mut self) -> (i32, Vec<String>) {
        let status = self.child.wait().unwrap();
        self.reader.join().unwrap();
        let lines = self.screen.lock().unwrap().screen().text();
        (status.code().unwrap(), lines)
    }
}

fn set_size(device: &OwnedFd, columns: u16, rows: u16) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(device, size).unwrap();
}

/// A fan-out of so many branches, every tenth of which fails; labels have wide characters.
fn branches(count: usize) -> String {
    use std::fmt::Write as _;
    let mut text = "digraph { start -> all; all [shape=component, max_parallel=6]\n".to_owned();
    text.push_str("join [shape=tripleoctagon, on_failure=continue]; join -> exit\n");
    for number in 0..count {
        let end = if number % 10 == 3 { "exit 1" } else { "true" };
        let _ = writeln!(
            text,
            "all -> b{number} -> join\nb{number} [shape=parallelogram, on_failure=continue,
                label=\"Zweig {number} 計画する 🚀 of the long fan-out\",
                script=\"for i in 1 2 3; do echo working on {number} step $i; sleep 0.03; done; {end}\"]"
        );
    }
    text.push('}');
    text
}

/// Runs 50 branches on a terminal that changes its size all the time; the lines at the end.
#[track_caller]
fn resized(sizes: &[(u16, u16)]) -> Vec<String> {
    let project = Project::with(&[("flow.fabro", &branches(50))]);
    let mut terminal = Terminal::start(&project, &["run", "flow.fabro"], 110, 30);
    let mut sizes = sizes.iter().copied().cycle();
    while terminal.is_running() {
        std::thread::sleep(Duration::from_millis(40));
        let (columns, rows) = sizes.next().unwrap();
        terminal.resize(columns, rows);
    }
    let (code, lines) = terminal.end();
    let all = lines.join("\n");
    assert_eq!(code, 0, "{all}");
    for number in 0..50 {
        let is_finished = |line: &&String| {
            line.contains(&format!("Zweig {number} ")) && line.contains(['✓', '✗'])
        };
        let found: Vec<_> = lines.iter().filter(is_finished).collect();
        let is_whole = found.iter().all(|line| line.ends_with("→ join"));
        assert!(found.len() == 1 && is_whole, "branch {number}: {found:?} in:\n{all}");
    }
    lines
}

#[test]
fn every_finished_line_survives_resizing() {
    resized(&[(60, 30), (160, 24), (70, 40), (40, 12), (110, 30)]);
}

#[test]
fn nothing_but_finished_lines_is_left_after_the_width_has_changed() {
    let lines = resized(&[(60, 30), (160, 30), (70, 30), (110, 30), (48, 30)]);
    let all = lines.join("\n");
    let is_live = |line: &&String| line.contains("Zweig") && !line.contains(['✓', '✗']);
    assert_eq!(lines.iter().find(is_live), None, "{all}");
    assert!(all.contains("50/50 done, 5 failed"), "{all}");
}

#[test]
fn keys_typed_before_a_gate_appears_do_not_answer_it() {
    let flow = r#"digraph {
        start -> work -> ship
        work [shape=parallelogram, script="sleep 0.6"]
        ship [shape=hexagon, label="Ship it?"]
        ship -> exit [label="[Y] Yes"]
        ship -> no [label="[N] No"]
        no [shape=parallelogram, script="true"]
        no -> exit
    }"#;
    let project = Project::with(&[("flow.fabro", flow)]);
    let terminal = Terminal::start(&project, &["run", "flow.fabro"], 80, 24);
    terminal.wait_for("work");
    terminal.keys("y\r\r");
    terminal.wait_for("Ship it?");
    terminal.wait_for("[N] No");
    terminal.keys("zzz\r");
    terminal.wait_for("zzz");
    terminal.keys("\r");
    terminal.keys("n\r");
    let (code, lines) = terminal.end();
    assert_eq!(code, 0, "{}", lines.join("\n"));
    let answered = project.run(&["explain", "latest", "ship"]);
    assert!(answered.contains("No"), "{answered}\n{}", lines.join("\n"));
    let ran = project.json(&["inspect", "latest", "--json"]);
    let nodes = ran["stages"].as_array().unwrap().iter().map(|stage| stage["node"].clone());
    assert!(nodes.into_iter().any(|node| node == "no"));
}

#[test]
fn keys_typed_while_stages_run_do_not_disturb_the_drawing() {
    let flow = r#"digraph { start -> work -> exit; work [shape=parallelogram, on_failure=stop, script="until [ -e typed ]; do sleep 0.05; done"] }"#;
    let project = Project::with(&[("flow.fabro", flow)]);
    let terminal = Terminal::start(&project, &["run", "flow.fabro"], 80, 24);
    terminal.wait_for("work");
    terminal.keys("qqq\r\rqq\r");
    project.write("typed", b"");
    let device = Arc::clone(&terminal.device);
    let (code, lines) = terminal.end();
    let all = lines.join("\n");
    assert_eq!((code, all.contains("qq")), (0, false), "{all}");
    let work = lines.iter().filter(|line| line.contains("work ")).count();
    assert_eq!(work, 2, "a finished line, and one in the table:\n{all}");
    let echoes = tcgetattr(&*device).unwrap().local_modes.contains(LocalModes::ECHO);
    assert!(echoes, "the terminal is as it was");
}

#[test]
#[cfg(target_os = "linux")]
fn a_stopped_run_gives_the_terminal_back_and_draws_again() {
    let flow = r#"digraph { start -> work -> exit; work [shape=parallelogram, on_failure=stop, script="until [ -e go ]; do sleep 0.05; done"] }"#;
    let project = Project::with(&[("flow.fabro", flow)]);
    let terminal = Terminal::start(&project, &["run", "flow.fabro"], 80, 24);
    let pid = Pid::from_child(&terminal.child);
    let state = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit_once(") ").unwrap().1.starts_with('T')
    };
    terminal.wait_for("work");
    rustix::process::kill_process(pid, Signal::TSTP).unwrap();
    let start = Instant::now();
    while !state() || terminal.visible().contains("work") {
        assert!(start.elapsed() < TIMEOUT, "it is not stopped:\n{}", terminal.visible());
        std::thread::sleep(Duration::from_millis(5));
    }
    let modes = tcgetattr(&*terminal.device).unwrap().local_modes;
    assert!(modes.contains(LocalModes::ECHO), "the terminal is as it was");
    rustix::process::kill_process(pid, Signal::CONT).unwrap();
    terminal.wait_for("work");
    project.write("go", b"");
    let (code, lines) = terminal.end();
    let work = lines.iter().filter(|line| line.contains("work ")).count();
    assert_eq!((code, work), (0, 2), "{}", lines.join("\n"));
}

#[test]
fn a_gate_chosen_among_several_runs_is_shown_before_it_is_answered() {
    let project = Project::with(&[(
        "flow.fabro",
        r#"digraph Ship {
            goal="Ship to {{ inputs.env }}"
            start -> plan -> ask -> exit
            plan [shape=parallelogram, script="echo 'a plan that is longer than the eighty columns of this terminal, so that its line is wrapped'"]
            ask [shape=hexagon, label="Really?"]
        }"#,
    )]);
    for env in ["test", "prod"] {
        assert_eq!(project.exit(&["run", "flow.fabro", "-q", "-I", &format!("env={env}")]), 3);
    }
    let terminal = Terminal::start(&project, &["gates"], 80, 50);
    terminal.wait_for("[2] ask@1 · Really? · Ship · env=prod · Ship to prod · waiting");
    terminal.keys("2\r");
    terminal.wait_for("? Really?");
    terminal.keys("\x1b");
    let (_, lines) = terminal.end();
    let all = lines.join("\n");
    assert!(all.contains("\n    │ its line is wrapped\n"), "{all}");
    let chosen = &all[all.rfind("Ship 01").unwrap()..];
    for shown in ["  goal: Ship to prod\n", "  inputs: env=prod\n", "a plan that is longer"] {
        assert!(chosen.contains(shown), "{shown} in {chosen}");
    }
}

/// A gate of each type of question after a stage with a marked line, opened while the terminal is resized.
#[test]
fn questions_survive_resizing() {
    let gate = |kind: &str, edges: &str| {
        let flow = format!(
            r#"digraph {{
                start -> before -> ship
                before [shape=parallelogram, label="the line before", script="true"]
                ship [shape=hexagon, question_type={kind}, label="Is the release of 計画 with all of its many notes ready to be shipped to everybody today?"]
                {edges}
                done [shape=parallelogram, label="the line after", script="true"]
                done -> exit
            }}"#
        );
        Project::with(&[("flow.fabro", &flow)])
    };
    let choices = r#"ship -> done [label="[A] Approve it with all of its notes and changes"]
        ship -> exit [label="[R] Reject it and begin again"]"#;
    let cases = [
        ("yes_no", r#"ship -> done [label="Yes"] ship -> exit [label="No"]"#, "y"),
        ("confirmation", "ship -> done", "\r"),
        ("multiple_choice", choices, "a"),
        ("multi_select", choices, " \r"),
        ("freeform", "ship -> done [freeform=true]", "some text 計画\r"),
    ];
    for (kind, edges, keys) in cases {
        let project = gate(kind, edges);
        let terminal = Terminal::start(&project, &["run", "flow.fabro"], 100, 30);
        terminal.wait_for("everybody today?");
        for width in [60, 72, 81, 95, 100, 108, 121, 133, 147, 160, 50] {
            terminal.resize(width, 30);
            // A prompt looks at the size a few times a second.
            std::thread::sleep(Duration::from_millis(60));
        }
        terminal.keys(keys);
        let mut terminal = terminal;
        let start = Instant::now();
        while terminal.is_running() && start.elapsed() < TIMEOUT {
            // Some types have Enter after the choice.
            std::thread::sleep(Duration::from_millis(200));
            if terminal.is_running() {
                terminal.keys("\r");
            }
        }
        let (code, lines) = terminal.end();
        let all = lines.join("\n");
        assert_eq!(code, 0, "{kind}:\n{all}");
        for marked in ["the line before", "the line after"] {
            let count = lines.iter().filter(|line| line.contains(marked)).count();
            assert_eq!(count, 1, "{kind}: `{marked}` in:\n{all}");
        }
        let questions = all.matches("Is the release").count();
        assert!(questions == 2, "{kind}: {questions} questions in:\n{all}");
    }
}

#[test]
fn validation_follows_the_files() {
    let flow = |prompt: &str| {
        format!(
            "digraph {{ start -> a -> exit [condition=\"outcome=success\"]; a [prompt=\"{prompt}\"] }}"
        )
    };
    let project = Project::with(&[("flow.fabro", &flow("@p.md"))]);
    let terminal = Terminal::start(&project, &["validate", "--watch", "flow.fabro"], 100, 24);
    terminal.wait_for("no such file");
    terminal.wait_for("Ctrl-C ends");
    project.write("p.md", b"Do it.");
    terminal.wait_for("no findings");
    assert!(!terminal.visible().contains("no such file"), "{}", terminal.visible());
    project.write("flow.fabro", b"digraph {");
    terminal.wait_for("error[syntax]");
    std::fs::remove_file(project.path().join("flow.fabro")).unwrap();
    terminal.wait_for("error[unreadable]");
    project.write("flow.fabro", flow("Do it at once.").as_bytes());
    terminal.wait_for("no findings");
    project.write(".fabro/config.toml", b"_version = 1\ncolour = 1\n");
    project.write("flow.fabro", flow("Do it now.").as_bytes());
    terminal.wait_for("`colour` is not a setting");
    project.write(".fabro/config.toml", b"_version = 1\n");
    terminal.wait_for("no findings");
    terminal.interrupt();
    let (code, lines) = terminal.end();
    assert_eq!(code, 130, "{}", lines.join("\n"));
}

/// The raw output of a command on a terminal with this width, without color codes.
#[track_caller]
fn sent(project: &Project, args: &[&str], columns: u16) -> String {
    let terminal = Terminal::start(project, args, columns, 24);
    let raw = Arc::clone(&terminal.raw);
    terminal.end();
    let raw = raw.lock().unwrap();
    regex::Regex::new("\x1b\\[[0-9;]*m").unwrap().replace_all(&raw, "").replace("\r\n", "\n")
}

/// Asserts that a text has no garbled or control characters, and no line wider than the terminal.
#[track_caller]
fn fits(text: &str, columns: u16, args: &[&str]) {
    for line in text.lines() {
        let is_garbled = line.contains(|c: char| c == '\u{fffd}' || c.is_control());
        let width = line.chars().count();
        assert!(!is_garbled && width <= columns.into(), "{args:?}, {columns}: {line:?}\n{text}");
    }
}

/// All commands and subcommands.
fn commands(project: &Project) -> Vec<Vec<String>> {
    let listed = |path: &[String]| {
        let mut words: Vec<&str> = path.iter().map(String::as_str).collect();
        words.push("--help");
        let help = String::from_utf8(project.output(&words).stdout).unwrap();
        let below = match path {
            [] => help.split("\n\n").nth(2).unwrap().to_owned(),
            _ => help.split("Commands:\n").nth(1).unwrap_or_default().to_owned(),
        };
        let lines = below.split("\n\n").next().unwrap_or_default().to_owned();
        let titles =
            regex::Regex::new("^  (Start|Watch|Answer|Understand|Go back|Keep|Check|Serve)")
                .unwrap();
        let lines = lines.lines().map(move |line| titles.replace(line, "").trim().to_owned());
        lines.map(|line| line.split(' ').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let mut found = vec![Vec::new()];
    for name in listed(&[]) {
        let path = vec![name];
        let below = listed(&path).into_iter().filter(|name| !name.is_empty() && name != "help");
        found.extend(below.map(|name| [path.clone(), vec![name]].concat()));
        found.push(path);
    }
    found
}

#[test]
fn help_errors_and_versions_are_right_on_every_terminal() {
    let project = Project::new();
    let commands = commands(&project);
    assert!(commands.len() > 45, "{commands:?}");
    for path in &commands {
        for last in ["-h", "--help", "--version", "--bogus"] {
            for columns in [80, 140] {
                let mut args: Vec<&str> = path.iter().map(String::as_str).collect();
                args.push(last);
                let text = sent(&project, &args, columns);
                fits(&text, columns, &args);
                let expected = match last {
                    "--version" => "fabro 0.",
                    "--bogus" => "error: unexpected argument '--bogus' found",
                    _ => "Usage: fabro",
                };
                let is_version = last == "--version" && text.starts_with("fabro");
                assert!(is_version || text.contains(expected), "{args:?}: {text}");
            }
        }
    }
}

#[test]
fn own_errors_fit_into_the_terminal() {
    let project = Project::hello();
    let cases: [&[&str]; 8] = [
        &["stop", "latest"],
        &["pause"],
        &["run"],
        &["run", "hello", "-y"],
        &["run", "hello", "--set", "some_name=some longer value of this input"],
        &["replay"],
        &["inspect", "nowhere"],
        &["answer", "latest", "y"],
    ];
    for args in cases {
        let text = sent(&project, args, 80);
        assert!(text.starts_with("error: "), "{text}");
        fits(&text, 80, args);
    }
    let piped = project.run(&["pause"]);
    assert_eq!(piped.lines().count(), 4, "{piped}");
}

#[test]
fn reports_fit_into_a_narrow_terminal() {
    let project = Project::hello();
    let run = sent(&project, &["run", "hello"], 80);
    let start = run.lines().take_while(|line| !line.contains("write"));
    let start: Vec<_> = start.map(|line| line.trim_start_matches(CLEARED)).collect();
    assert_eq!(start.len(), 2, "{run:?}");
    fits(&start.join("\n"), 80, &["run"]);
    let du = sent(&project, &["du"], 80);
    fits(&du, 80, &["du"]);
    assert!(du.contains("total"), "{du}");
    let trace = sent(&project, &["trace"], 80);
    fits(&trace, 80, &["trace"]);
    let names: Vec<_> = trace.lines().map(|line| line.get(20..).unwrap_or_default()).collect();
    assert_eq!(
        names[..4],
        ["span", "invoke_workflow hello", "  stage start", "  invoke_agent write"]
    );
    assert!(trace.contains("    chat scripted"), "{trace}");
    let json = sent(&project, &["trace", "--json"], 80);
    assert!(json.starts_with("{\"resourceSpans\""), "{json}");
}

/// The sequence that resets the terminal after a killed driver.
const CLEARED: &str = "\x1b[?7h\r\x1b[K\x1b[C\x1b[J\r";

#[test]
fn a_start_after_a_killed_driver_draws_clean_lines() {
    let flow = r#"digraph { on_failure=continue; start -> all; all [shape=component]; join [shape=tripleoctagon]; join -> exit
        a [shape=parallelogram, script="until [ -e go ]; do sleep 0.05; done"]
        b [shape=parallelogram, script="until [ -e go ]; do sleep 0.05; done"]
        c [shape=parallelogram, script="until [ -e go ]; do sleep 0.05; done"]
        all -> a -> join; all -> b -> join; all -> c -> join }"#;
    let project =
        Project::with(&[("flow.fabro", flow), ("next.fabro", "digraph { start -> exit }")]);
    let terminal = Terminal::start(&project, &["run", "flow.fabro"], 80, 24);
    terminal.wait_for("c ");
    let id = project.json(&["ps", "--json"])[0]["id"].as_str().unwrap().to_owned();
    let screen = Arc::clone(&terminal.screen);
    rustix::process::kill_process(Pid::from_child(&terminal.child), Signal::KILL).unwrap();
    // Scripts of the killed driver keep its terminal open.
    project.write("go", b"");
    terminal.join();
    let next = Terminal::start_on(&project, &["resume", &id], 80, 24, screen);
    let (code, lines) = next.end();
    let all = lines.join("\n");
    assert_eq!(code, 0, "{all}");
    for name in ["a", "b", "c"] {
        let shown = lines.iter().filter(|line| {
            let mut words = line.split_whitespace();
            words.any(|word| word == name)
        });
        assert_eq!(shown.count(), 2, "{name} is finished, and in the table:\n{all}");
    }
}
