//! `fabro mcp`: MCP servers, and logins at them.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap_complete::ArgValueCandidates;
use fabro_config::{McpServer, McpTransport};
use fabro_run::mcp_login::{Login, LoginError, LoginRequest, is_logged_in, log_out};
use fabro_terminal::{Align, Table, clean};
use serde::Serialize;

use super::serve::{RoleName, server_config};
use crate::complete;
use crate::error::{failed, store, usage};
use crate::exit::Exit;
use crate::global::{Global, logins_dir, settings};
use crate::output;

/// The commands for MCP servers.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum McpCommand {
    List(McpListArgs),
    Login(McpLoginArgs),
    Logout(McpLogoutArgs),
    Serve(McpServeArgs),
    #[command(hide = true)]
    Context(McpContextArgs),
}

/// List the MCP servers of the settings
#[derive(clap::Args, Clone, Debug)]
pub struct McpListArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Log in to an MCP server that asks for it by OAuth
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro mcp login issues\n  fabro mcp login https://mcp.example.com/mcp --scope read\n\nPrints an address to open in a browser of this machine. The login is kept in the user's settings folder, for all runs of this user, and renewed by itself."
)]
pub struct McpLoginArgs {
    /// The server: its name in the settings, or its URL
    #[arg(add = ArgValueCandidates::new(complete::mcp_servers))]
    pub server: String,

    /// A scope to ask for; may be repeated [default: those that the server names]
    #[arg(long = "scope", value_name = "SCOPE")]
    pub scopes: Vec<String>,

    /// The client id that the authorization server knows [default: registers a new one]
    #[arg(long, value_name = "ID")]
    pub client_id: Option<String>,

    /// How long to wait for the browser, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub timeout: u64,
}

/// Forget the login at an MCP server
#[derive(clap::Args, Clone, Debug)]
pub struct McpLogoutArgs {
    /// The server: its name in the settings, or its URL
    #[arg(add = ArgValueCandidates::new(complete::mcp_servers))]
    pub server: String,
}

/// Serve the runs of the store as an MCP server, on stdin and stdout
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Example, for a client that starts MCP servers:\n  {\"mcpServers\": {\"fabro\": {\n    \"command\": \"fabro\", \"args\": [\"mcp\", \"serve\", \"--role\", \"read\"]}}}\n\nTools: list_runs, list_workflows, inspect_run, inspect_stage, list_gates, list_artifacts, get_workflow_context; with the role answer also answer_gate; with admin also steer_run, start_run, resume_run, cancel_run, fork_run and rewind_run. Within a run, tools that name no run mean that one."
)]
pub struct McpServeArgs {
    /// What the client may do
    #[arg(long, value_enum, value_name = "ROLE", default_value = "admin")]
    pub role: RoleName,
}

/// Serve the context of a stage to its agent, as an MCP server on stdin and stdout
#[derive(clap::Args, Clone, Debug)]
pub struct McpContextArgs {
    /// The file that the driver of the run wrote
    pub file: PathBuf,
}

/// A server as it is listed.
#[derive(Serialize)]
struct Row<'a> {
    name: &'a str,
    /// The URL, or the program.
    reached_by: &'a str,
    /// Whether a login is kept; null for a program.
    logged_in: Option<bool>,
}

/// Lists servers, logs in or out.
pub async fn mcp(command: McpCommand, global: &Global) -> anyhow::Result<Exit> {
    match command {
        McpCommand::List(args) => list(&args, global),
        McpCommand::Login(args) => login(args).await,
        McpCommand::Logout(args) => logout(&args),
        McpCommand::Serve(args) => serve(&args, global).await,
        McpCommand::Context(args) => context(&args).await,
    }
}

async fn serve(args: &McpServeArgs, global: &Global) -> anyhow::Result<Exit> {
    let store = Arc::new(global.store()?);
    let config = server_config(&[])?;
    // Set for what the stages of a run start.
    let run = std::env::var(fabro_run::RUN_ID_VARIABLE).ok();
    let streams = (stream(std::io::stdin().as_fd())?, stream(std::io::stdout().as_fd())?);
    let served =
        Box::pin(fabro_server::serve_mcp(store, config, args.role.role(), run, streams)).await;
    served.map_err(|error| {
        failed(error.to_string(), "this is for programs that speak MCP on stdin and stdout")
    })?;
    Ok(Exit::SUCCEEDED)
}

async fn context(args: &McpContextArgs) -> anyhow::Result<Exit> {
    let streams = (stream(std::io::stdin().as_fd())?, stream(std::io::stdout().as_fd())?);
    let served = fabro_server::serve_context(&args.file, streams).await;
    served.map_err(|error| failed(error.to_string(), "drivers start this for their agents"))?;
    Ok(Exit::SUCCEEDED)
}

