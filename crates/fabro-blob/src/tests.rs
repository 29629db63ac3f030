use std::cell::Cell;
use std::fs;
use std::io::{Cursor, Read};

use proptest::prelude::*;

use super::*;

fn dir() -> (tempfile::TempDir, DirBlobs) {
    let dir = tempfile::tempdir().unwrap();
    let blobs = DirBlobs::new(dir.path().join("state/blobs"));
    (dir, blobs)
}

/// Runs a check on each implementation.
#[track_caller]
fn each(check: impl Fn(&dyn BlobStore)) {
    check(&MemoryBlobs::default());
    check(&dir().1);
}

#[test]
fn blobs_read_back() {
    each(|blobs| {
        let large = vec![b'7'; 300_000];
        for bytes in [&b""[..], b"\"\"", &large] {
            let blob = blobs.put(bytes).unwrap();
            assert_eq!(blob, BlobRef::of(bytes));
            assert_eq!(blobs.put(bytes).unwrap(), blob);
            assert_eq!(blobs.get(&blob).unwrap(), bytes);
            assert_eq!(blobs.len(&blob).unwrap(), bytes.len() as u64);
            let mut copy = Vec::new();
            assert_eq!(blobs.copy_to(&blob, &mut copy).unwrap(), bytes.len() as u64);
            assert_eq!(copy, bytes);
        }
    });
}

#[test]
fn a_missing_blob_is_named() {
    let check = |blobs: &dyn BlobStore, expect: &str| {
        let blob = BlobRef::of(b"1");
        let errors = [
            blobs.get(&blob).map(drop).unwrap_err(),
            blobs.len(&blob).map(drop).unwrap_err(),
            blobs.copy_to(&blob, &mut Vec::new()).map(drop).unwrap_err(),
        ];
        for error in errors {
            let text = error.to_string();
            assert_eq!(text.strip_prefix(&blob.to_string()), Some(expect));
        }
    };
    let lost = " was stored and is gone; restore the store's `blobs` directory, or run the stage that made it again";
    // A directory cannot know what was in it.
    check(&dir().1, lost);
    let memory = MemoryBlobs::default();
    check(&memory, " is not in the store, and no such value is known to have been stored");
    let blob = memory.put(b"1").unwrap();
    memory.lose(&blob);
    check(&memory, lost);
    memory.put(b"1").unwrap();
    assert_eq!(memory.get(&blob).unwrap(), b"1");
}

#[test]
fn a_damaged_file_is_found_and_replaced() {
    let (_dir, blobs) = dir();
    let blob = blobs.put(b"12345").unwrap();
    for damage in ["1234", "12346", ""] {
        fs::write(blobs.path(&blob), damage).unwrap();
        for error in [
            blobs.get(&blob).map(drop).unwrap_err(),
            blobs.copy_to(&blob, &mut Vec::new()).map(drop).unwrap_err(),
        ] {
            assert!(matches!(error, BlobError::Corrupt { path: Some(_), .. }), "{error}");
        }
        assert_eq!(blobs.put(b"12345").unwrap(), blob);
        assert_eq!(blobs.get(&blob).unwrap(), b"12345");
    }
    fs::write(blobs.path(&blob), "x").unwrap();
    assert_eq!(blobs.put_json_string(&mut "a".as_bytes()).unwrap(), BlobRef::of(b"\"a\""));
}

#[cfg(unix)]
#[test]
fn what_took_the_place_of_a_file_is_not_read() {
    let (_dir, blobs) = dir();
    let blob = blobs.put(b"12345").unwrap();
    let path = blobs.path(&blob);
    let refused = || {
        let read = blobs.get(&blob).map(drop).unwrap_err();
        let copied = blobs.copy_to(&blob, &mut Vec::new()).map(drop).unwrap_err();
        for error in [read, copied] {
            assert!(error.to_string().contains("it is not a regular file"), "{error}");
        }
    };
    fs::remove_file(&path).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    refused();
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
    refused();
    assert_eq!(blobs.put(b"12345").unwrap(), blob);
    assert_eq!(blobs.get(&blob).unwrap(), b"12345");
}

