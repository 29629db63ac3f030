//! Programs that run code from their arguments or their input, and programs that run other commands.

use std::collections::BTreeSet;

use super::{Verdict, is_option, name_of};
use crate::code_variables::is_code_variable;
use crate::misplaced::{Advice, Misplaced};
use crate::shell::word::Word;
use crate::shell::{flow, lists};

/// How a program finds its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The first operand is code after an option with one of these letters, else a file; the words
    /// after it are values. The second letters are those of options with an argument.
    Shell(&'static str, &'static str),
    /// Options may follow the code, so that values must not begin a word after it.
    Permuting,
    Awk,
    Sed,
    /// It evaluates any of its words.
    Everything,
}

const SHELLS: [&str; 20] = [
    "ash",
    "bash",
    "csh",
    "dash",
    "elvish",
    "fish",
    "ksh",
    "ksh93",
    "mksh",
    "nu",
    "oksh",
    "osh",
    "powershell",
    "pwsh",
    "rbash",
    "sh",
    "tcsh",
    "xonsh",
    "yash",
    "zsh",
];

const PERMUTING: [&str; 22] = [
    "Rscript",
    "bun",
    "clojure",
    "deno",
    "elixir",
    "erl",
    "groovy",
    "guile",
    "julia",
    "lua",
    "luajit",
    "node",
    "nodejs",
    "ocaml",
    "osascript",
    "perl",
    "php",
    "racket",
    "ruby",
    "scala",
    "ts-node",
    "tsx",
];

const EVERYTHING: [&str; 42] = [
    "R",
    "at",
    "batch",
    "crontab",
    "dc",
    "ed",
    "emacs",
    "entr",
    "ex",
    "expect",
    "flock",
    "ftp",
    "gawk-csv",
    "gdb",
    "gnuplot",
    "hyperfine",
    "lldb",
    "m4",
    "mariadb",
    "mosh",
    "mysql",
    "nix-shell",
    "nvim",
    "octave",
    "parallel",
    "psql",
    "rsh",
    "runuser",
    "sbcl",
    "screen",
    "script",
    "sqlite3",
    "ssh",
    "sshpass",
    "su",
    "systemd-run",
    "tclsh",
    "telnet",
    "tmux",
    "vi",
    "vim",
    "watch",
];

/// Programs that run another command: its name, the letters of options with an argument, and how
/// many operands come before the command.
const WRAPPERS: [(&str, &str, usize); 42] = [
    ("builtin", "", 0),
    ("busybox", "", 0),
    ("catchsegv", "", 0),
    ("chronic", "", 0),
    ("chroot", "", 1),
    ("chrt", "TPD", 1),
    ("command", "", 0),
    ("cpulimit", "lpe", 0),
    ("dbus-run-session", "", 0),
    ("doas", "uC", 0),
    ("env", "uC", 0),
    ("exec", "a", 0),
    ("faketime", "f", 1),
    ("fakeroot", "", 0),
    ("gtimeout", "sk", 1),
    ("ionice", "cnpPu", 0),
    ("ltrace", "aAeFlnopsSuwx", 0),
    ("nice", "n", 0),
    ("nohup", "", 0),
    ("nsenter", "tSGr", 0),
    ("numactl", "", 0),
    ("pkexec", "", 0),
    ("prlimit", "op", 0),
    ("proxychains", "f", 0),
    ("proxychains4", "f", 0),
    ("setarch", "", 1),
    ("setpriv", "", 0),
    ("setsid", "", 0),
    ("stdbuf", "ioe", 0),
    ("strace", "abeEIoOpPsSuUX", 0),
    ("sudo", "ughpCrtUDRT", 0),
    ("taskset", "p", 1),
    ("time", "fo", 0),
    ("timeout", "sk", 1),
    ("toybox", "", 0),
    ("type", "", 0),
    ("torsocks", "", 0),
    ("unbuffer", "", 0),
    ("unshare", "SGR", 0),
    ("valgrind", "", 0),
    ("xargs", "IiEeLlnPsda", 0),
    ("xvfb-run", "efnpsw", 0),
];

/// Programs that run a command somewhere else, with its words or the input of it.
const RUNNERS: [&str; 27] = [
    "bunx",
    "bwrap",
    "conda",
    "distrobox",
    "docker",
    "docker-compose",
    "firejail",
    "flatpak",
    "hatch",
    "kubectl",
    "lxc",
    "lxc-attach",
    "mamba",
    "mise",
    "nerdctl",
    "npx",
    "nsenter",
    "oc",
    "pdm",
    "pipenv",
    "podman",
    "poetry",
    "proot",
    "strace",
    "unshare",
    "uv",
    "vagrant",
];