/// A standard stream for the protocol alone.
fn stream(of: BorrowedFd<'_>) -> std::io::Result<tokio::fs::File> {
    Ok(tokio::fs::File::from_std(std::fs::File::from(of.try_clone_to_owned()?)))
}

fn list(args: &McpListArgs, global: &Global) -> anyhow::Result<Exit> {
    let settings = settings()?;
    let logins = logins()?;
    let rows: Vec<Row<'_>> =
        settings.agent.mcp.iter().map(|(name, server)| row(name, server, &logins)).collect();
    let paint = global.paint_stdout();
    output::report(args.json, &rows, || {
        if rows.is_empty() {
            return "no MCP server is configured: add [run.agent.mcp.NAME] to .fabro/config.toml\n"
                .to_owned();
        }
        let mut table = Table::new(&[
            ("server", Align::Left),
            ("reached by", Align::Left),
            ("login", Align::Left),
        ]);
        for row in &rows {
            let login = match row.logged_in {
                Some(true) => "yes",
                Some(false) => "no",
                None => "",
            };
            let cells = [clean(row.name), clean(row.reached_by), login.into()];
            table.row(cells.map(String::from));
        }
        table.render(paint, |_, text| text.to_owned())
    })?;
    Ok(Exit::SUCCEEDED)
}

fn row<'a>(name: &'a str, server: &'a McpServer, logins: &Path) -> Row<'a> {
    let (reached_by, logged_in) = match &server.transport {
        McpTransport::Command { command, .. } => (command, None),
        McpTransport::Http { url, .. } => (url, Some(is_logged_in(url, logins))),
    };
    Row { name, reached_by, logged_in }
}

async fn login(args: McpLoginArgs) -> anyhow::Result<Exit> {
    let url = url_of(&args.server)?;
    let logins = logins()?;
    let request = LoginRequest { scopes: args.scopes, client_id: args.client_id };
    let login = Login::begin(&url, request, &logins).await.map_err(|it| not_logged_in(&it))?;
    output::stderr(&format!(
        "Open this address in a browser of this machine, and agree there:\n\n  {}\n\n",
        clean(login.address())
    ));
    let limit = Duration::from_secs(args.timeout);
    login.finish(limit).await.map_err(|it| not_logged_in(&it))?;
    output::stderr(&format!("logged in to {}\n", clean(&args.server)));
    Ok(Exit::SUCCEEDED)
}

fn logout(args: &McpLogoutArgs) -> anyhow::Result<Exit> {
    let url = url_of(&args.server)?;
    let was = log_out(&url, &logins()?)
        .map_err(|it| store(format!("the login cannot be removed: {it}"), "remove it by hand"))?;
    let said = if was { "logged out of" } else { "there was no login at" };
    output::stderr(&format!("{said} {}\n", clean(&args.server)));
    Ok(Exit::SUCCEEDED)
}

/// The URL of a server that the settings name, or that is one itself.
fn url_of(server: &str) -> anyhow::Result<String> {
    if server.contains("://") {
        return Ok(server.to_owned());
    }
    let settings = settings()?;
    match settings.agent.mcp.get(server).map(|it| &it.transport) {
        Some(McpTransport::Http { url, .. }) => Ok(url.clone()),
        Some(McpTransport::Command { .. }) => Err(usage(
            format!("the MCP server `{server}` is a program, which asks for no login"),
            "set what it needs as variables under `env` of its settings",
        )),
        None => Err(usage(
            format!("the settings have no MCP server `{server}`"),
            "list them with `fabro mcp list`, or give the server's URL",
        )),
    }
}

fn logins() -> anyhow::Result<PathBuf> {
    logins_dir().ok_or_else(|| {
        usage(
            "the home directory is not known",
            "set HOME, or XDG_CONFIG_HOME, to an absolute path",
        )
    })
}

fn not_logged_in(error: &LoginError) -> anyhow::Error {
    let next = match error {
        LoginError::Url(_) => "give the server's URL, or its name in the settings",
        LoginError::TooLate(_) => "log in again, and open the address in a browser at once",
        LoginError::OtherState(_) => "log in again, and open the new address",
        LoginError::Denied(_) => "log in again, and agree in the browser",
        LoginError::NoClient(_) => {
            "register a client at the authorization server with the redirect address http://127.0.0.1/callback, and give its id with --client-id"
        }
        LoginError::Io(_) => "check the permissions of the user's settings folder",
        _ => "check the server's URL; a server without OAuth takes a header in its settings",
    };
    failed(error.to_string(), next)
}
