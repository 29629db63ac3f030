//! Runs a script for at most five seconds: `cargo run -p fabro-sandbox --example run_script -- 'echo hi'`.

use std::time::Duration;

use fabro_sandbox::{Environment, Exec, Keep, Language, LocalExec, Request};
use tokio_util::sync::CancellationToken;

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stdout, reason = "an example shows what it got")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let script = std::env::args().nth(1).unwrap_or_else(|| "echo hello; sleep 60".to_owned());
    let logs = tempfile::tempdir()?;
    let cancel = CancellationToken::new();
    let request = Request {
        script: &script,
        language: Language::Shell,
        cwd: logs.path(),
        env: Environment::Inherit(&[]),
        reads: &[],
        script_reads: &[],
        source: "",
        stdin: None,
        keep_unredacted: false,
        keep: Keep::Ends { head: 10_000, tail: 10_000 },
        redactor: None,
        cancel: cancel.clone(),
    };
    let exec = LocalExec::new();
    let mut run = exec.run(request);
    let finished = tokio::select! {
        finished = &mut run => finished?,
        () = tokio::time::sleep(Duration::from_secs(5)) => {
            cancel.cancel();
            run.await?
        }
    };
    println!("{finished:#?}");
    Ok(())
}