/// Options of any program whose argument is code.
const CODE_OPTIONS: [&str; 16] = [
    "--checkpoint-action",
    "--command",
    "--compress-program",
    "--eval",
    "--exec",
    "--execute",
    "--info-script",
    "--rsh",
    "--rsh-command",
    "--rsync-path",
    "--run",
    "--script-shell",
    "--strip-program",
    "--to-command",
    "--use-askpass",
    "--use-compress-program",
];

/// Long options of some programs whose argument is code, or names a program.
const LONG_CODE_OPTIONS: [(&str, &str); 6] = [
    ("docker", "--entrypoint"),
    ("npm", "--call"),
    ("npx", "--call"),
    ("podman", "--entrypoint"),
    ("rg", "--pre"),
    ("split", "--filter"),
];

/// Short options of some programs whose argument is code.
const SHORT_CODE_OPTIONS: [(&str, &str); 7] = [
    ("make", "E"),
    ("npm", "c"),
    ("npx", "c"),
    ("rsync", "e"),
    ("scp", "oS"),
    ("sftp", "oS"),
    ("tar", "IF"),
];

/// Those of [`WRAPPERS`] that start a shell when no command is given.
const STARTS_SHELL: [&str; 9] = [
    "busybox", "chroot", "fakeroot", "nsenter", "setarch", "sudo", "toybox", "torsocks", "unshare",
];

/// Modules of Python that run code from their arguments or their input (`python3 -m timeit CODE`).
const MODULES_WITH_CODE: [&str; 3] = ["code", "pdb", "timeit"];

const OTHER_COMMAND: Misplaced = Misplaced::new("as the name of a command", Advice::Name);

fn kind(name: &str) -> Option<Kind> {
    let base = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    Some(match base {
        _ if SHELLS.contains(&base) || SHELLS.contains(&name) => Kind::Shell("c", "oO"),
        "python" | "pypy" | "ipython" | "micropython" => Kind::Shell("c", "WXQ"),
        "awk" | "gawk" | "mawk" | "nawk" | "original-awk" => Kind::Awk,
        "sed" | "gsed" => Kind::Sed,
        _ if PERMUTING.contains(&base) => Kind::Permuting,
        _ if EVERYTHING.contains(&base) || EVERYTHING.contains(&name) => Kind::Everything,
        _ => return None,
    })
}

/// A program that runs code or another command.
pub(super) fn runs(name: &str) -> bool {
    kind(name).is_some() || WRAPPERS.iter().any(|(known, ..)| *known == name)
}

/// What a command that is no builtin does with its words.
pub(super) fn judge(name: &str, words: &[Word], depth: usize) -> Verdict {
    if let Some(kind) = kind(name) {
        return interpreter(kind, name, words, depth);
    }
    if let Some((_, letters, operands)) = WRAPPERS.iter().find(|(known, ..)| *known == name) {
        return wrapper(name, (letters, *operands), words, depth);
    }
    match name {
        "find" | "fd" | "fdfind" => find(words, depth),
        "gmake" | "make" => make(name, words, depth),
        "git" => git(words),
        _ => other(name, words, depth),
    }
}

fn script_of(name: &str) -> Misplaced {
    Misplaced::of(format!("in a script of `{name}`, which evaluates it"), Advice::InnerScript)
}

fn filter_of(name: &str) -> Misplaced {
    Misplaced::of(format!("in a script or an option of `{name}`"), Advice::Filter)
}

fn interpreter(kind: Kind, name: &str, words: &[Word], depth: usize) -> Verdict {
    match kind {
        Kind::Shell(code, with_argument) => {
            evaluating_reads(shell(name, (code, with_argument), words, depth))
        }
        Kind::Permuting => evaluating_reads(permuting(name, words)),
        Kind::Awk => evaluating_reads(awk(name, words)),
        Kind::Sed => evaluating_reads(sed(name, words)),
        Kind::Everything => Verdict {
            runs_input: Some(name.to_owned()),
            evaluated: words[1..].iter().flat_map(files).collect(),
            ..Verdict::refusing(1..words.len(), script_of(name))
        },
    }
}

