//! Keeps the standard input as a blob, in bounded memory, and says where it is.
//!
//! `seq 1000000 | cargo run -p fabro-blob --example keep -- DIR`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::io;

use fabro_blob::{BlobStore, DirBlobs};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::args().nth(1).ok_or("say which directory to keep it in")?;
    let blobs = DirBlobs::new(dir);
    let blob = blobs.put_json_string(&mut io::stdin().lock())?;
    println!("{blob}, {} bytes, in {}", blobs.len(&blob)?, blobs.path(&blob).display());
    Ok(())
}
