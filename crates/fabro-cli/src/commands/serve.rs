//! `fabro serve`.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use clap::builder::PossibleValue;
use fabro_server::{Role, ServeError, Server, ServerConfig};
use fabro_terminal::clean;

use crate::error::{failed, usage};
use crate::exit::Exit;
use crate::global::{Global, cwd, home, settings, user_file};
use crate::output;

/// Serve runs to browsers and programs over HTTP
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  fabro serve\n  fabro serve --port 8080 --role read\n  curl -H \"Authorization: Bearer $TOKEN\" http://127.0.0.1:4710/api/v1/runs\n\nThe printed address holds a token: whoever has it can do what its role allows. Runs are driven by processes of their own: stopping the server does not stop runs. docs/server.md describes the HTTP API."
)]
pub struct ServeArgs {
    /// The port; 0 for any that is free
    #[arg(long, value_name = "N", default_value_t = 4710)]
    pub port: u16,

    /// Print an address with this role, and take no tokens of others; may be repeated [default: admin]
    #[arg(long = "role", value_name = "ROLE")]
    pub roles: Vec<RoleName>,

    /// Listen on this address instead of 127.0.0.1: other machines can connect, without TLS
    #[arg(long, value_name = "ADDR", requires = "allowed_hosts")]
    pub listen: Option<IpAddr>,

    /// A name of the host that requests may use; may be repeated
    #[arg(long = "allow-host", value_name = "NAME")]
    pub allowed_hosts: Vec<String>,
}

/// A role as an option.
#[derive(Clone, Copy, Debug)]
pub struct RoleName(Role);

impl clap::ValueEnum for RoleName {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self(Role::Read), Self(Role::Answer), Self(Role::Admin)]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let help = match self.0 {
            Role::Read => "see runs",
            Role::Answer => "answer gates too",
            Role::Admin => "start and change runs too",
        };
        Some(PossibleValue::new(self.0.as_str()).help(help))
    }
}

impl RoleName {
    /// The role.
    pub fn role(self) -> Role {
        self.0
    }
}

/// What a server needs to know of this process: the program and the project.
pub fn server_config(allowed_hosts: &[String]) -> anyhow::Result<ServerConfig> {
    Ok(ServerConfig {
        program: std::env::current_exe()?,
        project: cwd()?,
        user_file: user_file(),
        home: home(),
        allowed_hosts: allowed_hosts.to_vec(),
    })
}

/// Serves until it is interrupted.
pub fn serve(args: &ServeArgs, global: &Global) -> anyhow::Result<Exit> {
    // Reports of long runs are computed beside the events that others wait for.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build()?;
    let result = runtime.block_on(listen(args, global));
    runtime.shutdown_background();
    result
}

async fn listen(args: &ServeArgs, global: &Global) -> anyhow::Result<Exit> {
    let ip = args.listen.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let mut roles: Vec<Role> = args.roles.iter().map(|name| name.0).collect();
    roles.sort();
    roles.dedup();
    if roles.is_empty() {
        roles.push(Role::Admin);
    }
    let config = server_config(&args.allowed_hosts)?;
    let store = Arc::new(global.store()?);
    let address = SocketAddr::new(ip, args.port);
    let server = Server::bind(address, store, &roles, config).await.map_err(|error| {
        let message = error.to_string();
        match error {
            ServeError::Listen { .. } => usage(message, "name another port with --port"),
            _ => failed(message, "remove the file; every address that was printed ends with it"),
        }
    })?;
    let hooks = settings()?.webhooks;
    let variable = |name: &str| std::env::var(name).ok();
    let warn = |text: String| output::stderr(&format!("warning: {}\n", clean(&text)));
    let server = server.with_webhooks(hooks, variable, warn).map_err(|error| {
        usage(error.to_string(), "correct [[webhooks]] of the settings, or set its variable")
    })?;
    if !ip.is_loopback() {
        global.warn([format!(
            "{} is reachable from other machines, and nothing is encrypted: put a proxy with TLS in front",
            server.address()
        )]);
    }
    let mut text = String::new();
    for (role, address) in server.addresses() {
        let _ = writeln!(text, "{role}: {address}");
    }
    output::text(&text)?;
    output::stderr("press Ctrl-C to stop; runs continue\n");
    tokio::select! {
        never = server.run() => match never {},
        ended = tokio::signal::ctrl_c() => ended?,
    }
    Ok(Exit::SUCCEEDED)
}