/// The files that a word of several words may name (`.read FILE`).
fn files(word: &Word) -> BTreeSet<String> {
    let parts = word.text.split_whitespace().filter_map(|part| part.rsplit('/').next());
    let parts = parts.filter(|part| !part.is_empty()).map(|part| format!("file {part}"));
    parts.chain(flow::file(word)).collect()
}

fn evaluating_reads(verdict: Verdict) -> Verdict {
    Verdict { evaluates_reads: true, ..verdict }
}

/// Short options together, such as `-lc`.
fn letters(word: &Word) -> &str {
    let is_short = is_option(word) && !word.text.starts_with("--");
    if is_short { &word.text[1..] } else { "" }
}

fn shell(name: &str, (code, with_argument): (&str, &str), words: &[Word], depth: usize) -> Verdict {
    let mut at = 1;
    let mut reads_input = false;
    let mut has_code = false;
    let mut files = BTreeSet::new();
    while let Some(word) = words.get(at).filter(|word| is_option(word)) {
        at += 1;
        if word.text == "--" {
            break;
        }
        if letters(word).ends_with('m') && !SHELLS.contains(&name) {
            let module = words.get(at).map_or("", |module| &*module.text);
            if MODULES_WITH_CODE.contains(&module) {
                return Verdict {
                    runs_input: Some(name.to_owned()),
                    ..Verdict::refusing(1..words.len(), script_of(name))
                };
            }
            files.insert(format!("file {module}.py"));
        }
        let letters = letters(word);
        has_code |= letters.contains(|c| code.contains(c));
        if ["--rcfile", "--init-file"].contains(&&*word.text) {
            files.extend(words.get(at).and_then(flow::file));
            at += 1;
        }
        reads_input |= letters.contains('s') && !letters.contains(|c| code.contains(c));
        let takes_next = letters.ends_with(|c| with_argument.contains(c));
        at += usize::from(takes_next && !letters.contains(|c| code.contains(c)));
    }
    let operand = words.get(at);
    reads_input |= operand.is_none_or(|word| {
        word.text == "-" || word.text.starts_with("/dev/") || word.text.starts_with("/proc/")
    });
    let is_fixed = operand.is_some_and(|word| {
        let is_split = word.text == "\0" && word.may_split;
        !(word.has_values() || word.has_pattern || is_split)
    });
    // After a fixed operand, values are arguments of the script.
    let end = if is_fixed { (at + 1).min(words.len()) } else { words.len() };
    let mut verdict = Verdict {
        runs_input: reads_input.then(|| name.to_owned()),
        evaluated: files,
        ..Verdict::refusing(1..end, script_of(name))
    };
    match operand.map(|word| (word, word.fixed())) {
        Some((_, Some(script))) if has_code && SHELLS.contains(&name) => {
            inner_script(name, script, (words, at), depth, &mut verdict);
        }
        // It may be `$(cat)`.
        Some((_, None)) if has_code => verdict.runs_input = Some(name.to_owned()),
        Some((word, _)) if !has_code => verdict.evaluated.extend(flow::file(word)),
        _ => {}
    }
    verdict
}

/// A script for a shell, which stands in the word `at`: what it does with the words after it, with
/// variables and with its input.
fn inner_script(
    name: &str,
    script: &str,
    (words, at): (&[Word], usize),
    depth: usize,
    verdict: &mut Verdict,
) {
    let inner = lists::read_inner(script, depth + 1);
    if inner.runs_input || inner.is_unclear {
        verdict.runs_input = Some(name.to_owned());
    }
    if inner.evaluated.contains(flow::ARGUMENTS) || inner.is_unclear {
        let place = format!("in the arguments of a script of `{name}`, which evaluates them");
        let why = Misplaced::of(place, Advice::Number);
        verdict.refused.push((at + 1..words.len(), why));
    } else if inner.commands.contains(flow::ARGUMENTS) && words.len() > at + 1 {
        // `$0` may be the name of a command, too.
        verdict.refused.push((at + 1..at + 2, OTHER_COMMAND));
    }
    let has_command = inner.commands.contains(flow::ARGUMENTS) && words.len() > at + 2;
    if has_command && !inner.evaluated.contains(flow::ARGUMENTS) && !inner.is_unclear {
        let command = Verdict::of_inner(words, at + 2, depth);
        verdict.refused.extend(command.refused);
        verdict.evaluated.extend(command.evaluated);
        verdict.unclear = command.unclear;
    }
    verdict.evaluated.extend(inner.evaluated);
    verdict.evaluated.extend(inner.commands);
    if inner.is_unclear {
        verdict.evaluated.extend(flow::names(script));
    }
    verdict.evaluated.remove(flow::ARGUMENTS);
}

