use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use crate::tool::Tool;
use fabro_config::McpServer;
use futures_util::future::join_all;

use crate::mcp::error::{ServerError, brief};
use crate::mcp::link::{Link, ListedTools, WorkDir};
use crate::mcp::name;
use crate::mcp::offer;
use crate::mcp::tool::McpTool;

/// How much of a server's own instructions is given to an agent, in characters.
const INSTRUCTIONS: usize = 2000;

/// The servers of a session.
pub struct Servers {
    links: Vec<Arc<Link>>,
    tools: Vec<Arc<dyn Tool>>,
    failed: Vec<ServerError>,
    warnings: Vec<String>,
}

impl Servers {
    /// Starts the servers in parallel, and gets their tools. Programs start in `cwd`, with the
    /// variables of `env`, and their own, as their whole environment. The variables in the settings of
    /// the servers are expanded already. `logins` is the directory of the logins at servers.
    ///
    /// It returns when each server has answered, failed, or timed out; those that failed are
    /// in [`failed`](Self::failed). Dropping the future kills the servers.
    pub async fn connect(
        servers: BTreeMap<String, McpServer>,
        cwd: &Path,
        env: &[(String, String)],
        logins: Option<&Path>,
    ) -> Self {
        let logins = logins.map(Path::to_owned);
        let work_dir = Arc::new(WorkDir { logins, cwd: cwd.to_owned(), env: env.to_owned() });
        let link = |(name, server)| Arc::new(Link::new(name, server, Arc::clone(&work_dir)));
        let links: Vec<_> = servers.into_iter().map(link).collect();
        let offers = join_all(links.iter().map(|link| link.start())).await;
        let mut taken = BTreeSet::new();
        let mut connected =
            Self { links: Vec::new(), tools: Vec::new(), failed: Vec::new(), warnings: Vec::new() };
        for (link, offer) in links.into_iter().zip(offers) {
            match offer {
                Ok(listed) => {
                    connected.add(&link, listed, &mut taken);
                    connected.links.push(link);
                }
                Err(error) => connected.failed.push(error),
            }
        }
        connected
    }

    /// Their tools, in the order of the servers and of their own lists.
    pub fn tools(&self) -> Vec<Arc<dyn Tool>> {
        self.tools.clone()
    }

    /// The servers that failed to start, for a warning about each.
    pub fn failed(&self) -> &[ServerError] {
        &self.failed
    }

    /// The tools that are left out, and why.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Ends the servers, all at once: programs get SIGTERM, and SIGKILL two seconds later. Tools
    /// that are called from now on fail.
    pub async fn close(self) {
        join_all(self.links.iter().map(|link| link.close())).await;
    }

    fn add(&mut self, link: &Arc<Link>, listed: ListedTools, taken: &mut BTreeSet<String>) {
        let ListedTools { tools, left_out, instructions } = listed;
        let warnings = left_out.map(|text| format!("MCP server `{}`: {text}", link.name));
        self.warnings.extend(warnings);
        // They are about the server as a whole, so only its first tool has them.
        let mut instructions = instructions.map(|text| {
            let text: String = text.chars().take(INSTRUCTIONS).collect();
            format!("About all tools of the MCP server `{}`:\n\n{text}", link.name)
        });
        for listed in tools {
            let tool = match offer::read(&listed) {
                Ok(tool) => tool,
                Err(problem) => {
                    let name = brief(listed["name"].as_str().unwrap_or_default());
                    self.warnings.push(format!(
                        "MCP server `{}`: its tool `{name}` is left out: {}",
                        link.name,
                        brief(&problem)
                    ));
                    continue;
                }
            };
            let name = name::unique(&link.name, &tool.name, taken);
            let tool = McpTool::new(name, tool, Arc::clone(link), instructions.take());
            self.tools.push(Arc::new(tool));
        }
    }
}
