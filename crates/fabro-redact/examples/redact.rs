//! Copies standard input to standard output without the secrets of the environment:
//! `env | cargo run -p fabro-redact --example redact`.

use std::io::{self, Read as _, Write as _};

use fabro_redact::{Redactor, is_secret_name};

fn main() -> io::Result<()> {
    let secrets = std::env::vars().filter(|(name, _)| is_secret_name(name));
    let mut stream = Redactor::new(secrets).stream();
    let mut input = io::stdin().lock();
    let mut output = io::stdout().lock();
    let mut piece = [0; 8192];
    loop {
        let read = input.read(&mut piece)?;
        if read == 0 {
            break;
        }
        output.write_all(&stream.push(&piece[..read]))?;
        output.flush()?;
    }
    output.write_all(&stream.finish())
}