fn permuting(name: &str, words: &[Word]) -> Verdict {
    let mut verdict = Verdict::default();
    let mut has_code = false;
    let mut at = 1;
    while let Some(word) = words.get(at) {
        let letters = letters(word);
        let is_plain = letters.bytes().all(|byte| byte.is_ascii_alphabetic());
        let is_code = ["--eval", "--execute", "--print", "eval"].contains(&&*word.text)
            || !letters.is_empty() && is_plain && letters.ends_with(['e', 'E', 'p', 'r']);
        if word.text == "--" && !has_code || word.text == "-" {
            break;
        }
        if word.text == "--" {
            verdict.refused.push((1..at + 1, script_of(name)));
            return verdict;
        }
        if is_code {
            has_code = true;
            at += 1;
        } else if !is_option(word) && !has_code {
            verdict.evaluated.extend(flow::file(word));
            let is_fixed = !word.has_values() && !word.has_pattern;
            let end = if is_fixed { at + 1 } else { words.len() };
            verdict.refused.push((1..end, script_of(name)));
            return verdict;
        } else if has_code && word.has_values() && !word.text.starts_with(['\0', '-']) {
            verdict.refused.push((1..at, script_of(name)));
            let rest = Verdict::refusing(at + 1..words.len(), script_of(name));
            verdict.refused.extend(rest.refused);
            return verdict;
        }
        at += 1;
    }
    verdict.refused.push((1..words.len(), script_of(name)));
    verdict.runs_input = (!has_code).then(|| name.to_owned());
    verdict
}

fn awk(name: &str, words: &[Word]) -> Verdict {
    let mut verdict = Verdict::default();
    let mut at = 1;
    let mut has_file = false;
    while let Some(word) = words.get(at).filter(|word| is_option(word)) {
        at += 1;
        match letters(word) {
            "v" => {
                // `-v name=value`: the value is a text.
                let fixed = words.get(at).and_then(|next| next.assigns.as_ref());
                if fixed.is_none() {
                    verdict.refused.push((at..at + 1, filter_of(name)));
                }
                at += 1;
            }
            "F" => at += 1,
            "f" => {
                has_file = true;
                verdict.refused.push((at..at + 1, filter_of(name)));
                runs_file(name, words.get(at), &mut verdict);
                at += 1;
            }
            _ => {
                let is_assignment = word.text.starts_with("-v") && word.text.contains('=');
                let name_end = word.text.find('=').unwrap_or_default();
                if !is_assignment || word.text[..name_end].contains('\0') {
                    verdict.refused.push((at - 1..at, filter_of(name)));
                }
            }
        }
        if word.text == "--" {
            break;
        }
    }
    let is_missing = !has_file && words.get(at).is_none_or(Word::has_values);
    let end = if is_missing { words.len() } else { at + usize::from(!has_file) };
    verdict.refused.push((at..end.max(at), filter_of(name)));
    verdict
}

/// It runs the code in this file, which may be its input.
fn runs_file(name: &str, word: Option<&Word>, verdict: &mut Verdict) {
    let Some(word) = word else { return };
    verdict.evaluated.extend(flow::file(word));
    if word.text == "-" || word.text.starts_with("/dev/") || word.text.starts_with("/proc/") {
        verdict.runs_input = Some(name.to_owned());
    }
}

fn sed(name: &str, words: &[Word]) -> Verdict {
    let mut verdict = Verdict::default();
    let mut has_script = false;
    let mut is_over = false;
    let mut at = 1;
    while let Some(word) = words.get(at) {
        let takes_script = !is_over
            && (letters(word).ends_with(['e', 'f'])
                || ["--expression", "--file"].contains(&&*word.text));
        if takes_script {
            has_script = true;
            verdict.refused.push((at..at + 2, filter_of(name)));
            if word.text.ends_with('f') || word.text == "--file" {
                runs_file(name, words.get(at + 1), &mut verdict);
            }
            at += 1;
        } else if word.text == "--" {
            is_over = true;
        } else if !is_over && is_option(word) {
            has_script |= word.text.starts_with("--expression") || word.text.starts_with("--file");
            verdict.refused.push((at..at + 1, filter_of(name)));
        } else if !has_script {
            has_script = true;
            let end = if word.has_values() { words.len() } else { at + 1 };
            verdict.refused.push((at..end, filter_of(name)));
        } else if !is_over && word.text.starts_with('\0') && word.has_values() {
            let place = "where it may be read as an option of `sed`: write `--` before the files";
            verdict.refused.push((at..at + 1, Misplaced::new(place, Advice::Variable)));
        }
        at += 1;
    }
    verdict
}