#[test]
fn a_file_that_became_too_large_is_damaged() {
    let (_dir, blobs) = dir();
    let blob = blobs.put(b"12345").unwrap();
    let file = fs::File::options().write(true).open(blobs.path(&blob)).unwrap();
    file.set_len(READ_LIMIT + 1).unwrap();
    let error = read_blob(&blobs, &blob).unwrap_err();
    assert!(matches!(error, ReadError::Blob(BlobError::Corrupt { .. })), "{error}");
    let large = blobs.put(&vec![b'1'; READ_LIMIT as usize + 1]).unwrap();
    let error = read_blob(&blobs, &large).unwrap_err();
    assert!(matches!(error, ReadError::TooLarge { .. }), "{error}");
}

#[test]
fn files_are_where_they_are_said_to_be() {
    let (dir, blobs) = dir();
    let blob = blobs.put(b"1").unwrap();
    let expect =
        "state/blobs/6b/86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b.json";
    assert_eq!(blobs.path(&blob), dir.path().join(expect));
    let mut text = String::new();
    std::fs::File::open(blobs.path(&blob)).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "1");

    let other = blobs.put(b"2").unwrap();
    fs::write(dir.path().join("state/blobs/6b/notes.txt"), "no blob").unwrap();
    let unfinished = dir.path().join("state/blobs/unfinished");
    fs::write(unfinished.join("Ab12Cd.tmp"), "killed").unwrap();
    let foreign = ["notes.txt", "page.tmp", "unfinished-letter.tmp"];
    for name in foreign {
        fs::write(unfinished.join(name), "not ours").unwrap();
    }
    fs::create_dir(unfinished.join("folder.tmp")).unwrap();
    let mut all = [blob, other];
    all.sort_unstable();
    assert_eq!(blobs.list().unwrap(), all);
    blobs.remove_unfinished().unwrap();
    assert!(!unfinished.join("Ab12Cd.tmp").exists());
    assert!(foreign.iter().all(|name| unfinished.join(name).exists()));
    blobs.remove(&blob).unwrap();
    blobs.remove(&blob).unwrap();
    assert_eq!(blobs.list().unwrap(), [other]);
}

#[test]
fn nothing_is_created_by_looking() {
    let (dir, blobs) = dir();
    assert_eq!(blobs.list().unwrap(), []);
    blobs.remove_unfinished().unwrap();
    assert!(blobs.get(&BlobRef::of(b"1")).is_err());
    assert!(!dir.path().join("state").exists());
}

#[test]
fn writers_do_not_get_into_each_others_way() {
    let (_dir, blobs) = dir();
    let bytes = vec![b'1'; 100_000];
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for last in b'0'..b'5' {
                    let bytes = [&bytes[..], &[last]].concat();
                    let blob = blobs.put(&bytes).unwrap();
                    assert_eq!(blobs.get(&blob).unwrap(), bytes);
                }
            });
        }
    });
    assert_eq!(blobs.list().unwrap().len(), 5);
}

#[test]
fn a_writer_that_fails_leaves_nothing() {
    struct Broken(Cell<bool>);
    impl Read for Broken {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.0.replace(false) {
                buffer.fill(b'x');
                return Ok(buffer.len());
            }
            Err(io::Error::other("the pipe broke"))
        }
    }
    let (dir, blobs) = dir();
    let error = blobs.put_json_string(&mut Broken(Cell::new(true))).unwrap_err();
    insta::assert_snapshot!(error, @"cannot read the text to keep: the pipe broke");
    assert_eq!(blobs.list().unwrap(), []);
    assert_eq!(fs::read_dir(dir.path().join("state/blobs/unfinished")).unwrap().count(), 0);

    fs::remove_dir_all(dir.path().join("state")).unwrap();
    fs::write(dir.path().join("state"), "a file").unwrap();
    assert!(matches!(blobs.put(b"1"), Err(BlobError::Io { .. })));
}

