//! Paths as strings.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;

/// A path as UTF-8: each byte that is not is written as `\xFF`.
pub(crate) fn utf8(path: &OsStr) -> String {
    let mut name = String::new();
    for chunk in path.as_bytes().utf8_chunks() {
        name.push_str(chunk.valid());
        for byte in chunk.invalid() {
            // Writing to a string cannot fail.
            let _ = write!(name, "\\x{byte:02X}");
        }
    }
    name
}