/// A program that runs the command in its words.
fn wrapper(
    name: &str,
    (with_argument, operands): (&str, usize),
    words: &[Word],
    depth: usize,
) -> Verdict {
    let mut at = 1;
    let mut left = operands;
    let mut refused = Vec::new();
    let mut only_looks_up = false;
    while let Some(word) = words.get(at) {
        let takes_assignments = matches!(name, "env" | "sudo" | "doas");
        if word.text == "--" {
            at += 1;
            break;
        }
        if is_option(word) {
            let letters = letters(word);
            only_looks_up |= name == "command" && letters.contains(['v', 'V']);
            if word.has_values() || name == "env" && word.text.contains('S') {
                refused.push((at..words.len(), script_of(name)));
            }
            at += 1 + usize::from(letters.ends_with(|c| with_argument.contains(c)));
        } else if takes_assignments && word.assigns.is_some() {
            let assigned = word.assigns.as_deref().unwrap_or_default();
            if is_code_variable(assigned) {
                refused.push((at..at + 1, script_of(name)));
            }
            at += 1;
        } else if left > 0 {
            left -= 1;
            at += 1;
        } else {
            break;
        }
    }
    if only_looks_up || name == "type" {
        return Verdict { refused, ..Verdict::default() };
    }
    let is_missing = at >= words.len();
    let mut inner =
        if is_missing { Verdict::default() } else { Verdict::of_inner(words, at, depth) };
    if inner.refused.iter().any(|(range, _)| range.contains(&at)) && words[at].has_values() {
        inner.refused = vec![(at..words.len(), OTHER_COMMAND)];
    }
    if name == "xargs" {
        // Its input becomes words of the command.
        let evaluates =
            !inner.refused.is_empty() || inner.runs_input.is_some() || inner.lacks_command;
        inner.runs_input = evaluates.then(|| name.to_owned());
    } else if is_missing && STARTS_SHELL.contains(&name) {
        inner.runs_input = Some(name.to_owned());
    }
    refused.extend(inner.refused);
    let lacks_command = inner.lacks_command || is_missing && name != "xargs";
    Verdict { refused, lacks_command, ..inner }
}

/// Variables of make and targets are words; a makefile from the input is code.
fn make(name: &str, words: &[Word], depth: usize) -> Verdict {
    let is_input = |word: &Word| word.text == "-" || word.text.starts_with("/dev/");
    let runs_input = words[1..].iter().any(is_input).then(|| name.to_owned());
    let mut inner = other(name, words, depth);
    let files = ["makefile", "Makefile", "GNUmakefile"].map(|file| format!("file {file}"));
    inner.evaluated.extend(files);
    inner.evaluated.extend(words[1..].iter().filter_map(flow::file));
    Verdict { runs_input: runs_input.or(inner.runs_input), ..inner }
}

/// `find … -exec COMMAND … \;`
fn find(words: &[Word], depth: usize) -> Verdict {
    const EXEC: [&str; 9] =
        ["-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch", "--exec-dir"];
    let mut verdict = Verdict::default();
    let mut from = 1;
    while let Some(at) = words[from..].iter().position(|word| EXEC.contains(&&*word.text)) {
        let start = from + at + 1;
        let length = words[start..]
            .iter()
            .position(|word| matches!(&*word.text, ";" | "+"))
            .unwrap_or(words.len() - start);
        if length > 0 {
            let inner = Verdict::of_inner(&words[..start + length], start, depth);
            verdict.refused.extend(inner.refused);
            verdict.names.extend(inner.names);
            verdict.evaluated.extend(inner.evaluated);
            verdict.evaluates_reads |= inner.evaluates_reads;
            verdict.unclear = verdict.unclear.or(inner.unclear);
        }
        from = start + length;
    }
    verdict
}

