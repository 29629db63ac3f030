//! What every sandbox provider does with scripts: one suite, run for each of them. A provider that this machine does
//! not have is skipped, and says so.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fabro_sandbox::{
    BwrapSettings, Captured, DockerSettings, EngineSettings, Environment, Exec, ExecError, Exit,
    Finished, Keep, Language, LocalExec, RemoteSettings, Request, Sandbox, SandboxError,
    SshSettings, end_leftovers,
};
use tokio_util::sync::CancellationToken;

use crate::server::{Server, image};

/// A script that starts processes until it may not, with a limit of 40; it prints whether that was right. A shell
/// would try again, and wait longer each time.
pub(crate) const FORK_BOMB: &str = "python3 -c '
import os, time
for started in range(100):
    try:
        if os.fork() == 0: time.sleep(600)
    except OSError:
        print(20 < started < 40)
        break
'";

/// The directories of a run, and what runs its scripts.
pub(crate) struct Ground {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) exec: Arc<dyn Exec>,
    /// Scripts see a part of the machine, and nothing that they start outlives them.
    pub(crate) is_confined: bool,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) cancel: CancellationToken,
    /// The sandbox, where it is a container or another machine.
    pub(crate) sandbox: Option<Arc<Sandbox>>,
    /// The sandbox, where it is bubblewrap.
    bwrap: Option<Arc<Sandbox>>,
    /// What has to be there as long as it is used.
    pub(crate) server: Option<Server>,
    /// What the sandbox was made from.
    pub(crate) settings: Option<RemoteSettings>,
}

/// What is left of a test goes with it.
impl Drop for Ground {
    fn drop(&mut self) {
        if let Some(sandbox) = &self.sandbox {
            sandbox.remove().unwrap();
        }
    }
}

impl Ground {
    #[expect(clippy::unnecessary_wraps, reason = "other providers are missing on some machines")]
    fn local() -> Option<Self> {
        let dir = Self::directories();
        Some(Self::new(dir, Arc::new(LocalExec::new()), false))
    }

    pub(crate) async fn docker() -> Option<Self> {
        Self::docker_with(false, |_| {}).await
    }

    pub(crate) async fn docker_copy() -> Option<Self> {
        Self::docker_with(true, |_| {}).await
    }

    /// A container, with the working directory mounted or copied.
    pub(crate) async fn docker_with(
        copy: bool,
        change: impl FnOnce(&mut RemoteSettings),
    ) -> Option<Self> {
        let engine = EngineSettings::Docker(DockerSettings {
            image: image()?.to_owned(),
            memory: None,
            cpus: None,
            max_processes: 200,
            network: false,
            tmp_size: None,
            copy,
            read: Vec::new(),
            write: Vec::new(),
        });
        Some(Self::remote(engine, change, None).await)
    }

    pub(crate) async fn ssh() -> Option<Self> {
        Self::ssh_with(|_| {}).await
    }

    pub(crate) async fn ssh_with(change: impl FnOnce(&mut RemoteSettings)) -> Option<Self> {
        let server = Server::start()?;
        let engine = EngineSettings::Ssh(ssh_settings(&server));
        Some(Self::remote(engine, change, Some(server)).await)
    }

    async fn remote(
        engine: EngineSettings,
        change: impl FnOnce(&mut RemoteSettings),
        server: Option<Server>,
    ) -> Self {
        let dir = Self::directories();
        let mut settings = Self::remote_settings(&dir, engine);
        change(&mut settings);
        let sandbox = Arc::new(Sandbox::remote(settings.clone()).unwrap());
        sandbox.start().await.unwrap();
        let exec = LocalExec::new().in_sandbox(Arc::clone(&sandbox));
        let mut ground = Self::new(dir, Arc::new(exec), true);
        ground.sandbox = Some(sandbox);
        ground.server = server;
        ground.settings = Some(settings);
        ground
    }

