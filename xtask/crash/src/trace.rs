//! What a driver wrote and synced, from a trace of its system calls by `strace`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

/// How `strace` has to be called, with the file that it writes after this.
pub(crate) const STRACE: [&str; 9] = [
    "strace",
    "-f",
    "-y",
    "-xx",
    "-s",
    "10000000",
    "-e",
    "trace=pwrite64,write,ftruncate,fdatasync,fsync",
    "-o",
];

/// Whether `strace` is there and may be used.
pub(crate) fn is_there() -> bool {
    let traced = Command::new("strace").args(["-o", "/dev/null", "true"]).output();
    traced.is_ok_and(|output| output.status.success())
}

/// A call, with the path of its file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// `pwrite64`.
    WriteAt { file: String, at: usize, bytes: Vec<u8> },
    /// `write`.
    Write { file: String, bytes: Vec<u8> },
    /// `ftruncate`.
    Truncate { file: String, size: usize },
    /// `fsync` or `fdatasync`, which has ended; the calls before `begun` are on the disk.
    Synced { file: String, begun: usize },
}

/// The calls of a trace, in the order in which they began; syncs, in which they ended. Others are left out.
///
/// # Errors
///
/// A write has no bytes that can be read.
pub(crate) fn calls(trace: &str) -> Result<Vec<Call>> {
    let mut calls = Vec::new();
    let mut syncs = BTreeMap::new();
    for line in trace.lines() {
        let Some((process, call)) = line.split_once(' ') else { continue };
        let call = call.trim_start();
        if call.starts_with("<... ") {
            // Only the ends of syncs matter.
            calls.extend(syncs.remove(process));
            continue;
        }
        let Some((name, arguments)) = call.split_once('(') else { continue };
        let Some((file, rest)) = file(arguments) else { continue };
        match name {
            "fsync" | "fdatasync" => {
                let synced = Call::Synced { file, begun: calls.len() };
                if rest.contains("<unfinished") {
                    syncs.insert(process.to_owned(), synced);
                } else {
                    calls.push(synced);
                }
            }
            "ftruncate" => calls.extend(number(rest, 1).map(|size| Call::Truncate { file, size })),
            "write" | "pwrite64" => {
                let mut parts = rest.splitn(3, '"').skip(1);
                let (text, rest) = (parts.next().unwrap_or_default(), parts.next());
                let rest = rest.with_context(|| format!("`{call}` has no bytes"))?;
                let bytes = unescaped(text).with_context(|| format!("`{text}` are no bytes"))?;
                if name == "write" {
                    calls.push(Call::Write { file, bytes });
                } else {
                    calls.extend(number(rest, 2).map(|at| Call::WriteAt { file, at, bytes }));
                }
            }
            _ => {}
        }
    }
    Ok(calls)
}

/// The path of the file in `9<\x2f\x74>, more`, and what follows it.
fn file(arguments: &str) -> Option<(String, &str)> {
    let (path, rest) = arguments.split_once('<')?.1.split_once('>')?;
    let path = unescaped(path)
        .map_or_else(|| path.to_owned(), |path| String::from_utf8_lossy(&path).into_owned());
    Some((path, rest))
}

/// The number after so many commas.
fn number(arguments: &str, commas: usize) -> Option<usize> {
    let text = arguments.split(',').nth(commas)?.trim_start();
    let end = text.find(|it: char| !it.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

/// The bytes in `\x2f\x74`.
fn unescaped(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4);
    let mut rest = text;
    while let Some(hex) = rest.strip_prefix("\\x") {
        bytes.push(u8::from_str_radix(hex.get(..2)?, 16).ok()?);
        rest = &hex[2..];
    }
    rest.is_empty().then_some(bytes)
}

/// The name of a file within a store. A new database is written in a directory of its own and then linked.
pub(crate) fn in_store(file: &str, store: &Path) -> Option<String> {
    let name = Path::new(file).strip_prefix(store).ok()?.to_str()?;
    match name.strip_prefix(".new-").and_then(|name| name.split_once('/')) {
        Some((_, name)) => Some(name.to_owned()),
        None => Some(name.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_read_from_a_trace() {
        let trace = r#"12 pwrite64(9<\x2f\x61>, "\x01\x02"..., 2, 32) = 2
13 write(1<pipe:[5]>, "\x7b\x7d", 2 <unfinished ...>
12 fdatasync(9<\x2f\x61> <unfinished ...>
13 <... write resumed>) = 2
13 ftruncate(9<\x2f\x61>, 70) = 0
12 <... fdatasync resumed>) = 0
12 fsync(9<\x2f\x61>) = 0
12 +++ exited with 0 +++
"#;
        let file = || "/a".to_owned();
        let bytes = |bytes: &[u8]| bytes.to_vec();
        let expected = [
            Call::WriteAt { file: file(), at: 32, bytes: bytes(&[1, 2]) },
            Call::Write { file: "pipe:[5]".to_owned(), bytes: bytes(b"{}") },
            Call::Truncate { file: file(), size: 70 },
            Call::Synced { file: file(), begun: 2 },
            Call::Synced { file: file(), begun: 4 },
        ];
        assert_eq!(calls(trace).unwrap(), expected);
        assert!(calls("12 write(1<x>, 0x7f, 5) = 5").is_err());
    }

    #[test]
    fn a_new_database_has_the_name_that_it_gets() {
        let name = |file| in_store(file, Path::new("/s"));
        assert_eq!(name("/s/.new-x1/fabro.db").as_deref(), Some("fabro.db"));
        assert_eq!(name("/s/heads/R").as_deref(), Some("heads/R"));
        assert_eq!(name("/other/fabro.db"), None);
    }
}
