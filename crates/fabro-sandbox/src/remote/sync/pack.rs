//! What is sent to the remote side: commands that remove files, and archives.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::scan::{at, has_gone, link_beneath, open_beneath};
use super::tree::{Name, Stamp, Tree};
use crate::remote::tar::{self, Header, Kind};

/// Commands that remove these, in the working directory of the shell.
pub(in crate::remote) fn removal(names: &[Name]) -> Vec<u8> {
    const TOGETHER: usize = 200;
    let mut text = Vec::new();
    for names in names.chunks(TOGETHER) {
        text.extend_from_slice(b"rm -rf --");
        for name in names {
            text.extend_from_slice(b" './");
            for byte in name {
                match byte {
                    b'\'' => text.extend_from_slice(br"'\''"),
                    other => text.push(*other),
                }
            }
            text.push(b'\'');
        }
        text.extend_from_slice(b" || end 125\n");
    }
    text
}

/// Writes an archive of these files of a directory. What has gone is left out: it is removed the next time.
pub(in crate::remote) fn pack(
    root: &Path,
    tree: &Tree,
    names: &[Name],
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut writer = tar::Writer::new(io::BufWriter::with_capacity(1 << 16, out));
    for name in names {
        let Some(stamp) = tree.get(name) else { continue };
        let Stamp { kind, mode, size, mtime, .. } = *stamp;
        let path_there = [b"./", &name[..]].concat();
        let header = |target| Header { path: path_there, kind, mode, size, mtime, target };
        match kind {
            Kind::File => {
                let file = match open_beneath(root, name) {
                    Err(error) if has_gone(&error) || error.kind() == ErrorKind::InvalidInput => {
                        continue;
                    }
                    file => file.map_err(|error| at(name, &error))?,
                };
                writer.add(&header(Vec::new()), file)?;
            }
            Kind::Link => {
                let target = match link_beneath(root, name) {
                    // It is no link any more.
                    Err(error) if has_gone(&error) || error.kind() == ErrorKind::InvalidInput => {
                        continue;
                    }
                    target => target.map_err(|error| at(name, &error))?,
                };
                let header = Header { size: 0, ..header(target) };
                writer.add(&header, io::empty())?;
            }
            _ => {
                // Else another user could not list the copy.
                let header = Header { mode: mode | 0o700, ..header(Vec::new()) };
                writer.add(&header, io::empty())?;
            }
        }
    }
    writer.finish()
}

/// Writes an archive of these files under other names.
pub(in crate::remote) fn pack_files(
    files: &BTreeMap<String, PathBuf>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut writer = tar::Writer::new(io::BufWriter::with_capacity(1 << 16, out));
    for (name, path) in files {
        let file = File::open(path)?;
        let found = file.metadata()?;
        let header = Header {
            path: name.as_bytes().to_owned(),
            kind: Kind::File,
            mode: 0o444,
            size: found.len(),
            mtime: u64::try_from(found.mtime()).unwrap_or(0),
            target: Vec::new(),
        };
        writer.add(&header, file)?;
    }
    writer.finish()
}
