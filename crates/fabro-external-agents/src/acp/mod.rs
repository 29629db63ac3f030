mod client;
mod config;
mod files;
mod session;
mod transport;

use std::path::Path;
use std::sync::{Mutex, PoisonError};
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
use serde_json::Value;
use tokio::time::timeout;

use crate::acp::client::Desk;
use crate::acp::config::Config;
use crate::acp::session::{Stop, converse};
use crate::exchange::{Log, start};
use crate::{Backend, BackendError, Done, Task, error};

/// How long a program that closed its end of the conversation may take to exit.
const EXIT: Duration = Duration::from_secs(2);

/// How long its last words are waited for.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// A program that speaks the Agent Client Protocol over its stdin and stdout.
///
/// It is started for each task, given one session and one prompt, and ended. It may read and write
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
    /// `config` is `null` or an object. In it `mode` and `model` are set for the session, `env` has
    /// variables for the program, and any other key is an option of the agent, with a text, `true`
    /// or `false`.
    ///
    /// # Errors
    ///
    /// The command line is empty or has an open quote, or `config` is something else.
    pub fn new(command: &str, config: &Value) -> Result<Self, BackendError> {
        let (program, args) = config::words(command)?;
        Ok(Self { program, args, config: Config::read(config)? })
    }

    fn name(&self) -> &str {
        let name = Path::new(&self.program).file_name().and_then(|name| name.to_str());
        name.unwrap_or(&self.program)
    }

    /// Waits for the end of a program that broke off, or ends it, and says what happened.
    async fn broken(
        &self,
        process: &mut Process,
        error: &agent_client_protocol::Error,
        stderr: &Mutex<Tail>,
    ) -> BackendError {
        let program = self.name().to_owned();
        let exited = timeout(EXIT, process.wait()).await;
        let stderr = stderr.lock().unwrap_or_else(PoisonError::into_inner).text();
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
    async fn run(&self, task: Task<'_>) -> Result<Done, BackendError> {
        if task.cancel.is_cancelled() {
            return Err(BackendError::Canceled);
        }
        let mark = Mark::new();
        let env = [task.keys, task.env, &self.config.env, &[mark.variable()]].concat();
        let install = "install it, or correct `acp.command`";
        let (mut process, pipes) = start(&self.program, &self.args, &env, &task, install)?;
        let stderr = Mutex::new(Tail::default());
        let outcome = match self.talk(pipes, &task, &stderr).await {
            Err(Stop::Gone(error)) => {
                let broken = self.broken(&mut process, &error, &stderr).await;
                return Err(broken.redacted(&task.redactor));
            }
            Ok(done) => Ok(done),
            Err(Stop::Backend(error)) => Err(error),
            Err(Stop::Refused(error)) => Err(reported(self.name(), &error)),
        };
        process.end().await;
        outcome.map_err(|error| error.redacted(&task.redactor))
    }
}

impl Acp {
    async fn talk(
        &self,
        pipes: Pipes,
        task: &Task<'_>,
        stderr: &Mutex<Tail>,
    ) -> Result<Done, Stop> {
        let desk = Desk::new(task)?;
        let mut log = Log::new(task, "stderr.log");
        let hear = |bytes: &[u8]| {
            stderr.lock().unwrap_or_else(PoisonError::into_inner).push(bytes);
        };
        let listen = async {
            log.record(pipes.stderr, hear).await?;
            log.finish(hear)
        };
        let transport = transport::lines(pipes.stdin, pipes.stdout, Log::new(task, "stdout.log"));
        let desk = &desk;
        let conversation = Client
            .v1()
            .name("fabro")
            .on_receive_notification(
                async move |update: SessionNotification, _| {
                    desk.update(update.update);
                    Ok(())
                },
                on_receive_notification!(),
            )
            .on_receive_request(
                async move |request: RequestPermissionRequest, responder, _| {
                    responder.respond(desk.permit(&request))
                },
                on_receive_request!(),
            )
            .on_receive_request(
                async move |request: ReadTextFileRequest, responder, _| {
                    responder.respond_with_result(desk.read(&request))
                },
                on_receive_request!(),
            )
            .on_receive_request(
                async move |request: WriteTextFileRequest, responder, _| {
                    responder.respond_with_result(desk.write(&request))
                },
                on_receive_request!(),
            )
            .connect_with(transport, async move |agent| {
                Ok(converse(&agent, task, &self.config, desk, self.name()).await)
            });
        let mut conversation = std::pin::pin!(conversation);
        let mut listen = std::pin::pin!(listen);
        tokio::select! {
            held = &mut conversation => {
                let held = held.unwrap_or_else(|error| Err(Stop::Gone(error)));
                if matches!(held, Err(Stop::Gone(_)))
                    && let Ok(listened) = timeout(LAST_WORDS, listen).await
                {
                    listened?;
                }
                held
            }
            listened = &mut listen => {
                listened?;
                conversation.await.unwrap_or_else(|error| Err(Stop::Gone(error)))
            }
        }
    }
}

fn reported(program: &str, error: &agent_client_protocol::Error) -> BackendError {
    let data = error.data.as_ref();
    let stated = ["type", "code", "kind", "status", "errorKind"];
    let class = stated.iter().find_map(|key| error::class_of(data?.get(key)?));
    let detail = data.and_then(|data| data.as_str().or(data["details"].as_str()));
    let message = match detail {
        Some(detail) => format!("{}: {detail}", error.message),
        None => error.message.clone(),
    };
    BackendError::reported(program, class.unwrap_or(FailureClass::Deterministic), &message)
}
