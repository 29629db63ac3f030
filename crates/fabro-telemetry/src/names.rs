//! Names of attributes and operations: the semantic conventions of OpenTelemetry for generative AI, in one
//! place, and our own below `fabro.`.

/// What a span does: one of the operations below.
pub const OPERATION: &str = "gen_ai.operation.name";
/// The operation of a run.
pub const INVOKE_WORKFLOW: &str = "invoke_workflow";
/// The operation of an agent.
pub const INVOKE_AGENT: &str = "invoke_agent";
/// The operation of a request to a model.
pub const CHAT: &str = "chat";
/// The operation of a call of a tool.
pub const EXECUTE_TOOL: &str = "execute_tool";

/// The name of the workflow.
pub const WORKFLOW_NAME: &str = "gen_ai.workflow.name";
/// The node of an agent's stage.
pub const AGENT_NAME: &str = "gen_ai.agent.name";
/// The conversation that a span belongs to.
pub const CONVERSATION_ID: &str = "gen_ai.conversation.id";
/// Who serves the model: see [`provider_name`].
pub const PROVIDER_NAME: &str = "gen_ai.provider.name";
/// The model that was asked.
pub const REQUEST_MODEL: &str = "gen_ai.request.model";
/// The model that answered.
pub const RESPONSE_MODEL: &str = "gen_ai.response.model";
/// Tokens sent, those of caches included.
pub const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
/// Tokens received, those of reasoning included.
pub const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
/// Tokens sent that the provider had cached.
pub const CACHE_READ_TOKENS: &str = "gen_ai.usage.cache_read.input_tokens";
/// Tokens sent that the provider wrote into its cache.
pub const CACHE_WRITE_TOKENS: &str = "gen_ai.usage.cache_creation.input_tokens";
/// Tokens received that were reasoning.
pub const REASONING_TOKENS: &str = "gen_ai.usage.reasoning.output_tokens";
/// What a model was sent, when contents are asked for.
pub const INPUT_MESSAGES: &str = "gen_ai.input.messages";
/// What a model answered, when contents are asked for.
pub const OUTPUT_MESSAGES: &str = "gen_ai.output.messages";
/// The tool.
pub const TOOL_NAME: &str = "gen_ai.tool.name";
/// The call, as the model names it.
pub const TOOL_CALL_ID: &str = "gen_ai.tool.call.id";
/// The arguments of a call, when contents are asked for.
pub const TOOL_ARGUMENTS: &str = "gen_ai.tool.call.arguments";
/// The result of a call, when contents are asked for.
pub const TOOL_RESULT: &str = "gen_ai.tool.call.result";
/// The class of a failure.
pub const ERROR_TYPE: &str = "error.type";

/// The id of a run.
pub const RUN_ID: &str = "fabro.run.id";
/// How a run or a stage ended, as the command line says it.
pub const STATUS: &str = "fabro.status";
/// The node of a stage.
pub const NODE: &str = "fabro.node";
/// Which visit of the node, from 1.
pub const VISIT: &str = "fabro.visit";
/// The branch of a fan-out.
pub const BRANCH: &str = "fabro.branch";
/// The handler of a stage.
pub const HANDLER: &str = "fabro.handler";
/// How many attempts a stage took.
pub const ATTEMPTS: &str = "fabro.attempts";
/// The price in US dollars, as far as it is known.
pub const COST: &str = "fabro.cost_usd";

/// Names of providers in the conventions, by those of our settings; others are as the settings have them.
const PROVIDER_NAMES: [(&str, &str); 11] = [
    ("azure", "azure.ai.openai"),
    ("bedrock", "aws.bedrock"),
    ("gemini", "gcp.gemini"),
    ("google", "gcp.gemini"),
    ("grok", "x_ai"),
    ("mistral", "mistral_ai"),
    ("openai-responses", "openai"),
    ("vertex", "gcp.vertex_ai"),
    ("watsonx", "ibm.watsonx.ai"),
    ("x-ai", "x_ai"),
    ("xai", "x_ai"),
];

/// The value of [`PROVIDER_NAME`] for a provider of the settings.
pub fn provider_name(provider: &str) -> &str {
    let known = PROVIDER_NAMES.iter().find(|(ours, _)| *ours == provider);
    known.map_or(provider, |(_, theirs)| theirs)
}
