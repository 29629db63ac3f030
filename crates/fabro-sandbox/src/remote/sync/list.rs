//! The list of a copy, which a program of the remote side prints.

use std::io;
use std::path::Path;

use super::rules::{OWN_NAMES, Rules};
use super::tree::{MOST, Name, Stamp, Tree};
use crate::remote::program::quote;
use crate::remote::tar::Kind;

/// The most bytes of a list of them.
pub(in crate::remote) const LIST_BYTES: u64 = 256 << 20;

/// The last record of a list: without it the list is not whole, and what it does not name may still be there.
const LIST_END: &[u8] = b"end";

/// The record after a list that is not whole, before it is made again.
const LIST_AGAIN: &[u8] = b"again";

/// How often a list is made until it is whole.
const LISTS: usize = 5;

/// Prints the state of files for `find`. A file that has vanished since it was found is passed over: it is not there, and
/// its directory can be searched, or is gone too. Every other failure of `stat` makes the list one that is not whole.
const STAT: &str = r#"stat -c "%f %s %Y %Z %i %n" "$@" 2>/dev/null && exit 0
v=
for f; do
[ -e "$f" ] || [ -L "$f" ] && continue
d="${f%/*}"
[ -x "$d" ] || [ ! -e "$d" ] || exit 1
v=1
done
[ "$v" ]"#;

/// A program that lists the copy, after the working directory of the shell has been set. It prints [`LIST_END`] only where
/// all of it could be read.
///
/// The `find` of others than GNU fails when a directory vanishes while it reads, so that the list is made again.
pub(in crate::remote) fn list_program(rules: &Rules, root: &Path) -> Vec<u8> {
    // In a pattern of `find` some characters are special.
    let pattern = |name: &str| {
        let escaped = name
            .chars()
            .flat_map(|it| "*?[]\\".contains(it).then_some('\\').into_iter().chain([it]));
        quote(&escaped.collect::<String>())
    };
    let own = OWN_NAMES.map(|name| format!("-path ./.fabro/{name}"));
    let mut prune = own.join(" -o ");
    for name in &rules.exclude {
        prune.push_str(" -o -name ");
        prune.push_str(&pattern(name));
    }
    for name in rules.hidden_in(root) {
        // A name that is no text is refused when it comes back.
        if let Ok(name) = str::from_utf8(&name) {
            prune.push_str(" -o -path ");
            prune.push_str(&pattern(&format!("./{name}")));
        }
    }
    format!(
        "if find . -ignore_readdir_race -prune -printf x >/dev/null 2>&1; then\n\
         find . -ignore_readdir_race -mindepth 1 \\( {prune} \\) -prune -o \
         -printf '%y %m %s %T@ %C@ %i %P\\0' 2>/dev/null && printf 'end\\0'\n\
         else\n\
         echo\n\
         n=1\n\
         until find . \\( {prune} -o -name '*\n*' \\) -prune -o -exec sh -c {stat} sh {{}} + 2>/dev/null; do\n\
         [ $n -lt {LISTS} ] || exit 0\n\
         n=$((n+1))\n\
         echo again\n\
         done\n\
         echo end\n\
         fi\n",
        stat = quote(STAT),
    )
    .into_bytes()
}

/// Reads what such a program printed; what is not as it should be is left out.
pub(in crate::remote) fn parse_list(text: &[u8]) -> io::Result<Tree> {
    if text.len() as u64 >= LIST_BYTES {
        return Err(io::Error::other("the copy has too many files"));
    }
    let (end, is_raw) = match text.first() {
        Some(b'\n') => (b'\n', true),
        _ => (b'\0', false),
    };
    let records = text.strip_suffix(&[end]).unwrap_or_default();
    if records.rsplit(|byte| *byte == end).next() != Some(LIST_END) {
        return Err(io::Error::other(
            "the copy cannot be read whole, so nothing is copied back: make its directories readable (chmod)",
        ));
    }
    let mut tree = Tree::new();
    for line in records.split(|byte| *byte == end) {
        if is_raw && line == LIST_AGAIN {
            tree.clear();
        }
        tree.extend(parse_entry(line, is_raw));
    }
    if tree.len() > MOST {
        return Err(io::Error::other(format!("the copy has more than {MOST} files")));
    }
    Ok(tree)
}

