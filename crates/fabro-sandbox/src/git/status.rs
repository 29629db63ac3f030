//! Reading `git status --porcelain=v2 -z --branch`.

use crate::git::GitError;

pub(crate) const ARGUMENTS: [&str; 7] = [
    "--porcelain=v2",
    "-z",
    "--branch",
    "--no-ahead-behind",
    "--no-renames",
    "--untracked-files=all",
    "--ignore-submodules=dirty",
];

/// What differs from the commit.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Status {
    /// The commit; absent before the first one.
    pub(crate) head: Option<String>,
    /// The paths that differ, from the top of the work tree, and whether each is a repository of its
    /// own.
    pub(crate) entries: Vec<(Vec<u8>, bool)>,
}

pub(crate) fn parse(output: &[u8]) -> Result<Status, GitError> {
    let mut status = Status::default();
    let mut records = output.split(|byte| *byte == 0).filter(|record| !record.is_empty());
    while let Some(record) = records.next() {
        let unknown = || {
            let start = String::from_utf8_lossy(&record[..record.len().min(200)]);
            GitError::UnexpectedOutput("status", start.into_owned())
        };
        // How many fields stand before the path.
        let fields = match record[0] {
            b'#' => {
                if let Some(id) = record.strip_prefix(b"# branch.oid ") {
                    let id = String::from_utf8_lossy(id).into_owned();
                    status.head = Some(id).filter(|id| id != "(initial)");
                }
                continue;
            }
            b'1' => 8,
            b'2' => {
                // A renamed path is followed by its old name.
                let old = records.next().ok_or_else(unknown)?;
                status.entries.push((old.to_owned(), false));
                9
            }
            b'u' => 10,
            b'?' => 1,
            _ => return Err(unknown()),
        };
        let parts: Vec<_> = record.splitn(fields + 1, |byte| *byte == b' ').collect();
        let path = *parts.get(fields).ok_or_else(unknown)?;
        // The third field marks submodules, where there are fields.
        let is_submodule = fields > 1 && parts[2].starts_with(b"S");
        // A repository among the untracked files is listed as a directory.
        let directory = path.strip_suffix(b"/");
        let is_repository = is_submodule || directory.is_some();
        status.entries.push((directory.unwrap_or(path).to_owned(), is_repository));
    }
    Ok(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(output: &str, expect: &str) {
        let shown = match parse(output.replace('|', "\0").as_bytes()) {
            Err(error) => error.to_string(),
            Ok(status) => {
                let entries = status.entries.iter().map(|(path, is_repository)| {
                    let mark = if *is_repository { "*" } else { "" };
                    format!(" {:?}{mark}", String::from_utf8_lossy(path))
                });
                status.head.unwrap_or_default() + &entries.collect::<String>()
            }
        };
        assert_eq!(shown, expect);
    }

    #[test]
    fn entries_are_read() {
        check("# branch.oid (initial)|# branch.head main|", "");
        check("# branch.oid ab12|? a b\nc|? nested/|", "ab12 \"a b\\nc\" \"nested\"*");
        check("1 .M N... 100644 100644 100644 a b with blanks.txt|", " \"with blanks.txt\"");
        check("1 .M S.M. 160000 160000 160000 a b sub|", " \"sub\"*");
        check("2 R. N... 1 1 1 a b R100 new|old|", " \"old\" \"new\"");
        check("u UU N... 1 1 1 1 a b c both.txt|", " \"both.txt\"");
    }

    #[test]
    fn what_is_unknown_is_an_error() {
        check("x y|", "git status answered what cannot be read: x y");
        check("1 .M N...|", "git status answered what cannot be read: 1 .M N...");
        check(
            "2 R. N... 1 1 1 a b R100 new",
            "git status answered what cannot be read: 2 R. N... 1 1 1 a b R100 new",
        );
    }
}