/// The JSON string of a text, after a comparison with what serde makes of it.
#[track_caller]
fn check_text(text: &[u8], expect: &str) {
    assert_eq!(json_string(text, text.len().max(1)), expect);
    assert_eq!(expect, by_serde(text));
}

fn json_string(text: &[u8], piece: usize) -> String {
    /// Hands out a few bytes at a time, so that characters are cut.
    struct Pieces<'a>(Cursor<&'a [u8]>, usize);
    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let size = buffer.len().min(self.1);
            self.0.read(&mut buffer[..size])
        }
    }
    let mut json = Vec::new();
    let written = text_to_json_string(&mut Pieces(Cursor::new(text), piece), &mut json).unwrap();
    assert_eq!(written, json.len() as u64);
    String::from_utf8(json).unwrap()
}

fn by_serde(text: &[u8]) -> String {
    serde_json::to_string(String::from_utf8_lossy(text).trim_end_matches('\n')).unwrap()
}

#[test]
fn texts_become_json_strings() {
    check_text(b"", r#""""#);
    check_text(b"\n\n", r#""""#);
    check_text(b"a\nb\n\n", r#""a\nb""#);
    check_text(b"a\r\n", r#""a\r""#);
    check_text(b"\"\\/\x08\x0c\t\x00\x1f", r#""\"\\/\b\f\t\u0000\u001f""#);
    check_text(b"\x7f", "\"\u{7f}\"");
    check_text("é…😀".as_bytes(), r#""é…😀""#);
    check_text(b"\xffa\xe2\x82\n", "\"\u{fffd}a\u{fffd}\"");
}

proptest! {
    #[test]
    fn any_bytes_in_any_pieces_become_what_serde_makes_of_them(
        text in prop::collection::vec(
            prop_oneof![Just(b'\n'), Just(b'"'), Just(0xe2), Just(0x82), Just(0xac), any::<u8>()],
            0..60,
        ),
        piece in 1..9_usize,
    ) {
        prop_assert_eq!(json_string(&text, piece), by_serde(&text));
    }

    #[test]
    fn both_stores_name_a_text_alike(text in prop::collection::vec(any::<u8>(), 0..200)) {
        let (_dir, blobs) = dir();
        let expect = BlobRef::of(by_serde(&text).as_bytes());
        prop_assert_eq!(MemoryBlobs::default().put_json_string(&mut &text[..]).unwrap(), expect);
        if text.len() % 8 == 0 {
            prop_assert_eq!(blobs.put_json_string(&mut &text[..]).unwrap(), expect);
        }
    }
}

#[test]
fn long_texts_are_cut_nowhere() {
    let text = "日本語のテキスト\n".repeat(20_000) + &"\n".repeat(100_000);
    let (_dir, blobs) = dir();
    let blob = blobs.put_json_string(&mut text.as_bytes()).unwrap();
    assert_eq!(blobs.get(&blob).unwrap(), by_serde(text.as_bytes()).as_bytes());
}

#[cfg(unix)]
#[test]
fn files_that_root_creates_belong_to_the_owner_of_the_store() {
    use std::os::unix::fs::{MetadataExt as _, chown};

    let (dir, blobs) = dir();
    fs::create_dir(dir.path().join("state")).unwrap();
    // Only root can change owners.
    if chown(dir.path().join("state"), Some(4321), Some(4322)).is_err() {
        return;
    }
    let blob = blobs.put(b"\"text\"").unwrap();
    let file = blobs.path(&blob);
    let unfinished = dir.path().join("state/blobs/unfinished");
    for made in [file.as_path(), file.parent().unwrap(), unfinished.as_path()] {
        let about = fs::metadata(made).unwrap();
        assert_eq!((about.uid(), about.gid()), (4321, 4322), "{}", made.display());
    }
}
