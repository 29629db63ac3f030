//! Real shells and Python judge: no value runs, and accepted values arrive byte for byte.

use std::path::Path;
use std::process::{Command, Stdio};

use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::*;

/// Values that do harm when they are read as anything but text. `CANARY` is a command that makes
/// a file in the folder of the script.
const HOSTILE: [&str; 40] = [
    "$(CANARY)",
    "`CANARY`",
    "a[$(CANARY)]",
    "x=$(CANARY)",
    "; CANARY;",
    "\nCANARY\n",
    "'; CANARY; '",
    "\"; CANARY; \"",
    "'\"; CANARY #",
    "$(CANARY)'\"`",
    "${x:=$(CANARY)}",
    "$((a[$(CANARY)]))",
    "& CANARY &",
    "| CANARY |",
    "&& CANARY",
    ") CANARY (",
    "}; CANARY; {",
    "\\",
    "\\\\",
    "\\'; CANARY; \\'",
    "EOF\nCANARY\nEOF",
    "E\nCANARY\nE",
    "-n",
    "-v",
    "-va[$(CANARY)]",
    "-eq",
    "!",
    "(",
    ")",
    "*",
    "~",
    "#",
    "# $(CANARY)",
    "",
    " a  b ",
    "é\u{2028}😀",
    "\t\r\n",
    "eval",
    "a[0]$(CANARY)",
    "%s%n\\n",
];

/// Scripts around values: `@` is one, `%` a command that prints its arguments, each ended by `|`.
const FRAMES: [&str; 60] = [
    "% @",
    "% \"@\"",
    "% '@'",
    "% a@b \"c@d\" 'e@f'",
    "x=@; % \"$x\"",
    "x=\"a @\"; % \"$x\"",
    "% \"$(% @)\"",
    "% \"$(printf '%s' \"@\")\"",
    "case @ in *) % @;; esac",
    "for i in @ @; do % \"$i\"; done",
    "if [ \"@\" = \"@\" ]; then % @; else % \"@\"; fi",
    "f() { % \"$1\"; }; f @",
    "( % @ ); { % @; }",
    "% @ | cat",
    "cat <<'EOF'\n@\nEOF\n% @",
    "cat <<\\E\na @ b\nE\n% \"@\"",
    "cat <<-'E'\n\t@\n\tE\n% @",
    "% \"$(cat <<'EOF'\n@\nEOF\n)\"; % @",
    "set -- @; % \"$1\"",
    "% \"$HOME@\" \"$x@\" $x@",
    "% \\\n @ \\\n \"@\"",
    "bash -c 'printf \"%s|\" \"$1\"' _ @",
    "env A=@ sh -c 'printf \"%s|\" \"$A\"'",
    "x=@ y=\"@\" true; % @",
    "# it's a comment\n% @",
    "% a#@ '#' @",
    "% \"\\\"@\\\"\"",
    "test -n \"@\" && % @ || % @",
    "% $((1 << 2)) @",
    "! false && % @; % \"`echo x`\" @",
    "for _ in 1; do % @; done",
    "% @ > /dev/null; % @ 2>&1",
    "% \"${x:-y}\" \"${#x}\" @",
    "% {\\\"a\\\": \\\"@\\\"}",
    "export X=@; % \"$X\"",
    "% @;% @\n% @&\nwait",
    // Refused, or right.
    "% $((@))",
    "% $[@]",
    "((@))",
    "a[@]=1",
    "[[ @ -gt 1 ]]",
    "let @",
    "declare -i n=@",
    "test -v @",
    "eval @",
    "sh -c \"% @\"",
    "cat <<EOF\n@\nEOF",
    "% `% @`",
    "% \"${x:-@}\"",
    "% a\\ #@",
    "% \\(#@",
    "% a\\\n#@",
    "x=@; % $((x))",
    "printf @ a",
    "printf -v @ a",
    "[ @ @ ]",
    "read @ </dev/null",
    "# @",
    "@ a",
    "% @ | sh",
];

fn pick(random: &mut TestRng, below: usize) -> usize {
    use proptest::prelude::Rng as _;
    usize::try_from(random.next_u32()).unwrap() % below
}

struct Case {
    script: String,
    values: Vec<String>,
}

