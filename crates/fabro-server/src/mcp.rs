//! The actions and reports of the API as tools of the Model Context Protocol.

use std::sync::Arc;

use fabro_events::AnsweredBy;
use fabro_run::os_user;
use fabro_store::SqliteStore;
use fabro_types::RunId;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
    Implementation, ListToolsResult, PaginatedRequestParams, ServerCapabilities,
    ServerConfig as McpConfig, Tool, ToolAnnotations,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler, ServiceExt as _};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::actions::{
    Actions, Answer, Cancel, Fork, Resume, Rewind, RunQuery, ServerConfig, Start, Steer,
};
use crate::auth::Role;
use crate::problem::Problem;

/// The longest result of a tool, in bytes of JSON. What is longer would fill the context of a model.
const MAX_RESULT: usize = 200_000;

/// Why a connection of the Model Context Protocol has failed.
#[derive(Debug, thiserror::Error)]
#[error("the MCP client is gone: {0}")]
pub struct McpError(String);

impl McpError {
    pub(crate) fn of(error: impl std::fmt::Display) -> Self {
        Self(error.to_string())
    }
}

/// Serves tools to one MCP client, until it closes its end. The tools are those that the role may use;
/// `run` is the run that tools mean when none is named.
///
/// # Errors
///
/// The client does not speak the protocol, or ends in the middle of it.
pub async fn serve_mcp(
    store: Arc<SqliteStore>,
    config: ServerConfig,
    role: Role,
    run: Option<String>,
    (input, output): (
        impl AsyncRead + Send + Unpin + 'static,
        impl AsyncWrite + Send + Unpin + 'static,
    ),
) -> Result<(), McpError> {
    let tools = Tools { actions: Actions::new(store, config), role, run, user: os_user() };
    let service = tools.serve((input, output)).await.map_err(McpError::of)?;
    service.waiting().await.map_err(McpError::of)?;
    Ok(())
}

/// The tools of a client.
pub(crate) struct Tools {
    pub(crate) actions: Actions,
    pub(crate) role: Role,
    /// The run that tools mean when none is named; absent for the latest.
    pub(crate) run: Option<String>,
    /// The name of the client, recorded with its answers.
    pub(crate) user: String,
}

/// Which tool it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    ListRuns,
    ListWorkflows,
    InspectRun,
    InspectStage,
    ListGates,
    ListArtifacts,
    WorkflowContext,
    AnswerGate,
    SteerRun,
    StartRun,
    ResumeRun,
    CancelRun,
    ForkRun,
    RewindRun,
    RemoveRun,
}