    pub(crate) fn remote_settings(
        dir: &tempfile::TempDir,
        engine: EngineSettings,
    ) -> RemoteSettings {
        RemoteSettings {
            run: format!("test{}", seconds().replace('.', "x")),
            work_dir: dir.path().join("work"),
            state_dir: dir.path().join("store/runs/1/sandbox"),
            hidden: vec![dir.path().join("store"), dir.path().join("work/.fabro/state")],
            write_git: false,
            exclude: None,
            copy_limit: 50_000_000,
            engine,
        }
    }

    /// The path of a file in the working directory as scripts have it.
    pub(crate) fn remote_path(&self, name: &str) -> String {
        let work = self.path("work").canonicalize().unwrap();
        let path = work.join(name);
        let path = path.to_str().unwrap().trim_end_matches('/');
        match &self.sandbox {
            Some(sandbox) => sandbox.shown(path, &work, &[]).into_owned(),
            None => path.to_owned(),
        }
    }

    pub(crate) fn bwrap() -> Option<Self> {
        Self::bwrap_with(|_| {})
    }

    pub(crate) fn bwrap_with(change: impl FnOnce(&mut BwrapSettings)) -> Option<Self> {
        let dir = Self::directories();
        let mut settings = BwrapSettings {
            work_dir: dir.path().join("work"),
            state_dir: dir.path().join("store/runs/1/sandbox"),
            hidden: vec![dir.path().join("store")],
            home: Some(dir.path().join("home")),
            network: false,
            read: Vec::new(),
            write: Vec::new(),
            write_git: false,
            tmp_size: None,
            max_processes: 200,
        };
        change(&mut settings);
        let sandbox = match Sandbox::bwrap(&settings) {
            Ok(sandbox) => sandbox,
            Err(error @ SandboxError::Missing { .. }) => {
                eprintln!("skipped: {error}");
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        if let Err(error) = sandbox.check() {
            eprintln!("skipped: {error}");
            return None;
        }
        let sandbox = Arc::new(sandbox);
        let exec = LocalExec::new().in_sandbox(Arc::clone(&sandbox));
        let mut ground = Self::new(dir, Arc::new(exec), true);
        ground.bwrap = Some(sandbox);
        Some(ground)
    }

    fn directories() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for name in
            ["work/.fabro/state", "work/.git/hooks", "home/.ssh", "home/.cargo/bin", "store/runs/1"]
        {
            std::fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        for (name, text) in [
            ("home/.ssh/id", "key"),
            ("home/.cargo/credentials.toml", "token"),
            ("home/.cargo/bin/tool", "tool"),
            ("store/fabro.db", "events"),
            ("store/runs/1/blob", "value"),
            ("work/.git/config", "[core]"),
            ("work/.fabro/state/fabro.db", "events"),
            ("work/.fabro/config.toml", "_version = 1"),
            ("outside", "visible"),
        ] {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        dir
    }

    fn new(dir: tempfile::TempDir, exec: Arc<dyn Exec>, is_confined: bool) -> Self {
        let cancel = CancellationToken::new();
        let env = Vec::new();
        Self {
            dir,
            exec,
            is_confined,
            env,
            cancel,
            sandbox: None,
            bwrap: None,
            server: None,
            settings: None,
        }
    }

    /// The sandbox, whatever it is.
    pub(crate) fn sandbox(&self) -> &Sandbox {
        self.sandbox.as_ref().or(self.bwrap.as_ref()).unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) async fn run(&self, script: &str) -> Finished {
        self.run_as(script, Language::Shell).await
    }

    async fn run_as(&self, script: &str, language: Language) -> Finished {
        self.run_in(&self.path("work"), script, language, &[]).await
    }

    pub(crate) async fn run_in(
        &self,
        cwd: &Path,
        script: &str,
        language: Language,
        reads: &[PathBuf],
    ) -> Finished {
        let logs = Keep::Logs { stdout: self.path("out.log"), stderr: self.path("err.log") };
        let request = self.request(cwd, script, logs);
        self.exec.run(Request { language, reads, ..request }).await.unwrap()
    }

    pub(crate) async fn try_reading(
        &self,
        script: &str,
        reads: &[PathBuf],
    ) -> Result<Finished, ExecError> {
        let cwd = self.path("work");
        let logs = Keep::Logs { stdout: self.path("out.log"), stderr: self.path("err.log") };
        let request = self.request(cwd.as_path(), script, logs);
        self.exec.run(Request { reads, ..request }).await
    }

    fn request<'a>(&'a self, cwd: &'a Path, script: &'a str, keep: Keep) -> Request<'a> {
        Request {
            script,
            language: Language::Shell,
            cwd,
            env: Environment::Inherit(&self.env),
            reads: &[],
            script_reads: &[],
            source: "",
            stdin: None,
            keep_unredacted: false,
            keep,
            redactor: None,
            cancel: self.cancel.clone(),
        }
    }

    pub(crate) async fn try_run(&self, script: &str) -> Result<Finished, ExecError> {
        let logs = Keep::Logs { stdout: self.path("out.log"), stderr: self.path("err.log") };
        self.exec.run(self.request(&self.path("work"), script, logs)).await
    }

    /// Without the logs of another script that runs.
    pub(crate) async fn try_run_by(
        &self,
        exec: &dyn Exec,
        script: &str,
    ) -> Result<Finished, ExecError> {
        let ends = Keep::Ends { head: 1_000, tail: 1_000 };
        exec.run(self.request(&self.path("work"), script, ends)).await
    }

    /// What the script prints on both streams, and its exit code, run by another driver.
    pub(crate) async fn output_by(&self, exec: &dyn Exec, script: &str) -> String {
        let finished = self.try_run_by(exec, script).await.unwrap();
        let Captured::Text(text) = finished.stdout else { panic!("large output") };
        format!("{text}\n{:?}", finished.exit)
    }

    /// What the script prints on both streams, and its exit code.
    pub(crate) async fn output(&self, script: &str) -> String {
        let finished = self.run(&format!("exec 2>&1\n{script}")).await;
        let Captured::Text(text) = finished.stdout else { panic!("large output") };
        format!("{text}\n{:?}", finished.exit)
    }

    /// Waits until the script that is running has printed this.
    pub(crate) async fn printed(&self, text: &str) {
        let log = self.path("out.log");
        until(text, || std::fs::read_to_string(&log).is_ok_and(|it| it.contains(text))).await;
    }
}

/// The other machine that a server stands for.
pub(crate) fn ssh_settings(server: &Server) -> SshSettings {
    SshSettings {
        host: "far".to_owned(),
        directory: Some(server.path("far").display().to_string()),
        config: Some(server.path("ssh")),
    }
}

/// Waits until a condition holds, and fails when it does not within a time that is longer than any test needs.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The processes of this machine with this in their command line.
pub(crate) fn running(text: &str) -> usize {
    command_lines().filter(|line| line.contains(text)).count()
}

fn command_lines() -> impl Iterator<Item = String> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.map(|line| String::from_utf8_lossy(&line).into_owned())
}

