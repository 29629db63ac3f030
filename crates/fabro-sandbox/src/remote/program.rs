//! The programs that the other side runs: text for a POSIX shell, which gets it by its standard input. So nothing of
//! them, variables least of all, stands in a command line.

use std::fmt::Write as _;

use crate::Language;
use crate::script::PYTHON_FROM_FILE;

/// What a shell of the other side is started with: it reads a program of lines that begin with `x`, up to a line with a
/// dot. It reads no byte more, so that the program can read what follows. A program that is cut off does not run.
pub(super) const BOOT: &str = "n=$(printf \"\\n_\");n=${n%_};p=;while IFS= read -r l;do case $l in \
     x*)p=$p${l#x}$n;;.)eval \"$p\";exit;;*)exit 125;;esac;done;exit 125";

const PRELUDE: &str = include_str!("prelude.sh");

/// Longer scripts are not passed as an argument but in a file.
const ARGUMENT_BYTES: usize = 64 * 1024;

/// A word of a shell.
pub(super) fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The program as [`BOOT`] reads it.
pub(super) fn encoded(program: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(program.len() + program.len() / 16 + 8);
    for line in program.split(|byte| *byte == b'\n') {
        text.push(b'x');
        text.extend_from_slice(line);
        text.push(b'\n');
    }
    text.extend_from_slice(b".\n");
    text
}

/// Where programs of a run keep what they know of each other.
#[derive(Clone, Debug)]
pub(super) struct ProgramDir {
    /// The directory.
    pub(super) base: String,
    /// Every process there belongs to the run.
    pub(super) is_own: bool,
}

impl ProgramDir {
    /// A program that others know of while it runs.
    pub(super) fn program(&self, id: &str, body: &str) -> String {
        let [head, tail] = self.around(id);
        [&head, body, &tail].concat()
    }

    /// What stands before such a program and behind it.
    pub(super) fn around(&self, id: &str) -> [String; 2] {
        let base = quote(&self.base);
        let all = u8::from(self.is_own);
        let lines = PRELUDE.lines().filter(|line| !line.trim_start().starts_with('#'));
        let prelude = lines.collect::<Vec<_>>().join("\n");
        [format!("base={base}\nid={id}\nall={all}\n{prelude}\nbegin\n"), "\nend 0".to_owned()]
    }
}

/// A script that is to be run.
pub(super) struct Script<'a> {
    pub(super) text: &'a str,
    pub(super) language: Language,
    pub(super) cwd: &'a str,
    pub(super) env: &'a [(String, String)],
    /// The file that it reads from its standard input.
    pub(super) stdin: Option<&'a str>,
    /// Both streams are one.
    pub(super) is_merged: bool,
}

impl Script<'_> {
    /// What the program reads after itself.
    pub(super) fn input(&self) -> &str {
        if self.is_long() { self.text } else { "" }
    }

    fn is_long(&self) -> bool {
        self.text.len() > ARGUMENT_BYTES
    }

    /// The program that runs it, ends what it leaves, and records its exit code: the connection may end before it arrives.
    /// [`forget`] or [`status`] removes the record.
    pub(super) fn program(&self) -> String {
        let mut text = String::from("trap : TERM HUP INT\n");
        text.push_str(if self.is_long() {
            "cat >\"$dir/script\" || end 125\n"
        } else {
            "exec </dev/null\n"
        });
        // A shell may report a signal that killed its program, which is no output of the script.
        text.push_str("exec 3>&2 2>/dev/null\n(\n");
        text.push_str(if self.is_merged { "exec 2>&1 3>&-\n" } else { "exec 2>&3 3>&-\n" });
        let cwd = quote(self.cwd);
        let _ =
            writeln!(text, "cd {cwd} 2>/dev/null || {{ echo cwd >\"$dir/status\"; exit 127; }}");
        text.push_str(
            "if [ \"$all\" = 1 ] && ! [ -w \"${HOME:-/nowhere}\" ]; then\n\
             export HOME=/tmp/home; mkdir -p \"$HOME\"\nfi\n",
        );
        if let Some(stdin) = self.stdin {
            let _ = writeln!(text, "exec <{}", quote(stdin));
        }
        for (name, value) in self.env {
            let _ = writeln!(text, "export {name}={}", quote(value));
        }
        text.push_str("export FABRO_SCRIPT=\"$id\"\n");
        let argument = match (self.is_long(), self.language) {
            (false, _) => format!("-c {}", quote(self.text)),
            (true, Language::Shell) => "\"$dir/script\"".to_owned(),
            (true, Language::Python) => format!("-c {} \"$dir/script\"", quote(PYTHON_FROM_FILE)),
        };
        let start = match self.language {
            Language::Shell => format!(
                "if command -v bash >/dev/null 2>&1; then exec bash {argument}; fi\nexec sh {argument}"
            ),
            Language::Python => format!(
                "command -v python3 >/dev/null 2>&1 || \
                 {{ echo missing >\"$dir/status\"; exit 127; }}\nexec python3 {argument}"
            ),
        };
        text.push_str(&start);
        text.push_str(
            "\n)\ncode=$?\nend_left $$ \"$id\"\n\
             if [ -n \"$blind\" ]; then echo left >\"$dir/status\"; exit 125; fi\n\
             [ -e \"$dir/status\" ] || echo \"$code\" >\"$dir/status\"\n\
             [ \"$code\" != 0 ] || rm -f \"$dir/pid\" \"$dir/script\"\nexit \"$code\"",
        );
        text
    }
}

