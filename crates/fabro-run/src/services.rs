//! The services of a run, from its settings and the environment: model, tools, MCP servers, redactor
//! and handlers.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::{BundledChildren, RunSettings};
use fabro_config::{
    ArtifactPatterns, HookAction, McpServer, McpTransport, WebSearchSettings, expand_variables,
};
use fabro_events::EventSink;
use fabro_external_agents::CliAgent;
use fabro_gate::{AutoApprove, Chain, Interviewer};
use fabro_handlers::{
    Agents, Guard, LocalToolbox, ModelDefaults, NoTools, Registry, Services, Toolbox,
};
use fabro_llm::{Fallback, ModelSource, RequestPolicy, Script, SimulatedModel, Unconfigured};
use fabro_redact::{Redactor, is_secret_name};
use fabro_sandbox::artifacts::Rules;
use fabro_sandbox::{Exec, LocalExec, Sandbox, agent_env};
use fabro_tools::Tool;
use fabro_tools::web::{HttpToolCall, WebFetch, WebSearch, WebSettings};
use fabro_types::RunId;

use crate::SetupError;
use crate::answers::{UsedAnswers, prepared_answers};
use crate::hooks::runners;
use crate::models::{catalog, client};
use crate::run_id::RUN_ID_VARIABLE;
use crate::run_services::RunServices;
use crate::secrets::{expand_all, expand_env, text_variables, variable};

/// Builds the services of a run from its settings and the environment of this process.
#[derive(Clone, Copy, Debug)]
pub struct ServiceBuilder<'s> {
    settings: &'s RunSettings,
    dry_run: bool,
    sandbox: Option<&'s Arc<Sandbox>>,
}

impl RunSettings {
    /// The models of stages that name none.
    pub fn model_defaults(&self) -> ModelDefaults {
        ModelDefaults {
            run: self.model.clone(),
            run_provider: self.provider.clone(),
            configured: self.configured_model.clone(),
            configured_provider: self.configured_provider.clone(),
        }
    }
}

impl<'s> ServiceBuilder<'s> {
    /// For a run with these settings.
    pub fn new(settings: &'s RunSettings) -> Self {
        Self { settings, dry_run: false, sandbox: None }
    }

    /// In a dry run models are simulated, and nothing is executed.
    #[must_use]
    pub fn dry_run(self, dry_run: bool) -> Self {
        Self { dry_run, ..self }
    }

    /// Scripts and agents run in this sandbox.
    #[must_use]
    pub(crate) fn in_sandbox(self, sandbox: Option<&'s Arc<Sandbox>>) -> Self {
        Self { sandbox, ..self }
    }

    /// What runs scripts.
    pub(crate) fn exec(self) -> LocalExec {
        let exec = LocalExec::new();
        match self.sandbox {
            Some(sandbox) => exec.in_sandbox(Arc::clone(sandbox)),
            None => exec,
        }
    }

    /// The models for LLM stages: a simulation in a dry run, else a script, else the providers.
    ///
    /// # Errors
    ///
    /// The script is not valid, or a provider cannot be set up.
    pub fn models(self) -> Result<ModelSource, SetupError> {
        if self.dry_run {
            return Ok(Arc::new(|stage| Arc::new(SimulatedModel { node: stage.node.into() })));
        }
        match &self.settings.model_script {
            Some(text) => {
                let script = Script::from_json(text).map_err(|error| {
                    let message = format!("the model script is not valid: {error}");
                    SetupError::new(message, "fix the file")
                })?;
                Ok(Arc::new(move |stage| Arc::new(script.model_of(stage))))
            }
            None if self.settings.providers.is_empty() => {
                Ok(Arc::new(|stage| Arc::new(Unconfigured { node: stage.node.into() })))
            }
            None => {
                let client = Arc::new(client(&self.settings.providers, &self.settings.models)?);
                Ok(Arc::new(move |_| Arc::clone(&client) as _))
            }
        }
    }