/// A number of seconds that no other process sleeps.
pub(crate) fn seconds() -> String {
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    format!("600.{}{count:03}", std::process::id())
}

async fn a_command_has_code_output_directory_and_variables(mut ground: Ground) {
    ground.env = vec![("GREETING".to_owned(), "a 'b' $c\nd".to_owned())];
    let script = "echo \"$GREETING\"; pwd -P; cat; echo made > file; echo oops >&2; exit 42";
    let finished = ground.run(script).await;
    let work = ground.path("work").canonicalize().unwrap();
    assert_eq!(finished.exit, Exit::Code(42));
    assert_eq!(finished.stdout, Captured::Text(format!("a 'b' $c\nd\n{}", ground.remote_path(""))));
    assert_eq!(finished.stderr, Captured::Text("oops".to_owned()));
    assert_eq!(std::fs::read_to_string(work.join("file")).unwrap(), "made\n");
    std::fs::write(work.join("file"), "changed outside").unwrap();
    assert_eq!(ground.output("cat file").await, "changed outside\nCode(0)");
}

async fn a_python_script_and_a_long_one(ground: Ground) {
    let finished =
        ground.run_as("import sys; print(sys.argv); sys.exit(3)", Language::Python).await;
    assert_eq!(finished.stdout, Captured::Text("['-c']".to_owned()));
    assert_eq!(finished.exit, Exit::Code(3));
    let long = format!(": {}\necho end", "x".repeat(200_000));
    assert_eq!(ground.output(&long).await, "end\nCode(0)");
    let long = format!("# {}\nprint('end')", "x".repeat(200_000));
    let finished = ground.run_as(&long, Language::Python).await;
    assert_eq!(finished.stdout, Captured::Text("end".to_owned()));
}

