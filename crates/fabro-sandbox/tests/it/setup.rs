use std::io::Read;
use std::path::PathBuf;
use std::process::Command;

use fabro_sandbox::{
    Captured, Environment, Exec, ExecError, Finished, Keep, Language, LocalExec, Request,
};
use tokio_util::sync::CancellationToken;

/// A working directory with a named pipe `ready` in it.
pub(crate) struct Place {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) cancel: CancellationToken,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) language: Language,
}

impl Place {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        assert!(
            Command::new("mkfifo").arg(directory.path().join("ready")).status().unwrap().success()
        );
        Self {
            directory,
            cancel: CancellationToken::new(),
            env: Vec::new(),
            language: Language::Shell,
        }
    }

    pub(crate) fn python() -> Self {
        Self { language: Language::Python, ..Self::new() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn request<'a>(&'a self, script: &'a str) -> Request<'a> {
        Request {
            script,
            language: self.language,
            cwd: self.directory.path(),
            env: Environment::Inherit(&self.env),
            reads: &[],
            script_reads: &[],
            source: "",
            stdin: None,
            keep_unredacted: false,
            keep: self.logs("logs/stdout.log", "logs/stderr.log"),
            redactor: None,
            cancel: self.cancel.clone(),
        }
    }

    pub(crate) fn logs(&self, stdout: &str, stderr: &str) -> Keep {
        Keep::Logs { stdout: self.path(stdout), stderr: self.path(stderr) }
    }

    pub(crate) async fn run(&self, script: &str) -> Result<Finished, ExecError> {
        LocalExec::new().run(self.request(script)).await
    }

    /// What the script writes into `ready`, up to a line end; then the pipe, to await its end.
    pub(crate) async fn ready(&self) -> (String, std::fs::File) {
        let path = self.path("ready");
        tokio::task::spawn_blocking(move || {
            let mut pipe = std::fs::File::open(path).unwrap();
            let mut line = String::new();
            let mut byte = [0];
            while pipe.read(&mut byte).unwrap() == 1 && byte != *b"\n" {
                line.push(char::from(byte[0]));
            }
            (line, pipe)
        })
        .await
        .unwrap()
    }

    pub(crate) fn log(&self, name: &str) -> Vec<u8> {
        let path = self.path("logs").join(name);
        // A silent script leaves no log.
        if path.exists() { std::fs::read(path).unwrap() } else { Vec::new() }
    }
}

/// Returns once every process that has the pipe open for writing is gone.
pub(crate) async fn all_gone(mut pipe: std::fs::File) {
    tokio::task::spawn_blocking(move || pipe.read_to_end(&mut Vec::new()).unwrap()).await.unwrap();
}

pub(crate) fn text(text: &str) -> Captured {
    Captured::Text(text.to_owned())
}