/// Frames and pieces of them in random order, joined in random ways.
fn random_case(random: &mut TestRng) -> Case {
    const JOINTS: [&str; 8] =
        ["\n", "; ", " && ", " | cat; ", "\n# it's\n", " #'\n", "\n\n", " || true\n"];
    let mut frame = String::new();
    for at in 0..=pick(random, 3) {
        if at > 0 {
            frame.push_str(JOINTS[pick(random, JOINTS.len())]);
        }
        frame.push_str(FRAMES[pick(random, FRAMES.len())]);
    }
    // Now and then something is lost or moved, which makes scripts that no person would write.
    for _ in 0..pick(random, 3) {
        let at = pick(random, frame.len() + 1);
        if pick(random, 4) == 0 && frame.is_char_boundary(at) {
            let signs =
                ["'", "\"", "\\", "$", "(", ")", "`", "#", "@", " ", "<<E\n", "{", "}", ";", "\n"];
            frame.insert_str(at, signs[pick(random, signs.len())]);
        }
    }
    let mut values = Vec::new();
    let mut script = String::new();
    for c in frame.chars() {
        match c {
            '@' => {
                write!(script, "{{{{ context.v{} }}}}", values.len()).unwrap();
                values.push(HOSTILE[pick(random, HOSTILE.len())].to_owned());
            }
            '%' => script.push_str("printf '%s|'"),
            c => script.push(c),
        }
    }
    // `printf '%s|'` within `'…'` of a frame is not meant.
    Case { script: script.replace("printf 'printf '%s|'s", "printf '%s"), values }
}

fn render_case(case: &Case, canary: &str, mode: Mode) -> Option<String> {
    let keyed = case.values.iter().enumerate();
    let context = keyed
        .map(|(at, value)| (format!("v{at}"), Arc::new(json!(value.replace("CANARY", canary)))));
    let values = Values { context: context.collect(), ..Values::default() };
    let template = Template::parse(&case.script).ok()?;
    template.misplaced(mode).is_empty().then(|| template.render(Arc::new(values), mode).ok())?
}

/// Runs a file of scripts, each in a process of its own, and returns what each one printed.
fn run(program: &str, dir: &Path, scripts: &[String]) -> Vec<Vec<u8>> {
    let mut children = Vec::new();
    let mut printed = Vec::new();
    for batch in scripts.chunks(8) {
        for script in batch {
            let child = Command::new(program)
                .args(["-c", script])
                .current_dir(dir)
                .env("HOME", "/home/x")
                .env_remove("x")
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn();
            children.push(child.unwrap());
        }
        printed.extend(children.drain(..).map(|child| child.wait_with_output().unwrap().stdout));
    }
    printed
}