    /// Whether there is a model for LLM stages.
    pub fn has_model(self) -> bool {
        self.settings.model_script.is_some() || !self.settings.providers.is_empty()
    }

    /// The handlers of a run. `events` is its log so far: prepared answers are used once, unless a
    /// rewind discarded the gate.
    pub(crate) fn registry(
        self,
        run: RunId,
        used: &UsedAnswers,
        services: &RunServices,
        sink: Arc<dyn EventSink>,
        guard: Option<Arc<dyn Guard>>,
    ) -> Result<Arc<Registry>, SetupError> {
        let settings = self.settings;
        let agents =
            Agents { guard, ..self.agents(Some(run), self.redactor(), services.logins.clone())? };
        let program = services.program.as_deref().and_then(|path| path.to_str()).map(str::to_owned);
        let agents = Agents { context_program: program, ..agents };
        Ok(Registry::new(Services {
            exec: (!self.dry_run).then(|| Arc::new(self.exec()) as Arc<dyn Exec>),
            env: settings.env.clone().into_iter().collect(),
            models: self.models()?,
            defaults: settings.model_defaults(),
            agents,
            interviewer: self.interviewer(used, Arc::clone(&services.interviewer))?,
            user: services.user.clone(),
            children: Arc::new(BundledChildren),
            artifacts: Some(artifact_rules(&settings.artifacts)?),
            sink,
            clock: Arc::clone(&services.clock),
        }))
    }

    /// Prepared answers come first, then automatic approval or `interviewer`.
    fn interviewer(
        self,
        used: &UsedAnswers,
        interviewer: Arc<dyn Interviewer>,
    ) -> Result<Arc<dyn Interviewer>, SetupError> {
        let is_automatic = self.settings.auto_approve || self.dry_run;
        let last = if is_automatic { Arc::new(AutoApprove) } else { interviewer };
        Ok(match prepared_answers(self.settings, used)? {
            Some(answers) => Arc::new(Chain(answers, last)),
            None => last,
        })
    }

    /// Checks before the run exists that its services can be built.
    pub(crate) fn check(self) -> Result<(), SetupError> {
        expand_env(&self.settings.env)?;
        self.models()?;
        self.agents(None, Redactor::default(), None)?;
        artifact_rules(&self.settings.artifacts)?;
        prepared_answers(self.settings, &UsedAnswers::new())?;
        runners(self.settings, &Redactor::default())?;
        Ok(())
    }

    /// What the agents of a run work with. `run` is `None` before the run exists.
    fn agents(
        self,
        run: Option<RunId>,
        redactor: Redactor,
        logins: Option<PathBuf>,
    ) -> Result<Agents, SetupError> {
        let settings = self.settings;
        let marker = run.map(|run| (RUN_ID_VARIABLE.to_owned(), run.to_string()));
        let own = settings.env.clone().into_iter().chain(marker);
        // Those of the user name directories of this machine.
        let user = text_variables().filter(|_| !settings.sandbox.is_remote());
        let env = agent_env(user, own);
        let toolbox: Arc<dyn Toolbox> = if self.dry_run {
            Arc::new(NoTools)
        } else {
            let exec = Arc::new(self.exec());
            let toolbox = LocalToolbox::new(exec, env.clone(), redactor.clone());
            let toolbox = toolbox.in_sandbox(self.sandbox.cloned());
            let toolbox = toolbox.with_tools(web_tools(settings, &redactor)?);
            Arc::new(toolbox.with_servers(mcp_servers(settings)?, logins))
        };
        Ok(Agents {
            settings: settings.agent.clone(),
            catalog: Arc::new(catalog(&settings.models)),
            asking: self.request_policy(),
            redactor,
            guard: None,
            toolbox,
            backend_env: backend_env(text_variables(), env),
            backend_keys: backend_keys(settings, text_variables()),
            sandbox: self.sandbox.cloned(),
            context_program: None,
        })
    }

