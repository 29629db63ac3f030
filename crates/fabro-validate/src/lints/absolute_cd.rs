use std::collections::HashSet;

use fabro_graph::NodeKind;

use crate::checking::Checking;
use crate::findings::Findings;

/// Directories that each script may use: they are no checkout of the project.
const SHARED: [&str; 2] = ["/tmp", "/dev/shm"];

/// Reports a shell script that begins by leaving the working directory of the run for an absolute path: with a
/// worktree or a sandbox it would work on other files.
pub(super) fn check(checking: &Checking<'_>, findings: &mut Findings) {
    let mut seen = HashSet::new();
    for (_, node) in checking.of_kind(NodeKind::Command) {
        let Some(attr) = node.attrs.get("script") else { continue };
        let script = attr.value.text().unwrap_or_default();
        let Some(path) = absolute(script) else { continue };
        if seen.insert(attr.span) {
            let message = format!(
                "the script of `{}` begins with `cd {path}`: it leaves the working directory of the run, also in a worktree or a sandbox",
                node.id
            );
            let fix = "use a relative path: a script begins in the working directory of the run";
            findings.warning("absolute-cd", attr.span, message, fix);
        }
    }
}

/// The absolute path of a `cd` in the first line of code.
fn absolute(script: &str) -> Option<&str> {
    let mut lines = script.lines().map(str::trim);
    let first = lines
        .find(|line| !line.is_empty() && !line.starts_with('#') && !line.starts_with("set "))?;
    let rest = first.strip_prefix("cd ")?.trim_start();
    let rest = rest.strip_prefix("-- ").unwrap_or(rest).trim_start_matches(['"', '\'']);
    let end = rest.find(|c: char| c.is_whitespace() || "\"';&|".contains(c));
    let path = &rest[..end.unwrap_or(rest.len())];
    let is_shared = SHARED.iter().any(|folder| {
        path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    });
    (path.starts_with('/') && !is_shared).then_some(path)
}

#[cfg(test)]
mod tests {
    use crate::tests::support::reported;

    #[test]
    fn scripts_stay_in_the_working_directory() {
        let of = |script: &str| {
            reported("absolute-cd", &format!("start -> a -> exit; a [script=\"{script}\"]"))
        };
        insta::assert_snapshot!(of("cd /home/ann/shop && make"), @r#"
        1:43 warning: the script of `a` begins with `cd /home/ann/shop`: it leaves the working directory of the run, also in a worktree or a sandbox
          at: "cd /home/ann/shop && make"
          fix: use a relative path: a script begins in the working directory of the run
        "#);
        for script in ["# build\nset -e\ncd '/srv/a b'; ls", "cd -- /srv"] {
            assert_ne!(of(script), "nothing", "{script}");
        }
        for script in [
            "cd build && make",
            "cd /tmp && ls",
            "cd /tmp/x",
            "make && cd /srv",
            "cdrom /srv",
            "cd $HOME",
            "",
        ] {
            assert_eq!(of(script), "nothing", "{script}");
        }
    }
}