fn judge(program: &str, cases: &[Case], mode: Mode) -> usize {
    let dir = std::env::temp_dir().join(format!("fabro-{program}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir(&dir).unwrap();
    let rendered: Vec<(usize, String)> = cases
        .iter()
        .enumerate()
        .filter_map(|(at, case)| Some((at, render_case(case, &format!("touch canary{at}"), mode)?)))
        .collect();
    let scripts: Vec<String> = rendered.iter().map(|(_, script)| script.clone()).collect();
    run(program, &dir, &scripts);
    let found: Vec<String> = std::fs::read_dir(&dir)
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().into_string().ok())
        .filter(|name| name.starts_with("canary"))
        .collect();
    for name in &found {
        let at: usize = name.trim_start_matches("canary").parse().unwrap_or_default();
        let script = rendered.iter().find(|(index, _)| *index == at);
        eprintln!("{program} ran a value of\n{}\nas\n{:?}\n", cases[at].script, script);
    }
    std::fs::remove_dir_all(&dir).unwrap();
    assert!(found.is_empty(), "{program}: {found:?}");
    rendered.len()
}

fn random() -> TestRng {
    let seed = std::env::var("FABRO_SEED").unwrap_or_default();
    let mut bytes = [7; 32];
    for (byte, given) in bytes.iter_mut().zip(seed.bytes()) {
        *byte = given;
    }
    TestRng::from_seed(RngAlgorithm::ChaCha, &bytes)
}

fn number_of_cases(default: usize) -> usize {
    std::env::var("FABRO_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(default)
}

#[test]
fn no_value_runs_in_any_script() {
    let mut random = random();
    let cases: Vec<Case> = (0..number_of_cases(400)).map(|_| random_case(&mut random)).collect();
    for program in ["bash", "sh"] {
        let accepted = judge(program, &cases, Mode::Shell);
        assert!(accepted > cases.len() / 6, "{accepted} of {}", cases.len());
    }
}

/// Every frame that is accepted prints its value as it is.
#[test]
fn accepted_values_arrive_byte_for_byte() {
    const EXACT: [(&str, &str); 14] = [
        ("% @", "@|"),
        ("% \"@\"", "@|"),
        ("% '@'", "@|"),
        ("% a@b \"c@d\"", "a@b|c@d|"),
        ("x=@; % \"$x\"", "@|"),
        ("% \"$(% @)\"", "@||"),
        ("case @ in *) % @;; esac", "@|"),
        ("for i in @ \"@\"; do % \"$i\"; done", "@|@|"),
        ("f() { % \"$1\"; }; f @", "@|"),
        ("[ -n \"@\" ] && :; % @", "@|"),
        ("cat <<'END'\n<@>\nEND\n% @", "<@>\n@|"),
        ("set -- @; % \"$1\" \"$HOME@\"", "@|/home/x@|"),
        ("bash -c 'printf \"%s.\" \"$1\"' _ @", "@."),
        ("% {\\\"a\\\": \\\"@\\\"}", "{\"a\":|\"@\"}|"),
    ];
    for program in ["bash", "sh"] {
        let mut scripts = Vec::new();
        let mut expected = Vec::new();
        for (frame, prints) in EXACT {
            for value in HOSTILE {
                let count = frame.matches('@').count();
                let script = frame.replace('%', "printf '%s|'");
                let script = script.replace("printf \"printf '%s|'s.", "printf \"%s.");
                let mut parts = script.split('@');
                let mut text = parts.next().unwrap().to_owned();
                for (at, part) in parts.enumerate() {
                    write!(text, "{{{{ context.v{at} }}}}{part}").unwrap();
                }
                let case = Case { script: text, values: vec![value.to_owned(); count] };
                scripts.push(render_case(&case, "CANARY", Mode::Shell).expect(frame));
                expected.push(prints.replace('@', value));
            }
        }
        let printed = run(program, Path::new("/"), &scripts);
        for ((script, expected), printed) in scripts.iter().zip(expected).zip(printed) {
            assert_eq!(String::from_utf8_lossy(&printed), expected, "{program}: {script}");
        }
    }
}

#[test]
fn no_value_runs_in_python() {
    const FRAMES: [&str; 16] = [
        "print('@')",
        "print(\"@\", '''@''', \"\"\"a@b\"\"\")",
        "x = {'a': ['@', f'{1}@{{}}']}",
        "# @\nprint(1)",
        "x = @",
        "x = f'{@}'",
        "x = r'@'",
        "x = b'@'",
        "eval('@')",
        "import os; os.system('echo @')",
        "x = 'a' '@' # it's '@'",
        "x = '\\'@' + \"\\\\@\"",
        "x = '\\x41@'",
        "if 1:\n    x = '''\n@\n'''",
        "x = u'@'; y = '@'.format('@')",
        "x = '@",
    ];
    const VALUES: [&str; 12] = [
        "'; open('CANARY', 'w'); '",
        "\"; open('CANARY', 'w'); \"",
        "'''; open('CANARY', 'w'); '''",
        "{open('CANARY', 'w')}",
        "\\'; open('CANARY', 'w') #",
        "\nopen('CANARY', 'w')\n",
        "open('CANARY', 'w')",
        "__import__('os').system('touch CANARY')",
        "; touch CANARY",
        "\\",
        "{0.__class__}",
        "é\u{2028}\r\0",
    ];
    let mut random = random();
    let mut cases = Vec::new();
    for _ in 0..number_of_cases(60) {
        let mut case = Case { script: String::new(), values: Vec::new() };
        for _ in 0..=pick(&mut random, 2) {
            for c in FRAMES[pick(&mut random, FRAMES.len())].chars() {
                if c == '@' {
                    write!(case.script, "{{{{ context.v{} }}}}", case.values.len()).unwrap();
                    case.values.push(VALUES[pick(&mut random, VALUES.len())].to_owned());
                } else {
                    case.script.push(c);
                }
            }
            case.script.push('\n');
        }
        cases.push(case);
    }
    // The canary is a file name here.
    for case in &mut cases {
        for value in &mut case.values {
            *value = value.replace("CANARY", "canary0");
        }
    }
    assert!(judge("python3", &cases, Mode::Python) > 10);
}

#[test]
fn any_text_is_scanned() {
    let mut runner =
        TestRunner::new(Config { cases: 300, failure_persistence: None, ..Config::default() });
    let text = "([a-c \\n'\"`$(){}\\[\\]#;&|<>=!*\\\\@\0]|EOF|<<|<<-|case|esac|in|for|do|done|if|then|fi|bash -c|eval|x=|\\[\\[|\\]\\]|\\$\\(\\(|\\)\\)){0,40}";
    let scanned = runner.run(&text, |text| {
        let count = text.matches('\0').count();
        prop_assert_eq!(crate::shell::read(&text).places.len(), count);
        prop_assert_eq!(crate::python_code::read(&text).len(), count);
        Ok(())
    });
    scanned.unwrap();
    for piece in [
        "(",
        "$(",
        "${",
        "\"$(",
        "`",
        "$((",
        "[[ ",
        "case x in ",
        "<<E ",
        "{ ",
        "'",
        "if ",
        "a=(",
        "<(",
    ] {
        let text = format!("{}\0", piece.repeat(20_000));
        assert!(crate::shell::read(&text).places[0].is_err(), "{piece}");
    }
}
