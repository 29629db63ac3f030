//! The archives that `tar` of the other side reads and writes: as much of the format as the usual ones have in common.

use std::io::{self, ErrorKind, Read, Write};

const BLOCK: usize = 512;

/// The longest name or link target that is read, in bytes; Linux takes 4096.
const LONGEST: u64 = 64 << 10;

/// What one entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Directory,
    /// To the path that is the target of the entry.
    Link,
    /// The same file as an earlier entry, whose name is the target of this one.
    Same,
    Other,
}

/// The header of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) path: Vec<u8>,
    pub(super) kind: Kind,
    pub(super) mode: u32,
    pub(super) size: u64,
    /// In seconds since 1970.
    pub(super) mtime: u64,
    pub(super) target: Vec<u8>,
}

/// Writes entries.
pub(super) struct Writer<W: Write> {
    out: W,
}

impl<W: Write> Writer<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out }
    }

    /// Adds an entry with exactly `header.size` bytes of content: what is missing is zeros, and what is too much is left
    /// out, for a file may change while it is read.
    pub(super) fn add(&mut self, header: &Header, content: impl Read) -> io::Result<()> {
        for (kind, text) in [(b'L', &header.path), (b'K', &header.target)] {
            if text.len() > 99 {
                let size = text.len() as u64 + 1;
                self.out.write_all(&block(b"././@LongLink", b"", kind, 0, size, 0))?;
                self.content(io::Cursor::new([text, &b"\0"[..]].concat()), size)?;
            }
        }
        let kind = match header.kind {
            Kind::File => b'0',
            Kind::Directory => b'5',
            Kind::Link => b'2',
            Kind::Same => b'1',
            Kind::Other => return Err(ErrorKind::InvalidInput.into()),
        };
        let Header { path, target, mode, size, mtime, .. } = header;
        self.out.write_all(&block(path, target, kind, *mode, *size, *mtime))?;
        self.content(content, header.size)
    }

    fn content(&mut self, content: impl Read, size: u64) -> io::Result<()> {
        let written = io::copy(&mut content.take(size), &mut self.out)?;
        let padded = size.next_multiple_of(BLOCK as u64);
        io::copy(&mut io::repeat(0).take(padded - written), &mut self.out)?;
        Ok(())
    }

    pub(super) fn finish(mut self) -> io::Result<()> {
        self.out.write_all(&[0; 2 * BLOCK])?;
        self.out.flush()
    }
}

fn block(path: &[u8], target: &[u8], kind: u8, mode: u32, size: u64, mtime: u64) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, bytes: &[u8], most: usize| {
        let count = bytes.len().min(most);
        block[at..at + count].copy_from_slice(&bytes[..count]);
    };
    put(0, path, 99);
    put(100, &number(u64::from(mode & 0o7777), 8), 8);
    put(108, &number(0, 8), 8);
    put(116, &number(0, 8), 8);
    put(124, &number(size, 12), 12);
    put(136, &number(mtime, 12), 12);
    put(148, b"        ", 8);
    put(156, &[kind], 1);
    put(157, target, 99);
    put(257, b"ustar  \0", 8);
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

/// A number in octal digits, or in binary where it has too many.
fn number(value: u64, width: usize) -> Vec<u8> {
    let text = format!("{value:0digits$o}\0", digits = width - 1);
    if text.len() == width {
        return text.into_bytes();
    }
    let mut bytes = vec![0; width];
    bytes[0] = 0x80;
    bytes[width - 8..].copy_from_slice(&value.to_be_bytes());
    bytes
}

/// Reads entries; nothing that an archive says is trusted.
pub(super) struct Reader<R: Read> {
    input: R,
    /// Of the content of the last entry, and its padding.
    left: u64,
    padding: u64,
    /// The last block was one of the zeros at the end of an archive.
    has_ended: bool,
}

