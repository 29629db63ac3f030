//! What the agents of a run work with, from the settings kept with it and the environment.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fabro_config::{McpServer, McpTransport, ProviderSettings, expand_variables};
use fabro_external_agents::CliAgent;
use fabro_handlers::{Agents, LocalToolbox, NoTools, RunSettings, Toolbox};
use fabro_llm::{Fallback, RequestPolicy};
use fabro_llm::{Provider, Secret};
use fabro_redact::{Redactor, is_secret_name};
use fabro_sandbox::{LocalExec, agent_env};
use fabro_tools::Tool;
use fabro_tools::mcp::{Server, Transport};
use fabro_tools::web::{HttpToolCall, WebFetch, WebSettings};
use fabro_types::RunId;

use crate::{SetupError, catalog};

/// What the agents of a run work with, if there is a run already; nothing at all in a dry run.
pub fn agents(
    settings: &RunSettings,
    run: Option<RunId>,
    redactor: Redactor,
    dry_run: bool,
) -> Result<Agents, SetupError> {
    // By this a later driver finds what one that died left running.
    let marker = run.map(|run| ("FABRO_RUN_ID".to_owned(), run.to_string()));
    let env = agent_env(text_variables(), settings.env.clone().into_iter().chain(marker));
    let toolbox: Arc<dyn Toolbox> = if dry_run {
        Arc::new(NoTools)
    } else {
        let exec = Arc::new(LocalExec::new());
        let toolbox = LocalToolbox::new(exec, env.clone(), redactor.clone());
        Arc::new(toolbox.with_tools(web(settings, &redactor)?).with_servers(servers(settings)?))
    };
    // Answers of a script are final.
    let fallbacks = settings.fallbacks.iter().map(Fallback::new).collect();
    let asking = RequestPolicy { fallbacks, ..RequestPolicy::default() };
    let asking = Some(asking).filter(|_| settings.model_script.is_none());
    Ok(Agents {
        settings: settings.agent.clone(),
        catalog: Arc::new(catalog(&settings.models)),
        asking,
        redactor,
        toolbox,
        backend_env: backend_env(text_variables(), env),
        backend_keys: backend_keys(settings, text_variables()),
    })
}

/// Knows the values of everything that sounds secret: variables of the environment and of the run,
/// keys and headers of providers and servers.
pub fn redactor(settings: &RunSettings) -> Redactor {
    let own = settings.env.iter().map(|(name, value)| (name.clone(), value.clone()));
    let mut values: Vec<_> =
        text_variables().chain(own).filter(|(name, _)| is_secret_name(name)).collect();
    for provider in &settings.providers {
        // One that is missing is told when the provider is set up.
        let key = provider.api_key(variable).ok().flatten();
        values.extend(key.map(|key| (format!("{} key", provider.name), key)));
        let written = provider.headers.iter().filter(|(_, value)| value.contains('$'));
        let headers = written.filter_map(|(name, value)| {
            Some((name.clone(), expand_variables(value, variable).ok()?))
        });
        values.extend(headers.flat_map(with_bare_token));
    }
    let servers = settings.agent.mcp.values();
    let env = servers.clone().filter_map(|server| match &server.transport {
        McpTransport::Command { env, .. } => Some(env),
        _ => None,
    });
    // A server may be told the user's home just as well.
    let env = env.flatten().filter(|(name, _)| is_secret_name(name));
    let headers = servers.filter_map(|server| match &server.transport {
        McpTransport::Http { headers, .. } => Some(headers),
        _ => None,
    });
    let headers = headers.chain(settings.agent.tools.iter().map(|it| &it.headers)).flatten();
    for (name, value) in headers.chain(env) {
        if let Some(value) = Some(value).filter(|value| value.contains('$'))
            && let Ok(value) = expand_variables(value, variable)
        {
            values.extend(with_bare_token((name.clone(), value)));
        }
    }
    Redactor::new(values)
}

/// The redactor of a run whose settings are read back. Other than in a dry run, secrets of
/// `[run.sandbox.env]` that are references to variables have the values that those have now; where
/// there is none, there is nothing to be found.
pub fn recorded_redactor(settings: &RunSettings, dry_run: bool) -> Redactor {
    if dry_run {
        return redactor(settings);
    }
    let expand = |(name, value): (&String, &String)| {
        Some((name.clone(), expand_variables(value, variable).ok()?))
    };
    let env = settings.env.iter().filter_map(expand).collect();
    redactor(&RunSettings { env, ..settings.clone() })
}

/// `Bearer TOKEN` is as secret as `TOKEN`.
fn with_bare_token((name, value): (String, String)) -> Vec<(String, String)> {
    let token = value.split_once(' ').map(|(_, token)| (name.clone(), token.to_owned()));
    std::iter::once((name, value)).chain(token).collect()
}

/// A provider as the client takes it.
pub fn provider(settings: &ProviderSettings) -> Result<Provider, SetupError> {
    let missing = |error: fabro_config::MissingVariable| {
        SetupError::new(
            format!("provider `{}`: {error}", settings.name),
            "set the variable, or take it out of the settings",
        )
    };
    let usual = Provider::new(&settings.name, settings.kind);
    Ok(Provider {
        base_url: settings.base_url.clone(),
        key: settings.api_key(variable).map_err(missing)?.map(Secret::new),
        headers: settings.resolved_headers(variable).map_err(missing)?,
        request_timeout: settings.request_timeout.or(usual.request_timeout),
        stream_timeout: settings.stream_timeout.or(usual.stream_timeout),
        ..usual
    })
}