fn parse_entry(line: &[u8], is_raw: bool) -> Option<(Name, Stamp)> {
    let mut fields = line.splitn(if is_raw { 6 } else { 7 }, |byte| *byte == b' ');
    let mut text = || str::from_utf8(fields.next()?).ok();
    let (kind, mode) = if is_raw {
        let mode = u32::from_str_radix(text()?, 16).ok()?;
        let kind = match mode & 0o170_000 {
            0o100_000 => Kind::File,
            0o040_000 => Kind::Directory,
            0o120_000 => Kind::Link,
            _ => return None,
        };
        (kind, mode)
    } else {
        let kind = match text()? {
            "f" => Kind::File,
            "d" => Kind::Directory,
            "l" => Kind::Link,
            _ => return None,
        };
        (kind, u32::from_str_radix(text()?, 8).ok()?)
    };
    let size = text()?.parse().ok()?;
    let mtime = text()?;
    // Before 1970 it is negative.
    let seconds = mtime.split('.').next()?.parse::<i64>().ok()?;
    let seconds = u64::try_from(seconds).unwrap_or(0);
    let detail = format!("{mtime} {} {}", text()?, text()?);
    let path = fields.next()?;
    let path = path.strip_prefix(b"./").unwrap_or(path);
    let is_path = |part: &[u8]| !part.is_empty() && part != b"." && part != b"..";
    if !path.split(|byte| *byte == b'/').all(is_path) {
        return None;
    }
    let stamp = match kind {
        Kind::Directory => {
            Stamp { kind, mode: mode & 0o777, size: 0, mtime: 0, detail: String::new() }
        }
        _ => Stamp { kind, mode: mode & 0o777, size, mtime: seconds, detail },
    };
    Some((path.to_owned(), stamp))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::PathBuf;

    use super::*;

    fn listed(text: &[u8]) -> Result<Vec<String>, String> {
        let tree = parse_list(text).map_err(|error| error.to_string())?;
        Ok(tree.keys().map(|name| String::from_utf8_lossy(name).into_owned()).collect())
    }

    /// Else a directory that cannot be read would look like one that was removed, and be removed here.
    #[test]
    fn a_list_that_is_not_whole_is_refused() {
        let record = b"f 644 1 1.0 1.0 7 end\0";
        assert_eq!(listed(&[&record[..], b"end\0"].concat()).unwrap(), ["end"]);
        assert_eq!(listed(b"end\0").unwrap(), [""; 0]);
        assert_eq!(listed(b"f 644 1 -31536000.5 1.0 7 old\0end\0").unwrap(), ["old"]);
        assert_eq!(listed(b"\n81a4 1 1 1 7 ./end\nend\n").unwrap(), ["end"]);
        for text in [&record[..], b"", b"\n", b"\n81a4 1 1 1 7 ./end\n", b"end"] {
            assert!(listed(text).unwrap_err().contains("cannot be read whole"), "{text:?}");
        }
    }

    #[test]
    fn nothing_comes_back_to_what_is_hidden() {
        let rules = Rules {
            exclude: Vec::new(),
            hidden: ["/w/my[store", "/w/sub/store", "/elsewhere", "/w"].map(PathBuf::from).to_vec(),
            write_git: false,
        };
        let hidden = rules.hidden_in(Path::new("/w"));
        let check = |name: &str, expected: bool| {
            assert_eq!(rules.comes_back(name.as_bytes(), &hidden), expected, "{name}");
        };
        check("my[store", false);
        check("my[store/fabro.db", false);
        check("my[stores", true);
        check("sub/store/runs/1", false);
        check("sub", true);
        check("elsewhere", true);
        check("sub/fabro.toml", false);
        check("AGENTS.md", false);
        check(".claude/skills/x/SKILL.md", false);
        check("sub/.git/config", false);
        let program = String::from_utf8(list_program(&rules, Path::new("/w"))).unwrap();
        assert!(program.contains(r"-path './my\[store'"), "{program}");
    }

    #[test]
    fn the_program_says_whether_the_list_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a"), "x").unwrap();
        let rules = Rules { exclude: Vec::new(), hidden: Vec::new(), write_git: false };
        let program = String::from_utf8(list_program(&rules, dir.path())).unwrap();
        let list = |program: &str| {
            let mut shell = std::process::Command::new("sh");
            shell.arg("-c").arg(program).current_dir(dir.path()).output().unwrap().stdout
        };
        assert_eq!(listed(&list(&program)).unwrap(), ["a"]);
        let broken = program.replace("-mindepth 1", "-mindepth 1 missing");
        assert!(broken != program && listed(&list(&broken)).is_err());
    }

    /// `sh`, `find` and `stat` of busybox, and what a script does whenever files are looked at.
    #[track_caller]
    fn check_without_gnu(when_looked_at: &str, expect: Result<&[&str], &str>) {
        let Some(busybox) =
            ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|it| Path::new(it).exists())
        else {
            eprintln!("skipped: busybox is not installed");
            return;
        };
        let dir = tempfile::tempdir().unwrap();
        let work = dir.path().join("work");
        let bin = dir.path().join("bin");
        for made in [&work.join("sub"), &bin] {
            fs::create_dir_all(made).unwrap();
        }
        for name in ["a", "b", "sub/c"] {
            fs::write(work.join(name), "x").unwrap();
        }
        for name in ["sh", "find", "rm", "touch"] {
            std::os::unix::fs::symlink(busybox, bin.join(name)).unwrap();
        }
        let stat = format!("#!{busybox} sh\n{when_looked_at}\nexec {busybox} stat \"$@\"\n");
        fs::write(bin.join("stat"), stat).unwrap();
        fs::set_permissions(bin.join("stat"), fs::Permissions::from_mode(0o755)).unwrap();
        let rules = Rules { exclude: Vec::new(), hidden: Vec::new(), write_git: false };
        let mut shell = std::process::Command::new(bin.join("sh"));
        // The shell of busybox prefers its own programs to those of the `PATH`.
        let stat = format!("{} -c", bin.join("stat").display());
        let program =
            String::from_utf8(list_program(&rules, &work)).unwrap().replace("stat -c", &stat);
        shell.arg("-c").arg(program);
        let output = shell.current_dir(&work).env("PATH", &bin).output().unwrap();
        match (listed(&output.stdout), expect) {
            (Ok(names), Ok(expect)) => assert_eq!(names, expect),
            (Err(error), Err(expect)) => assert!(error.contains(expect), "{error}"),
            (found, _) => panic!("{found:?}: {}", String::from_utf8_lossy(&output.stdout)),
        }
    }

    #[test]
    fn files_may_vanish_while_they_are_listed_without_gnu() {
        check_without_gnu("", Ok(&["a", "b", "sub", "sub/c"]));
        check_without_gnu("rm -f b", Ok(&["a", "sub", "sub/c"]));
        check_without_gnu("rm -rf sub", Ok(&["a", "b"]));
        // Another failure may hide what is there still.
        check_without_gnu("exit 1", Err("cannot be read whole"));
        let once = "test -e ../once || { touch ../once; exit 1; }";
        check_without_gnu(once, Ok(&["a", "b", "sub", "sub/c"]));
    }
}