impl<R: Read> Reader<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, left: 0, padding: 0, has_ended: false }
    }

    /// The next entry; its content can then be read. `None` at the end of the last archive, for several may follow each
    /// other.
    pub(super) fn next(&mut self) -> io::Result<Option<Header>> {
        let mut long = Extended::default();
        loop {
            let rest = self.left + self.padding;
            if io::copy(&mut (&mut self.input).take(rest), &mut io::sink())? < rest {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            (self.left, self.padding) = (0, 0);
            let Some(block) = self.block()? else {
                return if self.has_ended {
                    Ok(None)
                } else {
                    Err(ErrorKind::UnexpectedEof.into())
                };
            };
            self.has_ended = block.iter().all(|byte| *byte == 0);
            if self.has_ended {
                continue;
            }
            let (header, kind) = parse(&block)?;
            self.expect(header.size)?;
            match kind {
                b'L' => long.path = Some(until_nul(&self.text()?).to_owned()),
                b'K' => long.target = Some(until_nul(&self.text()?).to_owned()),
                b'x' => long.read(&self.text()?),
                b'g' => {}
                _ => return self.complete(header, long).map(Some),
            }
        }
    }

    /// The next block; `None` at the end of the input.
    fn block(&mut self) -> io::Result<Option<[u8; BLOCK]>> {
        let mut bytes = Vec::with_capacity(BLOCK);
        (&mut self.input).take(BLOCK as u64).read_to_end(&mut bytes)?;
        match <[u8; BLOCK]>::try_from(bytes) {
            Ok(block) => Ok(Some(block)),
            Err(bytes) if bytes.is_empty() => Ok(None),
            Err(_) => Err(ErrorKind::UnexpectedEof.into()),
        }
    }

    fn complete(&mut self, mut header: Header, long: Extended) -> io::Result<Header> {
        header.path = long.path.unwrap_or(header.path);
        header.target = long.target.unwrap_or(header.target);
        header.size = long.size.unwrap_or(header.size);
        if header.kind != Kind::File {
            header.size = 0;
        }
        self.expect(header.size)?;
        Ok(header)
    }

    fn expect(&mut self, size: u64) -> io::Result<()> {
        let padded = size.checked_next_multiple_of(BLOCK as u64);
        let padded = padded.filter(|size| *size < u64::MAX / 2).ok_or_else(broken)?;
        (self.left, self.padding) = (size, padded - size);
        Ok(())
    }

    fn text(&mut self) -> io::Result<Vec<u8>> {
        if self.left > LONGEST {
            return Err(broken());
        }
        let mut text = Vec::new();
        self.read_to_end(&mut text)?;
        Ok(text)
    }
}

impl<R: Read> Read for Reader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = (&mut self.input).take(self.left).read(buffer)?;
        if count == 0 && self.left > 0 && !buffer.is_empty() {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.left -= count as u64;
        Ok(count)
    }
}

/// What comes before a header that is too small for it.
#[derive(Default)]
struct Extended {
    path: Option<Vec<u8>>,
    target: Option<Vec<u8>>,
    size: Option<u64>,
}

impl Extended {
    /// Records of `LENGTH KEY=VALUE\n`.
    fn read(&mut self, mut text: &[u8]) {
        while let Some(space) = text.iter().position(|byte| *byte == b' ') {
            let length = str::from_utf8(&text[..space]).ok().and_then(|it| it.parse().ok());
            let Some(length) = length.filter(|it| (space + 2..=text.len()).contains(it)) else {
                return;
            };
            let record = &text[space + 1..length - 1];
            text = &text[length..];
            let Some(equals) = record.iter().position(|byte| *byte == b'=') else { continue };
            let value = &record[equals + 1..];
            match &record[..equals] {
                b"path" => self.path = Some(value.to_owned()),
                b"linkpath" => self.target = Some(value.to_owned()),
                b"size" => self.size = str::from_utf8(value).ok().and_then(|it| it.parse().ok()),
                _ => {}
            }
        }
    }
}

fn parse(block: &[u8; BLOCK]) -> io::Result<(Header, u8)> {
    let stated = octal(&block[148..156]).ok_or_else(broken)?;
    let sum: u64 =
        (0..BLOCK).map(|at| if (148..156).contains(&at) { 32 } else { u64::from(block[at]) }).sum();
    if sum != stated {
        return Err(broken());
    }
    let name = until_nul(&block[..100]);
    let prefix = until_nul(&block[345..500]);
    let is_posix = &block[257..263] == b"ustar\0";
    let path = match prefix {
        [_, ..] if is_posix => [prefix, b"/", name].concat(),
        _ => name.to_owned(),
    };
    let kind = match block[156] {
        b'0' | b'7' | 0 if path.ends_with(b"/") => Kind::Directory,
        b'0' | b'7' | 0 => Kind::File,
        b'1' => Kind::Same,
        b'2' => Kind::Link,
        b'5' => Kind::Directory,
        _ => Kind::Other,
    };
    let number = |range: std::ops::Range<usize>| octal(&block[range]).ok_or_else(broken);
    let mode = u32::try_from(number(100..108)?).map_err(|_| broken())?;
    let size = number(124..136)?;
    let mtime = number(136..148).unwrap_or(0);
    let target = until_nul(&block[157..257]).to_owned();
    Ok((Header { path, kind, mode, size, mtime, target }, block[156]))
}