fn web(settings: &RunSettings, redactor: &Redactor) -> Result<Vec<Arc<dyn Tool>>, SetupError> {
    let allow = settings.agent.web_allow.clone().unwrap_or_default();
    let web = WebFetch::new(WebSettings { allow, ..WebSettings::default() });
    let mend = |error: fabro_tools::web::SetupError| {
        SetupError::new(error.to_string(), "mend the settings")
    };
    let mut tools: Vec<Arc<dyn Tool>> = vec![Arc::new(web.map_err(mend)?)];
    for tool in &settings.agent.tools {
        let headers = tool.headers.iter().map(|(name, value)| {
            let value = expand_variables(value, variable).map_err(|error| {
                SetupError::new(format!("tool `{}`: {error}", tool.name), "set the variable")
            });
            value.map(|value| (name.clone(), value))
        });
        let headers = headers.collect::<Result<_, SetupError>>()?;
        let call = HttpToolCall::new(tool.clone(), &headers, redactor.clone()).map_err(mend)?;
        tools.push(Arc::new(call));
    }
    Ok(tools)
}

fn servers(settings: &RunSettings) -> Result<Vec<Server>, SetupError> {
    settings.agent.mcp.iter().map(|(name, server)| self::server(name, server)).collect()
}

fn server(name: &str, settings: &McpServer) -> Result<Server, SetupError> {
    let expand = |(key, value): (&String, &String)| {
        let value = expand_variables(value, variable).map_err(|error| {
            SetupError::new(format!("MCP server `{name}`: {error}"), "set the variable")
        });
        value.map(|value| (key.clone(), value))
    };
    let transport = match &settings.transport {
        McpTransport::Command { command, args, env } => Transport::Stdio {
            command: command.clone(),
            args: args.clone(),
            env: env.iter().map(expand).collect::<Result<_, SetupError>>()?,
        },
        McpTransport::Http { url, headers } => Transport::Http {
            url: url.clone(),
            headers: headers.iter().map(expand).collect::<Result<_, SetupError>>()?,
        },
        _ => {
            return Err(SetupError::new(
                format!("MCP server `{name}` has a transport that is not known"),
                "use command or url",
            ));
        }
    };
    let usual = Server::new(name, transport);
    let or = |set: Option<Duration>, usual| set.unwrap_or(usual);
    Ok(Server {
        context: settings.context,
        startup_timeout: or(settings.startup_timeout, usual.startup_timeout),
        tool_timeout: or(settings.tool_timeout, usual.tool_timeout),
        ..usual
    })
}

/// Variables by which programs reach the network where it is not open: proxies, and the certificates
/// of those who look into what passes. Not for what an agent's tools run.
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

/// Agents that are other programs reach their models by themselves: what an agent's tools see, and how
/// to get there. `user` are the variables of the environment.
fn backend_env(
    user: impl IntoIterator<Item = (String, String)>,
    env: Vec<(String, String)>,
) -> Vec<(String, String)> {
    let network = user.into_iter().filter(|(name, _)| NETWORK.contains(&&**name));
    let all: BTreeMap<_, _> = network.chain(env).collect();
    all.into_iter().collect()
}

/// The variables of the providers of those agents, and the keys that the settings name.
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

pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The variables of the environment that are text.
pub(crate) fn text_variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_agents_start_says_which_run_it_belongs_to() {
        let run = RunId::from_parts(1, 2);
        let mut settings = RunSettings::default();
        settings.env.insert("FABRO_RUN_ID".to_owned(), "another".to_owned());
        let agents = agents(&settings, Some(run), Redactor::default(), false).unwrap();
        let marked = agents.backend_env.iter().filter(|(name, _)| name == "FABRO_RUN_ID");
        let runs: Vec<_> = marked.map(|(_, run)| run.clone()).collect();
        assert_eq!(runs, [run.to_string()]);
    }

    #[test]
    fn a_reference_is_not_taken_for_the_secret() {
        let path = std::env::var("PATH").unwrap();
        let mut settings = RunSettings::default();
        settings.env.insert("APP_TOKEN".to_owned(), "of-$PATH".to_owned());
        settings.env.insert("OTHER_TOKEN".to_owned(), "$FABRO_NOT_SET_AT_ALL".to_owned());
        let redactor = recorded_redactor(&settings, false);
        for text in ["echo of-$PATH", "echo $FABRO_NOT_SET_AT_ALL"] {
            assert_eq!(redactor.redact(text), text);
        }
        assert_eq!(redactor.redact(&format!("of-{path}")), "[redacted:APP_TOKEN]");
    }

    #[test]
    fn what_a_server_is_told_is_secret_by_its_name() {
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
        assert_eq!(redactor(&settings).redact(&text), text);
        assert_eq!(redactor(&settings).redact(&format!("of-{path}")), "[redacted:A_TOKEN]");
    }

    #[test]
    fn other_programs_get_their_way_to_the_network_and_all_keys_apart() {
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
    fn the_token_of_a_header_is_a_secret_of_its_own() {
        let header = ("Authorization".to_owned(), "Bearer abcdefgh12345".to_owned());
        let values = with_bare_token(header).into_iter().map(|(_, value)| value);
        assert_eq!(values.collect::<Vec<_>>(), ["Bearer abcdefgh12345", "abcdefgh12345"]);
    }
}
