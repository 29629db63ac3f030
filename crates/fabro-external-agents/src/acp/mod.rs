mod calls;
mod client;
mod config;
mod files;
mod session;
mod transport;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agent_client_protocol::v1::schema::{
    ReadTextFileRequest, RequestPermissionRequest, SessionNotification, WriteTextFileRequest,
};
use agent_client_protocol::{
    Client, is_incoming_transport_closed, on_receive_notification, on_receive_request,
};
use async_trait::async_trait;
use fabro_sandbox::{Exit, Mark, Pipes, Process, Tail};
use fabro_types::FailureClass;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::timeout;

use crate::acp::client::SessionClient;
use crate::acp::config::Config;
use crate::acp::session::{Stop, converse, reported};
use crate::exchange::{Log, start};
use crate::{Backend, BackendError, Done, Task};

/// How long a program that closed its end of the conversation may take to exit.
const EXIT: Duration = Duration::from_secs(2);

/// How long its last lines on stderr are waited for.
const LAST_LINES: Duration = Duration::from_millis(500);

/// A program that speaks the Agent Client Protocol over its stdin and stdout.
///
/// It is started for each task, given one session, new or continued, and one prompt, and ended. It may read and write
/// text files through the protocol, inside of the working directory only and as the task's
/// permissions allow; it is offered no terminal, so what it runs it runs itself, after asking.
#[derive(Clone, Debug)]
pub struct Acp {
    program: String,
    args: Vec<String>,
    config: Config,
}

impl Acp {
    /// The program of a command line, in which words are quoted as in a shell; nothing is expanded.
    ///
    /// `config` is `null` or an object. In it `mode` and `model` are set for the session, `auth` names
    /// the method of the agent to log in by, `env` has variables for the program, and any other key is an option of the agent, with a text, `true`
    /// or `false`.
    ///
    /// # Errors
    ///
    /// The command line is empty or has an open quote, or `config` is something else.
    pub fn new(command: &str, config: &Value) -> Result<Self, BackendError> {
        let (program, args) = config::parse_command(command)?;
        Ok(Self { program, args, config: Config::read(config)? })
    }

    /// The program that the command starts.
    pub fn program(&self) -> &str {
        &self.program
    }

    /// The name of the program, without its directory.
    pub fn name(&self) -> &str {
        let name = Path::new(&self.program).file_name().and_then(|name| name.to_str());
        name.unwrap_or(&self.program)
    }

    /// The error of a program that closed the connection: waits for its exit, or ends it.
    async fn connection_error(
        &self,
        process: &mut Process,
        error: &agent_client_protocol::Error,
        stderr: &Mutex<Tail>,
    ) -> BackendError {
        let program = self.name().to_owned();
        let exited = timeout(EXIT, process.wait()).await;
        let stderr = stderr.lock().text();
        match exited {
            Ok(Ok(Exit::Code(0))) => BackendError::NoAnswer { program, stderr },
            Ok(Ok(exit)) => BackendError::Failed { program, exit, stderr },
            Ok(Err(error)) => error.into(),
            Err(_) => {
                process.end().await;
                if is_incoming_transport_closed(error) {
                    let message = "it closed its stdout before it answered";
                    return BackendError::reported(&program, FailureClass::Deterministic, message);
                }
                reported(&program, error)
            }
        }
    }
}

#[async_trait]
impl Backend for Acp {
    fn takes_budget(&self) -> bool {
        true
    }

    async fn run(&self, task: Task<'_>) -> Result<Done, BackendError> {
        if task.cancel.is_cancelled() {
            return Err(BackendError::Canceled);
        }
        let mark = Mark::new();
        let env = [task.keys, task.env, &self.config.env, &[mark.variable()]].concat();
        let install = "install it, or correct `acp.command`";
        let client = SessionClient::new(&task)?;
        let (mut process, pipes) = start(&self.program, &self.args, &env, &task, install)?;
        let stderr = Mutex::new(Tail::default());
        let is_prompted = AtomicBool::new(false);
        let final_error = |error: BackendError| {
            let error = error.redacted(&task.redactor);
            if client.has_worked() {
                error.after_work()
            } else if is_prompted.load(Ordering::Relaxed) {
                error
            } else {
                error.before_request(self.name())
            }
        };
        let outcome = match self.converse(pipes, &client, &task, &stderr, &is_prompted).await {
            Err(Stop::Gone(error)) => {
                let error = self.connection_error(&mut process, &error, &stderr).await;
                return Err(final_error(error));
            }
            Ok(done) => Ok(done),
            Err(Stop::Backend(error)) => Err(error),
            Err(Stop::Refused(error)) => Err(reported(self.name(), &error)),
        };
        process.end().await;
        let renamed = process.check()?;
        let mut done = outcome.map_err(final_error)?;
        done.warnings.extend(renamed.lines().map(str::to_owned));
        Ok(done)
    }
}

impl Acp {
    async fn converse(
        &self,
        pipes: Pipes,
        client: &SessionClient<'_>,
        task: &Task<'_>,
        stderr: &Mutex<Tail>,
        is_prompted: &AtomicBool,
    ) -> Result<Done, Stop> {
        let mut log = Log::new(task, "stderr.log");
        let add_to_tail = |bytes: &[u8]| {
            stderr.lock().push(bytes);
        };
        let record_stderr = async {
            log.record(pipes.stderr, |_, bytes| add_to_tail(bytes)).await?;
            log.finish(add_to_tail)
        };
        let transport = transport::lines(pipes.stdin, pipes.stdout, Log::new(task, "stdout.log"));
        let conversation = Client
            .v1()
            .name("fabro")
            .on_receive_notification(
                async move |update: SessionNotification, _| {
                    client.update(&update.session_id.0, update.update);
                    Ok(())
                },
                on_receive_notification!(),
            )
            .on_receive_request(
                async move |request: RequestPermissionRequest, responder, _| {
                    responder.respond(client.permit(&request))
                },
                on_receive_request!(),
            )
            .on_receive_request(
                async move |request: ReadTextFileRequest, responder, _| {
                    responder.respond_with_result(client.read(&request))
                },
                on_receive_request!(),
            )
            .on_receive_request(
                async move |request: WriteTextFileRequest, responder, _| {
                    responder.respond_with_result(client.write(&request))
                },
                on_receive_request!(),
            )
            .connect_with(transport, async move |agent| {
                Ok(converse(&agent, task, &self.config, client, self.name(), is_prompted).await)
            });
        let mut conversation = std::pin::pin!(conversation);
        let mut record_stderr = std::pin::pin!(record_stderr);
        tokio::select! {
            ended = &mut conversation => {
                let ended = ended.unwrap_or_else(|error| Err(Stop::Gone(error)));
                if matches!(ended, Err(Stop::Gone(_)))
                    && let Ok(recorded) = timeout(LAST_LINES, record_stderr).await
                {
                    recorded?;
                }
                ended
            }
            recorded = &mut record_stderr => {
                recorded?;
                conversation.await.unwrap_or_else(|error| Err(Stop::Gone(error)))
            }
        }
    }
}
