//! What the agents of a run work with, from the settings kept with it and the environment.

use std::sync::Arc;
use std::time::Duration;

use fabro_config::{McpServer, McpTransport, ProviderSettings, expand_variables};
use fabro_handlers::{Agents, LocalToolbox, NoTools, RunSettings, Toolbox};
use fabro_llm::{Asking, Fallback};
use fabro_llm::{Provider, Secret};
use fabro_mcp::{Server, Transport};
use fabro_redact::{Redactor, is_secret_name};
use fabro_sandbox::{LocalExec, agent_env};
use fabro_tools::Tool;
use fabro_types::RunId;
use fabro_web::{HttpToolCall, WebFetch, WebSettings};

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
    let asking = Asking { fallbacks, ..Asking::default() };
    let asking = Some(asking).filter(|_| settings.model_script.is_none());
    Ok(Agents {
        settings: settings.agent.clone(),
        catalog: Arc::new(catalog(&settings.models)),
        asking,
        redactor,
        toolbox,
        backend_env: backend_env(settings, env),
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
    let headers = settings.agent.mcp.values().filter_map(|server| match &server.transport {
        McpTransport::Http { headers, .. } => Some(headers),
        McpTransport::Command { env, .. } => Some(env),
        _ => None,
    });
    for (name, value) in headers.chain(settings.agent.tools.iter().map(|it| &it.headers)).flatten()
    {
        if let Some(value) = Some(value).filter(|value| value.contains('$'))
            && let Ok(value) = expand_variables(value, variable)
        {
            values.extend(with_bare_token((name.clone(), value)));
        }
    }
    Redactor::new(values)
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
    let mend =
        |error: fabro_web::SetupError| SetupError::new(error.to_string(), "mend the settings");
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

/// Agents that are other programs bring their own tools and need their own keys: what an agent's
/// tools see, and the variables of the providers.
fn backend_env(settings: &RunSettings, env: Vec<(String, String)>) -> Vec<(String, String)> {
    let mut env = env;
    let usual = ["ANTHROPIC", "OPENAI", "GEMINI", "GOOGLE", "CLAUDE", "CODEX"];
    let is_theirs = |name: &str| usual.iter().any(|usual| name.starts_with(usual));
    let own = settings.providers.iter().filter_map(|provider| provider.api_key_env.as_deref());
    let own: Vec<_> = own.collect();
    let theirs = text_variables().filter(|(name, _)| is_theirs(name) || own.contains(&&**name));
    for (name, value) in theirs {
        if !env.iter().any(|(known, _)| *known == name) {
            env.push((name, value));
        }
    }
    env
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The variables of the environment that are text.
fn text_variables() -> impl Iterator<Item = (String, String)> {
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
    fn the_token_of_a_header_is_a_secret_of_its_own() {
        let header = ("Authorization".to_owned(), "Bearer abcdefgh12345".to_owned());
        let values = with_bare_token(header).into_iter().map(|(_, value)| value);
        assert_eq!(values.collect::<Vec<_>>(), ["Bearer abcdefgh12345", "abcdefgh12345"]);
    }
}