fn git(words: &[Word]) -> Verdict {
    const RUNS: [&str; 9] = [
        "--exec",
        "-x",
        "bisect",
        "filter-branch",
        "foreach",
        "--upload-pack",
        "--receive-pack",
        "--extcmd",
        "--open-files-in-pager",
    ];
    const SETTINGS: [&str; 4] = ["-c", "--config-env", "--config", "--exec-path"];
    let option = |word: &Word| word.text.split('=').next().unwrap_or_default().to_owned();
    let is_setting = |word: &&Word| SETTINGS.contains(&&*option(word));
    let subcommand =
        words.iter().skip(1).position(|word| !is_option(word)).map_or(words.len(), |at| at + 1);
    let command = words.get(subcommand).map_or("", |word| &*word.text);
    // A value that names the setting of `git config`.
    let first_operand = words.iter().skip(subcommand + 1).find(|word| !is_option(word));
    let is_first_operand = |word: &Word| {
        word.has_values() && first_operand.is_some_and(|first| std::ptr::eq(first, word))
    };
    let is_short = |word: &Word| match command {
        "grep" => letters(word).contains('O'),
        "config" => !is_option(word) && sets_code(word) || is_first_operand(word),
        _ => false,
    };
    let runs = words.iter().position(|word| RUNS.contains(&&*option(word)) || is_short(word));
    let settings = words[..subcommand].iter().position(|word| is_setting(&word));
    if let Some(at) = settings.or(runs) {
        return Verdict::refusing(at..words.len(), filter_of("git"));
    }
    // Settings and programs for the new repository; the addresses after them are values.
    let takes_code = |word: &&Word| {
        let option = option(word);
        let is_clone =
            command == "clone" && (option == "-u" || option == "-c" || option == "--config");
        is_clone || matches!(command, "clone" | "init") && option == "--template"
    };
    let mut verdict = Verdict::default();
    for at in (0..words.len()).filter(|at| takes_code(&&words[*at])) {
        let end = if words[at].text.contains('=') { at + 1 } else { at + 2 };
        verdict.refused.push((at..end.min(words.len()), filter_of("git")));
    }
    verdict
}

/// The setting of git is a command, or says where settings and commands are.
fn sets_code(key: &Word) -> bool {
    const SECTIONS: [&str; 12] = [
        "alias",
        "browser",
        "core",
        "credential",
        "diff",
        "difftool",
        "filter",
        "gpg",
        "include",
        "includeif",
        "merge",
        "mergetool",
    ];
    const VARIABLES: [&str; 6] =
        ["cmd", "command", "proxycommand", "receivepack", "sshcommand", "uploadpack"];
    let key = key.text.to_ascii_lowercase();
    let section = key.split('.').next().unwrap_or_default();
    let variable = key.rsplit('.').next().unwrap_or_default();
    key.contains('.')
        && (SECTIONS.contains(&section) || VARIABLES.contains(&variable) || section == "pager")
}

/// A program that is not known: nothing in it is taken for code, unless it names an interpreter with
/// code for it.
fn other(name: &str, words: &[Word], depth: usize) -> Verdict {
    let mut verdict = Verdict::default();
    let short = SHORT_CODE_OPTIONS.iter().find(|(known, _)| *known == name).map(|(_, it)| *it);
    for (at, word) in words.iter().enumerate().skip(1) {
        let option = word.text.split('=').next().unwrap_or_default();
        if CODE_OPTIONS.contains(&option) || LONG_CODE_OPTIONS.contains(&(name, option)) {
            let end = if word.text.contains('=') { at + 1 } else { at + 2 };
            verdict.refused.push((at..end.min(words.len()), filter_of(name)));
            verdict.evaluates_reads = true;
        }
        let is_code = short.is_some_and(|short| letters(word).contains(|c| short.contains(c)));
        if is_code {
            verdict.refused.push((at..(at + 2).min(words.len()), filter_of(name)));
        }
        let Some(inner) = name_of(word) else { continue };
        let Some(kind) = kind(inner) else { continue };
        let rest = &words[at + 1..];
        let has_code = rest.iter().any(|word| letters(word).contains(['c', 'e']));
        let is_remote = inner == "ssh";
        if has_code && kind != Kind::Everything || is_remote {
            verdict.refused.push((at..words.len(), script_of(inner)));
            break;
        }
        if RUNNERS.contains(&name) {
            verdict.runs_input = interpreter(kind, inner, &words[at..], depth).runs_input;
        }
    }
    verdict
}
