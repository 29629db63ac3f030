//! Plays a script to any program: `cargo run -p fabro-fakes --example serve -- 8401`.
//!
//! Each request is printed as a line of JSON.

use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;

use fabro_fakes::{Fault, Response, Server};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let port = std::env::args().nth(1).map_or(Ok(0), |port| port.parse())?;
    let script = vec![
        Response::pieces(["Hel", "lo"]).usage(10, 2, 0),
        Response::error(Fault::RateLimit).retry_after("1"),
        Response::calls([("read_file", serde_json::json!({"path": "README.md"}))]),
        Response::text("Done"),
    ];
    let server = Server::start_on(SocketAddr::from(([127, 0, 0, 1], port)), script).await?;
    let mut out = std::io::stdout();
    writeln!(out, "{}", server.base_url())?;
    loop {
        tokio::time::sleep(Duration::from_millis(20)).await;
        for request in server.take_requests() {
            let line = serde_json::json!({"method": request.method, "path": request.path,
                "headers": request.headers, "body": request.json()});
            writeln!(out, "{line}")?;
        }
        out.flush()?;
    }
}