    /// Retries and fallbacks; `None` for a scripted model, which has neither.
    pub fn request_policy(self) -> Option<RequestPolicy> {
        let fallbacks = self.settings.fallbacks.iter().map(Fallback::new).collect();
        let policy = RequestPolicy { fallbacks, ..RequestPolicy::default() };
        Some(policy).filter(|_| self.settings.model_script.is_none())
    }

    /// The redactor of a run whose variables are expanded already. It knows every secret of the
    /// settings and the environment: variables, keys and headers of providers, tools and servers, and the
    /// secrets of webhooks.
    pub(crate) fn redactor(self) -> Redactor {
        let settings = self.settings;
        let own = settings.env.clone().into_iter();
        let all = text_variables().chain(own);
        let mut secrets: Vec<_> = all.filter_map(secret_of_variable).collect();
        for provider in &settings.providers {
            // A missing variable is reported when the provider is set up.
            let key = provider.api_key(variable).ok().flatten();
            secrets.extend(key.map(|key| (format!("{} key", provider.name), key)));
            secrets.extend(secret_references(&provider.headers));
        }
        for server in settings.agent.mcp.values() {
            match &server.transport {
                McpTransport::Command { env, .. } => secrets.extend(secret_references(
                    // Other variables may refer to what is not secret, such as the home directory.
                    env.iter().filter(|(name, _)| is_secret_name(name)),
                )),
                McpTransport::Http { headers, .. } => secrets.extend(secret_references(headers)),
            }
        }
        let search = settings.agent.web_search.as_ref();
        let key = search.and_then(|search| search_key(search).ok().flatten());
        secrets.extend(key.map(|key| ("web_search key".to_owned(), key)));
        for tool in &settings.agent.tools {
            secrets.extend(secret_references(&tool.headers));
        }
        for hook in &settings.hooks {
            if let HookAction::Http { headers, .. } = &hook.action {
                secrets.extend(secret_references(headers));
            }
        }
        for name in &settings.secret_variables {
            if let Some(value) = variable(name) {
                // It may be written without the prefix that only says what it is.
                let bare = value.strip_prefix("whsec_").map(ToOwned::to_owned);
                secrets
                    .extend([Some(value), bare].into_iter().flatten().map(|it| (name.clone(), it)));
            }
        }
        secrets.extend(secret_references(&settings.secret_headers));
        Redactor::new(secrets)
    }

    /// The redactor of a run whose settings are read back: variables that refer to the environment
    /// have their current values, except in a dry run; those that are not set are left out.
    pub fn recorded_redactor(self) -> Redactor {
        if self.dry_run {
            return self.redactor();
        }
        let mut settings = self.settings.clone();
        settings.env.retain(|_, value| match expand_variables(value, variable) {
            Ok(expanded) => {
                *value = expanded;
                true
            }
            Err(_) => false,
        });
        ServiceBuilder::new(&settings).redactor()
    }
}

/// What counts as an artifact.
pub(crate) fn artifact_rules(patterns: &ArtifactPatterns) -> Result<Rules, SetupError> {
    Rules::new(&patterns.include, &patterns.exclude)
        .map_err(|error| SetupError::new(format!("`run.artifacts`: {error}"), "fix the pattern"))
}

/// The values that refer to a variable of the environment, with the bare token of each header:
/// `Bearer TOKEN` is as secret as `TOKEN`.
fn secret_references<'v>(
    values: impl IntoIterator<Item = (&'v String, &'v String)>,
) -> Vec<(String, String)> {
    let mut secrets = Vec::new();
    for (name, value) in values {
        if value.contains('$')
            && let Ok(value) = expand_variables(value, variable)
        {
            if let Some((_, token)) = value.split_once(' ') {
                secrets.push((name.clone(), token.to_owned()));
            }
            secrets.push((name.clone(), value));
        }
    }
    secrets
}