async fn a_subdirectory_is_a_working_directory(ground: Ground) {
    std::fs::create_dir(ground.path("work/sub")).unwrap();
    let cwd = ground.path("work/sub");
    let finished = ground.run_in(&cwd, "echo > ../above; ls ..", Language::Shell, &[]).await;
    assert_eq!(finished.stdout, Captured::Text("above\nsub".to_owned()));
}

async fn output_arrives_while_the_script_runs_and_a_timeout_ends_all_of_it(ground: Ground) {
    let seconds = seconds();
    let script =
        format!("sleep {seconds} & (sleep {seconds}; :) & echo up; sleep {seconds}; echo late");
    let (finished, ()) = tokio::join!(ground.run(&script), async {
        ground.printed("up").await;
        assert!(running(&seconds) > 0);
        ground.cancel.cancel();
    });
    assert_eq!(finished.exit, Exit::Canceled);
    assert_eq!(finished.stdout, Captured::Text("up".to_owned()));
    until("all processes have ended", || running(&seconds) == 0).await;
}

async fn a_script_may_clean_up_when_it_is_ended(ground: Ground) {
    let script = "trap 'echo bye; exit 1' TERM; echo up; while :; do sleep 0.01; done";
    let (finished, ()) = tokio::join!(ground.run(script), async {
        ground.printed("up").await;
        ground.cancel.cancel();
    });
    assert_eq!(finished.stdout, Captured::Text("up\nbye".to_owned()));
}

async fn a_script_that_ignores_the_request_to_end_is_killed(ground: Ground) {
    let seconds = seconds();
    let script = format!("trap '' TERM; echo up; while :; do sleep {seconds}; done");
    let (finished, ()) = tokio::join!(ground.run(&script), async {
        ground.printed("up").await;
        ground.cancel.cancel();
    });
    assert_eq!(finished.exit, Exit::Canceled);
    until("all processes have ended", || running(&seconds) == 0).await;
}

async fn a_dropped_script_is_killed(ground: Ground) {
    let seconds = seconds();
    let script = format!("echo up; sleep {seconds}");
    tokio::select! {
        _ = ground.run(&script) => panic!("it ended by itself"),
        () = ground.printed("up") => {}
    }
    until("all processes have ended", || running(&seconds) == 0).await;
}

async fn what_a_script_leaves_running_ends_with_it(ground: Ground) {
    let seconds = seconds();
    let finished = ground.run(&format!("sleep {seconds} & echo left")).await;
    assert_eq!(finished.exit, Exit::Code(0));
    assert_eq!(finished.stdout, Captured::Text("left".to_owned()));
    until("it has ended", || running(&seconds) == 0).await;
    if ground.is_confined {
        let script = format!("setsid sleep {seconds} <&- >&- 2>&- & sleep 0.1; echo left");
        assert_eq!(ground.output(&script).await, "left\nCode(0)");
        until("it has ended", || running(&seconds) == 0).await;
    }
}

async fn floods_are_recorded_as_a_whole(ground: Ground) {
    let script = "head -c 8000000 /dev/zero & head -c 8000000 /dev/zero >&2; wait";
    let finished = ground.run(script).await;
    for captured in [finished.stdout, finished.stderr] {
        assert!(matches!(captured, Captured::Large { bytes: 8_000_000, .. }), "{captured:?}");
    }
}