fn octal(field: &[u8]) -> Option<u64> {
    if field[0] & 0x80 != 0 {
        let (high, low) = field.split_at(field.len().checked_sub(8)?);
        let is_small = high.iter().skip(1).all(|byte| *byte == 0) && high.first() == Some(&0x80);
        return is_small.then_some(u64::from_be_bytes(low.try_into().ok()?));
    }
    let text = str::from_utf8(field).ok()?.trim_matches(['\0', ' ']);
    if text.is_empty() { Some(0) } else { u64::from_str_radix(text, 8).ok() }
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|byte| *byte == 0);
    &bytes[..end.unwrap_or(bytes.len())]
}

fn broken() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "the archive is damaged")
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn header(path: &str, kind: Kind, size: u64, target: &str) -> Header {
        let (path, target) = (path.as_bytes().to_vec(), target.as_bytes().to_vec());
        Header { path, kind, mode: 0o640, size, mtime: 1_700_000_000, target }
    }

    fn long(name: &str) -> String {
        format!("{}/{name}", "directory/".repeat(20))
    }

    #[test]
    fn what_is_written_is_read() {
        let entries = [
            header("./a", Kind::File, 3, ""),
            header("./d", Kind::Directory, 0, ""),
            header(&long("file"), Kind::File, 1_000, ""),
            header("./link", Kind::Link, 0, &long("target")),
        ];
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes);
        for entry in &entries {
            // The second file is shorter than its header says.
            writer.add(entry, &b"abcdef"[..]).unwrap();
        }
        writer.finish().unwrap();
        let twice = [&bytes[..], &bytes].concat();
        let mut reader = Reader::new(&twice[..]);
        for entry in entries.iter().chain(&entries) {
            assert_eq!(reader.next().unwrap().as_ref(), Some(entry));
            let mut content = Vec::new();
            if entry.size < 1_000 {
                reader.read_to_end(&mut content).unwrap();
                assert_eq!(content, b"abc"[..content.len()]);
            }
        }
        assert_eq!(reader.next().unwrap(), None);
        for cut in [100, 600, 1_300] {
            let mut reader = Reader::new(&bytes[..cut]);
            assert!((0..3).any(|_| reader.next().is_err()), "{cut}");
        }
        bytes[3] ^= 1;
        assert!(Reader::new(&bytes[..]).next().is_err());
        assert_eq!(octal(&number(1 << 40, 12)), Some(1 << 40));
    }

    #[test]
    fn the_archives_of_tar_are_read_and_ours_by_it() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join(long(""));
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::write(deep.join("file"), "content").unwrap();
        std::fs::hard_link(deep.join("file"), dir.path().join("same")).unwrap();
        std::os::unix::fs::symlink(long("file"), dir.path().join("link")).unwrap();
        for format in ["gnu", "pax"] {
            let name = format!("--format={format}");
            let mut command = Command::new("tar");
            command.args(["-cf", "-", &name, "."]).current_dir(&dir);
            let bytes = command.output().unwrap().stdout;
            let mut reader = Reader::new(&bytes[..]);
            let mut seen = Vec::new();
            while let Some(header) = reader.next().unwrap() {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace("directory/", "");
                if header.kind != Kind::Directory {
                    seen.push(format!("{:?} {}", header.kind, text(&header.path)));
                }
                if header.kind == Kind::Link {
                    assert_eq!(header.target, long("file").as_bytes());
                }
            }
            seen.sort();
            assert_eq!(seen.len(), 3, "{seen:?}");
            assert_eq!(seen[1], "Link ./link");
        }
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes);
        writer.add(&header(&long("file"), Kind::File, 3, ""), &b"abc"[..]).unwrap();
        writer.finish().unwrap();
        let mut command = Command::new("tar");
        command.args(["-tf", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(&bytes).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), long("file"));
    }
}