fn web_tools(
    settings: &RunSettings,
    redactor: &Redactor,
) -> Result<Vec<Arc<dyn Tool>>, SetupError> {
    let not_valid = |error: fabro_tools::web::SetupError| {
        SetupError::new(error.to_string(), "fix the settings")
    };
    let allow = settings.agent.web_allow.clone().unwrap_or_default();
    let web = WebFetch::new(WebSettings { allow, ..WebSettings::default() });
    let mut tools: Vec<Arc<dyn Tool>> = vec![Arc::new(web.map_err(not_valid)?)];
    if !settings.sandbox.has_network() {
        // They run here, and what an agent asks of them could carry what it has read.
        tools.clear();
    } else if let Some(search) = &settings.agent.web_search {
        let key = search_key(search)?;
        let search = WebSearch::new(search, key.as_deref(), redactor.clone()).map_err(not_valid)?;
        tools.push(Arc::new(search));
    }
    for tool in &settings.agent.tools {
        let headers = expand_all(&format!("tool `{}`", tool.name), &tool.headers)?;
        let call =
            HttpToolCall::new(tool.clone(), &headers, redactor.clone()).map_err(not_valid)?;
        tools.push(Arc::new(call));
    }
    Ok(tools)
}

/// The key of the search engine, as far as it needs one.
fn search_key(search: &WebSearchSettings) -> Result<Option<String>, SetupError> {
    let Some(name) = search.key_variable() else { return Ok(None) };
    match variable(name).filter(|key| !key.is_empty()) {
        Some(key) => Ok(Some(key)),
        None => Err(SetupError::new(
            format!("the key of [run.agent.web_search] is missing: {name} is not set"),
            "set the variable, or remove [run.agent.web_search] from the settings",
        )),
    }
}

/// The MCP servers of the settings, with variables expanded.
fn mcp_servers(settings: &RunSettings) -> Result<BTreeMap<String, McpServer>, SetupError> {
    let mut servers = settings.agent.mcp.clone();
    for (name, server) in &mut servers {
        let values = match &mut server.transport {
            McpTransport::Command { env, .. } => env,
            McpTransport::Http { headers, .. } => headers,
        };
        *values = expand_all(&format!("MCP server `{name}`"), &*values)?;
    }
    Ok(servers)
}

/// Variables of proxies and of the certificates that proxies need. The processes that an agent's tools
/// start do not get them.
const NETWORK: [&str; 12] = [
    "ALL_PROXY",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "all_proxy",
    "https_proxy",
    "http_proxy",
    "no_proxy",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
];

/// The environment of external agents, which call their models themselves: that of an agent's tools,
/// and the proxy variables of the `user`'s environment.
fn backend_env(
    user: impl IntoIterator<Item = (String, String)>,
    env: Vec<(String, String)>,
) -> Vec<(String, String)> {
    let network = user.into_iter().filter(|(name, _)| NETWORK.contains(&&**name));
    let all: BTreeMap<_, _> = network.chain(env).collect();
    all.into_iter().collect()
}

/// The provider variables of external agents, and the key variables that the settings name.
fn backend_keys(
    settings: &RunSettings,
    user: impl IntoIterator<Item = (String, String)>,
) -> Vec<(String, String)> {
    let named = |name: &str| {
        settings.providers.iter().any(|provider| provider.api_key_env.as_deref() == Some(name))
    };
    let is_key =
        |name: &str| CliAgent::ALL.iter().any(|agent| agent.is_own_variable(name)) || named(name);
    user.into_iter().filter(|(name, _)| is_key(name)).collect()
}