async fn a_file_is_the_input_and_both_streams_are_one_output(ground: Ground) {
    let runtime = ground.path("store/runs/1/stages");
    std::fs::create_dir_all(&runtime).unwrap();
    let stdin = runtime.join("stdin.txt");
    std::fs::write(&stdin, "one\ntwo's $x").unwrap();
    let cwd = ground.path("work");
    for text in [
        "cat; echo; echo err >&2; echo out".to_owned(),
        format!("cat; : {}\necho; echo err >&2; echo out", "x".repeat(200_000)),
    ] {
        let request = ground.request(&cwd, &text, Keep::Log(ground.path("out.log")));
        let reads = [runtime.clone()];
        let request = Request { stdin: Some(&stdin), reads: &reads, ..request };
        let finished = ground.exec.run(request).await.unwrap();
        assert_eq!(finished.stdout, Captured::Text("one\ntwo's $x\nerr\nout".to_owned()));
        assert_eq!(finished.stderr, Captured::Text(String::new()));
    }
}

async fn variables_are_those_allowed_and_those_given(mut ground: Ground) {
    ground.env = vec![("OWN".to_owned(), "1".to_owned())];
    // Cargo sets it for every test.
    let output = ground.output("echo \"$OWN${CARGO_PKG_NAME+ inherited}${PATH+ path}\"").await;
    let expected = if ground.is_confined { "1 path\nCode(0)" } else { "1 inherited path\nCode(0)" };
    assert_eq!(output, expected);
}

async fn secrets_are_in_no_command_line(mut ground: Ground) {
    let secret = format!("secret-{}", seconds());
    ground.env = vec![("TOKEN".to_owned(), secret.clone())];
    let script = "test -n \"$TOKEN\" && echo up; sleep 600";
    let ((), ()) = tokio::join!(async { drop(ground.run(script).await) }, async {
        ground.printed("up").await;
        assert_eq!(running(&secret), 0);
        ground.cancel.cancel();
    });
}

async fn leftovers_of_a_killed_driver_are_ended(mut ground: Ground) {
    let run = format!("run-{}", seconds());
    let seconds = seconds();
    if ground.sandbox.is_some() {
        // Their next driver ends them: `remote.rs`.
        return;
    }
    ground.env = vec![("FABRO_RUN_ID".to_owned(), run.clone())];
    let script = format!("sleep {seconds} & setsid sleep {seconds} & echo up; wait");
    let (finished, ()) = tokio::join!(ground.run(&script), async {
        // One that has yet to leave the process group is ended, or not, with its group.
        let sleeping = format!("sleep\0{seconds}\0");
        until("both run", || command_lines().filter(|line| **line == *sleeping).count() == 2).await;
        let end = move || end_leftovers(("FABRO_RUN_ID", &run));
        assert!(tokio::task::spawn_blocking(end).await.unwrap() > 0);
    });
    assert_ne!(finished.exit, Exit::Code(0));
    until("all processes have ended", || running(&seconds) == 0).await;
}

/// The suite, for one provider.
macro_rules! conformance {
    ($provider:ident $ground:expr; $($test:ident)*) => {
        mod $provider {
            $(
                #[tokio::test]
                async fn $test() {
                    if let Some(ground) = $ground {
                        super::$test(ground).await;
                    }
                }
            )*
        }
    };
}

macro_rules! for_all {
    ($($provider:ident $ground:expr;)*) => {$(
        conformance! { $provider $ground;
            a_command_has_code_output_directory_and_variables
            a_python_script_and_a_long_one
            a_subdirectory_is_a_working_directory
            output_arrives_while_the_script_runs_and_a_timeout_ends_all_of_it
            a_script_may_clean_up_when_it_is_ended
            a_script_that_ignores_the_request_to_end_is_killed
            a_dropped_script_is_killed
            what_a_script_leaves_running_ends_with_it
            floods_are_recorded_as_a_whole
            a_file_is_the_input_and_both_streams_are_one_output
            variables_are_those_allowed_and_those_given
            secrets_are_in_no_command_line
            leftovers_of_a_killed_driver_are_ended
        }
    )*};
}

for_all! {
    local super::Ground::local();
    bwrap super::Ground::bwrap();
    docker super::Ground::docker().await;
    docker_copy super::Ground::docker_copy().await;
    ssh super::Ground::ssh().await;
}
