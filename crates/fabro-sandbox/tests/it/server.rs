//! Engines for tests: the image of containers, and a server for `ssh`. Where they are not installed, that is said.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

/// Says that tests are skipped; fails where the engine was promised (`FABRO_TEST_ENGINES="docker ssh"`).
fn skip(engine: &str, reason: &str) {
    let promised = std::env::var("FABRO_TEST_ENGINES").unwrap_or_default();
    let is_promised = promised.split_whitespace().any(|it| it == engine);
    assert!(!is_promised, "FABRO_TEST_ENGINES names {engine}: {reason}");
    eprintln!("skipped: {reason}");
}

/// The image of the tests, where there is an engine to make it.
pub(crate) fn image() -> Option<&'static str> {
    const NAME: &str = "fabro-test:1";
    static IMAGE: OnceLock<bool> = OnceLock::new();
    let is_there = IMAGE.get_or_init(|| {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/sandbox-image.sh");
        let mut info = Command::new("docker");
        info.arg("info").stdout(Stdio::null()).stderr(Stdio::null());
        if !info.status().is_ok_and(|status| status.success()) {
            skip("docker", "there is no Docker engine here");
            return false;
        }
        let made = Command::new("bash").args([script, NAME]).stderr(Stdio::null()).status();
        let is_made = made.is_ok_and(|status| status.success());
        if !is_made {
            skip("docker", "the image cannot be made (BusyBox, bash and Python are needed)");
        }
        is_made
    });
    is_there.then_some(NAME)
}

/// A server for `ssh` on this machine, with keys and settings of its own.
#[derive(Debug)]
pub(crate) struct Server {
    dir: tempfile::TempDir,
    program: &'static str,
    pub(crate) child: Child,
}

impl Server {
    /// `None` where it is not installed.
    pub(crate) fn start() -> Option<Self> {
        let Some(program) = ["/usr/sbin/sshd", "/usr/local/sbin/sshd"]
            .into_iter()
            .find(|it| Path::new(it).exists())
        else {
            skip("ssh", "sshd is not installed");
            return None;
        };
        // As root it wants to have this directory.
        let _ = std::fs::create_dir("/run/sshd");
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        for key in ["host", "user"] {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f", &path(key)])
                .status();
            assert!(made.unwrap().success());
        }
        std::fs::copy(path("user.pub"), path("authorized")).unwrap();
        // The port may be taken by another program before the server has it.
        for _ in 0..10 {
            let port =
                std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let config = format!(
                "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\n\
                 StrictModes no\nPasswordAuthentication no\nPermitRootLogin yes\nMaxStartups 100\n",
                path("host"),
                path("authorized"),
            );
            std::fs::write(path("sshd"), config).unwrap();
            let config = format!(
                "Host far\nHostName 127.0.0.1\nPort {port}\nIdentityFile {}\nIdentitiesOnly yes\n\
                 StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n",
                path("user"),
            );
            std::fs::write(path("ssh"), config).unwrap();
            let mut child = serve(program, dir.path());
            while child.try_wait().unwrap().is_none() {
                if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
                    return Some(Self { dir, program, child });
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        let log = std::fs::read_to_string(path("log")).unwrap_or_default();
        skip("ssh", &format!("sshd does not start: {log}"));
        None
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Starts it again at the same address, after it was killed.
    pub(crate) fn restart(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let config = std::fs::read_to_string(self.path("sshd")).unwrap();
        let port = config.lines().next().unwrap().strip_prefix("Port ").unwrap().parse().unwrap();
        let program = self.program;
        self.child = serve(program, self.dir.path());
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(self.child.try_wait().unwrap().is_none(), "it does not start again");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Runs the server with the settings in this directory.
fn serve(program: &str, dir: &Path) -> Child {
    let mut command = Command::new(program);
    command.arg("-D").arg("-f").arg(dir.join("sshd")).arg("-E").arg(dir.join("log"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Ends the processes of the server that hold connections; it accepts new ones.
pub(crate) fn drop_connections(server: &Server) {
    let parent = server.child.id().to_string();
    let mut pids: Vec<String> = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let parent_of = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1));
        if parent_of == Some(&parent) {
            pids.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    assert!(!pids.is_empty());
    Command::new("kill").arg("-9").args(pids).status().unwrap();
}