const KINDS: [(Kind, &str, Role, &str); 15] = [
    (Kind::ListRuns, "list_runs", Role::Read, "Lists runs of workflows, newest first."),
    (Kind::ListWorkflows, "list_workflows", Role::Read, "Lists the workflows that can be started."),
    (
        Kind::InspectRun,
        "inspect_run",
        Role::Read,
        "Shows a run: its status, stages, failure, cost, and the gates that wait for an answer.",
    ),
    (
        Kind::InspectStage,
        "inspect_stage",
        Role::Read,
        "Shows a stage: its prompt, response, output, conversation and outcome.",
    ),
    (
        Kind::ListGates,
        "list_gates",
        Role::Read,
        "Lists the questions of all runs that wait for an answer.",
    ),
    (
        Kind::ListArtifacts,
        "list_artifacts",
        Role::Read,
        "Lists the files that a run kept (reports, screenshots), and where they are on this machine.",
    ),
    (
        Kind::WorkflowContext,
        "get_workflow_context",
        Role::Read,
        "Shows the context of a run: the values that its stages set.",
    ),
    (
        Kind::AnswerGate,
        "answer_gate",
        Role::Answer,
        "Answers a gate of a run. A run that is not driven continues with resume_run.",
    ),
    (Kind::SteerRun, "steer_run", Role::Admin, "Sends a message to the running agents of a run."),
    (
        Kind::StartRun,
        "start_run",
        Role::Admin,
        "Starts a run of a workflow in the background, and returns its id at once.",
    ),
    (
        Kind::ResumeRun,
        "resume_run",
        Role::Admin,
        "Continues a paused or interrupted run in the background.",
    ),
    (Kind::CancelRun, "cancel_run", Role::Admin, "Ends a run."),
    (
        Kind::ForkRun,
        "fork_run",
        Role::Admin,
        "Copies a run up to the end of a stage; resume_run continues the copy.",
    ),
    (
        Kind::RewindRun,
        "rewind_run",
        Role::Admin,
        "Takes a run back to the end of a stage; resume_run continues it from there.",
    ),
    (
        Kind::RemoveRun,
        "remove_run",
        Role::Admin,
        "Removes a run that is not driven, with everything that it recorded.",
    ),
];

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Stage {
    /// The stage: `[BRANCH/]NODE[@VISIT]`.
    stage: String,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Artifacts {
    /// Only those of this stage: `[BRANCH/]NODE[@VISIT]`.
    #[serde(default)]
    stage: Option<String>,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WorkflowContext {
    /// The keys to give, whole; absent for all, long values cut.
    #[serde(default)]
    pub(crate) keys: Vec<String>,
}

impl Kind {
    /// Whether the tool is about one run, which it takes as `run`.
    fn is_of_run(self) -> bool {
        !matches!(self, Self::ListRuns | Self::ListWorkflows | Self::ListGates | Self::StartRun)
    }

    fn inputs(self) -> Map<String, Value> {
        match self {
            Self::ListRuns => schema::<RunQuery>(),
            Self::ListWorkflows | Self::InspectRun | Self::ListGates | Self::RemoveRun => {
                schema::<Nothing>()
            }
            Self::InspectStage => schema::<Stage>(),
            Self::ListArtifacts => schema::<Artifacts>(),
            Self::WorkflowContext => schema::<WorkflowContext>(),
            Self::AnswerGate => schema::<Answer>(),
            Self::SteerRun => schema::<Steer>(),
            Self::StartRun => schema::<Start>(),
            Self::ResumeRun => schema::<Resume>(),
            Self::CancelRun => schema::<Cancel>(),
            Self::ForkRun => schema::<Fork>(),
            Self::RewindRun => schema::<Rewind>(),
        }
    }
}

/// The schema of a tool's inputs, which is an object without references to others.
pub(crate) fn schema<T: JsonSchema>() -> Map<String, Value> {
    let settings =
        SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    for name in ["$schema", "title"] {
        schema.as_object_mut().and_then(|object| object.shift_remove(name));
    }
    match schema {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}

impl Tools {
    fn tool(
        &self,
        (kind, name, role, description): (Kind, &'static str, Role, &'static str),
    ) -> Tool {
        let mut inputs = kind.inputs();
        if kind.is_of_run() {
            let default = self.run.as_deref().unwrap_or("latest");
            let text =
                format!("The run: its id, the beginning of it, or `latest`. Default: {default}.");
            let properties = inputs.entry("properties").or_insert_with(|| json!({}));
            properties["run"] = json!({"type": "string", "description": text});
        }
        let hints = ToolAnnotations::new().read_only(role == Role::Read);
        Tool::new(name, description, inputs).annotate(hints)
    }

    async fn call(&self, kind: Kind, mut inputs: Map<String, Value>) -> Result<Value, Problem> {
        let actions = &self.actions;
        if !kind.is_of_run() {
            return match kind {
                Kind::ListRuns => to_value(&actions.list(&parse::<RunQuery>(inputs)?).await?),
                Kind::ListGates => to_value(&actions.waiting_gates().await?),
                Kind::StartRun => {
                    to_value(&Box::pin(actions.start(&parse::<Start>(inputs)?, None)).await?)
                }
                _ => to_value(&actions.workflows()),
            };
        }
        let named = match inputs.shift_remove("run") {
            Some(Value::String(run)) => run,
            Some(_) => return Err(Problem::invalid("`run` is no text", "name a run by its id")),
            None => self.run.clone().unwrap_or_else(|| "latest".to_owned()),
        };
        let run = actions.find(&named).await?;
        match kind {
            Kind::AnswerGate => {
                let by = AnsweredBy::new(&self.user, "mcp");
                to_value(&actions.answer(run, &parse(inputs)?, by, None).await?)
            }
            Kind::SteerRun => to_value(&actions.steer(run, &parse(inputs)?, None).await?),
            Kind::CancelRun => {
                to_value(&actions.cancel(run, &parse::<Cancel>(inputs)?, None).await?)
            }
            Kind::ResumeRun => {
                to_value(&actions.resume(run, &parse::<Resume>(inputs)?, None).await?)
            }
            Kind::ForkRun => to_value(&actions.fork(run, &parse::<Fork>(inputs)?, None).await?),
            Kind::RewindRun => {
                to_value(&actions.rewind(run, &parse::<Rewind>(inputs)?, None).await?)
            }
            Kind::RemoveRun => {
                let Nothing {} = parse(inputs)?;
                to_value(&actions.remove(run).await?)
            }
            _ => self.report(kind, run, inputs).await,
        }
    }

    async fn report(
        &self,
        kind: Kind,
        run: RunId,
        inputs: Map<String, Value>,
    ) -> Result<Value, Problem> {
        match kind {
            Kind::InspectStage => {
                let Stage { stage } = parse(inputs)?;
                to_value(&self.actions.folds.stage(run, &stage).await?.0)
            }
            Kind::ListArtifacts => {
                let Artifacts { stage } = parse(inputs)?;
                to_value(&self.actions.folds.artifacts(run, stage.as_deref()).await?)
            }
            Kind::WorkflowContext => {
                let WorkflowContext { keys } = parse(inputs)?;
                let is_whole = !keys.is_empty();
                let mut values = self.actions.context(run, None, is_whole).await?;
                if let Value::Object(values) = &mut values {
                    values.retain(|key, _| !is_whole || keys.contains(key));
                    values.values_mut().filter(|_| !is_whole).for_each(cut);
                }
                Ok(values)
            }
            _ => {
                let Nothing {} = parse(inputs)?;
                to_value(&self.actions.folds.report(run).await?)
            }
        }
    }
}

/// Replaces a long value by the beginning of its text.
pub(crate) fn cut(value: &mut Value) {
    const SHOWN: usize = 2_000;
    let text = match &*value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    if let Some((end, _)) = text.char_indices().nth(SHOWN) {
        *value = format!("{} … (cut; name its key for all of it)", &text[..end]).into();
    }
}

pub(crate) fn parse<T: DeserializeOwned>(inputs: Map<String, Value>) -> Result<T, Problem> {
    serde_json::from_value(inputs.into()).map_err(|error| {
        Problem::invalid(
            format!("the arguments cannot be used: {error}"),
            "see the input schema of the tool",
        )
    })
}

fn to_value(value: &impl Serialize) -> Result<Value, Problem> {
    serde_json::to_value(value)
        .map_err(|error| Problem::invalid(error.to_string(), "report this as a bug"))
}

impl ServerHandler for Tools {
    fn get_info(&self) -> McpConfig {
        McpConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("fabro", env!("CARGO_PKG_VERSION")))
            .with_instructions(
                "Runs of AI workflows: list, start, inspect and control them, and answer their gates.",
            )
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let allowed = KINDS.into_iter().filter(|(_, _, role, _)| *role <= self.role);
        let tools = allowed.map(|kind| self.tool(kind)).collect();
        Ok(ListToolsResult { tools, ..ListToolsResult::default() })
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let known =
            KINDS.iter().find(|(_, name, role, _)| *name == request.name && *role <= self.role);
        let Some((kind, ..)) = known else {
            let message = format!("there is no tool `{}`", request.name.escape_debug());
            return Err(ErrorData::invalid_params(message, None));
        };
        let result = self.call(*kind, request.arguments.unwrap_or_default()).await;
        let result = match result {
            Ok(value) => {
                let text = value.to_string();
                if text.len() > MAX_RESULT {
                    let end = text.floor_char_boundary(MAX_RESULT);
                    let cut = format!("{}\n… cut at {MAX_RESULT} bytes", &text[..end]);
                    CallToolResult::success(vec![ContentBlock::text(cut)])
                } else if value.is_object() {
                    CallToolResult::structured(value)
                } else {
                    CallToolResult::success(vec![ContentBlock::text(text)])
                }
            }
            Err(problem) => CallToolResult::error(vec![ContentBlock::text(problem.to_string())]),
        };
        Ok(result.into())
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::CallToolRequestParams;
    use rmcp::service::RunningService;
    use rmcp::{RoleClient, ServiceExt as _};

    use super::*;

    type Client = RunningService<RoleClient, ()>;

    async fn connect(dir: &std::path::Path, role: Role) -> Client {
        let store = Arc::new(SqliteStore::open(&dir.join("store")).unwrap());
        let config = ServerConfig {
            program: "fabro".into(),
            project: dir.to_owned(),
            user_file: None,
            home: None,
            allowed_hosts: Vec::new(),
        };
        let (near, far) = tokio::io::duplex(1 << 16);
        tokio::spawn(serve_mcp(store, config, role, None, tokio::io::split(far)));
        ().serve(tokio::io::split(near)).await.unwrap()
    }

    async fn call(client: &Client, name: &'static str, arguments: Value) -> String {
        let Value::Object(arguments) = arguments else { panic!("an object") };
        let request = CallToolRequestParams::new(name).with_arguments(arguments);
        match client.call_tool(request).await {
            Ok(result) => {
                let text = result.content[0].as_text().unwrap().text.clone();
                if result.is_error == Some(true) { format!("error: {text}") } else { text }
            }
            Err(error) => format!("refused: {error}"),
        }
    }

    #[tokio::test]
    async fn tools_are_those_of_the_role() {
        let dir = tempfile::tempdir().unwrap();
        let client = connect(dir.path(), Role::Answer).await;
        let tools = client.list_all_tools().await.unwrap();
        let names: Vec<_> = tools.iter().map(|tool| &*tool.name).collect();
        let expect = "list_runs list_workflows inspect_run inspect_stage list_gates list_artifacts \
            get_workflow_context answer_gate";
        assert_eq!(names.join(" "), expect);
        let refused = call(&client, "cancel_run", json!({})).await;
        assert!(refused.contains("there is no tool `cancel_run`"), "{refused}");
        let missing = call(&client, "inspect_run", json!({"run": "01X"})).await;
        assert!(missing.starts_with("error: run_not_found: "), "{missing}");
        let wrong = call(&client, "list_runs", json!({"state": "paused"})).await;
        assert!(wrong.starts_with("error: input_invalid: "), "{wrong}");
        let list = call(&client, "list_runs", json!({"limit": 2})).await;
        assert_eq!(list, r#"{"runs":[],"next":null}"#);
    }
}