/// Asks the script of this name to end. It is ended too if it has not begun yet.
pub(super) fn ask_to_end(id: &str) -> String {
    format!(
        "other=$base/{id}\nmkdir -p \"$other\"; : >\"$other/stop\"\n\
         if {{ read -r keep <\"$other/pid\"; }} 2>/dev/null; then\n\
         find_left \"$keep\" {id}; send TERM; send CONT\nfi"
    )
}

/// Kills what is left of the script of this name, and forgets it.
pub(super) fn kill(id: &str) -> String {
    format!(
        "other=$base/{id}\nmkdir -p \"$other\"; : >\"$other/stop\"\n\
         if {{ read -r pid <\"$other/pid\"; }} 2>/dev/null; then\n\
         kill_left \"$pid\" {id}; [ -z \"$blind\" ] || end 125\nfi\n\
         rm -rf \"$other\""
    )
}

/// Kills what is left of all scripts, and does not end the program.
pub(super) const KILL_ALL: &str = "for other in \"$base\"/*; do\n\
    [ \"$other\" = \"$dir\" ] && continue\n\
    if { read -r pid <\"$other/pid\"; } 2>/dev/null; then kill_left \"$pid\" \"${other##*/}\"; fi\n\
    rm -rf \"$other\"\ndone\n";

/// Prints what is known of a script whose client has ended: its exit code, `running`, `killed`, `left` when what it has
/// started cannot be ended, or nothing.
pub(super) fn status(id: &str) -> String {
    format!(
        "other=$base/{id}\nif {{ read -r code <\"$other/status\"; }} 2>/dev/null; then\n\
         echo \"$code\"; rm -rf \"$other\"\n\
         elif {{ read -r pid <\"$other/pid\"; }} 2>/dev/null; then\n\
         if [ -d \"/proc/$pid\" ]; then echo running; else echo killed; fi\nfi"
    )
}

/// Removes the records of scripts that have succeeded.
pub(super) fn forget(ids: &[String]) -> String {
    let mut text = String::new();
    for id in ids {
        let _ = writeln!(text, "rm -rf \"$base/{id}\"");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::call::at_once;

    /// The connection may end before the exit code arrives, so it is recorded, also where it is 0.
    #[test]
    fn an_exit_code_is_known_afterwards() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("base").display().to_string();
        let place = ProgramDir { base, is_own: false };
        let shell = |id: &str, body: &str| {
            let mut shell = std::process::Command::new("sh");
            let program = place.program(id, body);
            let output = at_once(shell.args(["-c", BOOT]), program.as_bytes()).unwrap();
            let text = String::from_utf8(output.stdout).unwrap().trim().to_owned();
            (output.status.code(), text)
        };
        let run = |id: &str, text: &str| {
            let cwd = dir.path().to_str().unwrap();
            let script = Script {
                text,
                language: Language::Shell,
                cwd,
                env: &[],
                stdin: None,
                is_merged: false,
            };
            shell(id, &script.program()).0
        };
        let known = |id: &str| shell("asks", &status(id)).1;
        assert_eq!((run("a", "exit 0"), known("a")), (Some(0), "0".to_owned()));
        assert_eq!((run("b", "exit 7"), known("b")), (Some(7), "7".to_owned()));
        assert_eq!((run("c", "kill -9 $PPID"), known("c")), (None, "killed".to_owned()));
        assert_eq!(known("never started"), "");
        assert_eq!(run("d", "true"), Some(0));
        shell("forgets", &forget(&["c".to_owned(), "d".to_owned()]));
        assert_eq!(std::fs::read_dir(&place.base).unwrap().count(), 0);
    }
}