/// A variable with the part of it that is secret: all of it by its name, or the password of a URL.
fn secret_of_variable((name, value): (String, String)) -> Option<(String, String)> {
    if is_secret_name(&name) {
        return Some((name, value));
    }
    let password = Redactor::url_password(&value)?.to_owned();
    Some((name, password))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_of_agents_are_marked_with_their_run() {
        let run = RunId::from_parts(1, 2);
        let mut settings = RunSettings::default();
        settings.env.insert("FABRO_RUN_ID".to_owned(), "another".to_owned());
        let agents =
            ServiceBuilder::new(&settings).agents(Some(run), Redactor::default(), None).unwrap();
        let marked = agents.backend_env.iter().filter(|(name, _)| name == "FABRO_RUN_ID");
        let runs: Vec<_> = marked.map(|(_, run)| run.clone()).collect();
        assert_eq!(runs, [run.to_string()]);
    }

    #[test]
    fn a_reference_to_a_secret_is_not_redacted() {
        let path = std::env::var("PATH").unwrap();
        let mut settings = RunSettings::default();
        settings.env.insert("APP_TOKEN".to_owned(), "of-$PATH".to_owned());
        settings.env.insert("OTHER_TOKEN".to_owned(), "$FABRO_NOT_SET_AT_ALL".to_owned());
        let redactor = ServiceBuilder::new(&settings).recorded_redactor();
        for text in ["echo of-$PATH", "echo $FABRO_NOT_SET_AT_ALL"] {
            assert_eq!(redactor.redact(text), text);
        }
        assert_eq!(redactor.redact(&format!("of-{path}")), "[redacted:APP_TOKEN]");
    }

    #[test]
    fn secrets_of_webhooks_and_collectors_are_secret_whatever_their_names() {
        let path = std::env::var("PATH").unwrap();
        let mut settings =
            RunSettings { secret_variables: vec!["PATH".to_owned()], ..RunSettings::default() };
        settings.secret_headers.insert("x-collector".to_owned(), "for-$PATH".to_owned());
        let redactor = ServiceBuilder::new(&settings).recorded_redactor();
        assert_eq!(redactor.redact(&format!("in {path}")), "in [redacted:PATH]");
        assert_eq!(redactor.redact(&format!("in for-{path}")), "in [redacted:x-collector]");
    }

    #[test]
    fn variables_of_an_mcp_server_are_secret_by_name() {
        let path = std::env::var("PATH").unwrap();
        let own = |name: &str| (name.to_owned(), "in-$PATH".to_owned());
        let transport = McpTransport::Command {
            command: "x".to_owned(),
            args: Vec::new(),
            env: [own("SEARCH"), ("A_TOKEN".to_owned(), "of-$PATH".to_owned())].into(),
        };
        let mut settings = RunSettings::default();
        let server = McpServer { transport, ..McpServer::default() };
        settings.agent.mcp.insert("s".to_owned(), server);
        let text = format!("in-{path}");
        let redactor = ServiceBuilder::new(&settings).redactor();
        assert_eq!(redactor.redact(&text), text);
        assert_eq!(redactor.redact(&format!("of-{path}")), "[redacted:A_TOKEN]");
    }

    #[test]
    fn external_agents_get_proxy_variables_and_keys_separately() {
        let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let user = [
            ("ANTHROPIC_API_KEY", "1"),
            ("HTTPS_PROXY", "2"),
            ("OPENAI_BASE_URL", "3"),
            ("SSL_CERT_FILE", "4"),
            ("OTHER_API_KEY", "5"),
        ]
        .map(own);
        let tools = [("PATH", "6"), ("SSL_CERT_FILE", "7")].map(own).to_vec();
        let names = |list: Vec<(String, String)>| -> Vec<String> {
            list.into_iter().map(|(name, value)| format!("{name}={value}")).collect()
        };
        let env = names(backend_env(user.clone(), tools));
        assert_eq!(env, ["HTTPS_PROXY=2", "PATH=6", "SSL_CERT_FILE=7"]);
        let keys = names(backend_keys(&RunSettings::default(), user));
        assert_eq!(keys, ["ANTHROPIC_API_KEY=1", "OPENAI_BASE_URL=3"]);
    }

    #[test]
    fn the_bare_token_of_a_header_is_a_secret() {
        let path = std::env::var("PATH").unwrap();
        let headers = BTreeMap::from([("Authorization".to_owned(), "Bearer $PATH".to_owned())]);
        let values = secret_references(&headers).into_iter().map(|(_, value)| value);
        assert_eq!(values.collect::<Vec<_>>(), [path.clone(), format!("Bearer {path}")]);
    }
}
