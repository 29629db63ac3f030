use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use crate::tool::Tool;
use futures_util::future::join_all;

use crate::mcp::error::ServerError;
use crate::mcp::link::{Link, Place};
use crate::mcp::tool::McpTool;
use crate::mcp::{Server, name};

/// How much of a server's own instructions an agent is given, in characters.
const INSTRUCTIONS: usize = 2000;

/// The servers of a session.
pub struct Servers {
    links: Vec<Arc<Link>>,
    tools: Vec<Arc<dyn Tool>>,
    failed: Vec<ServerError>,
}

impl Servers {
    /// Starts the servers, all at once, and asks them for their tools. Programs start in `cwd`, with
    /// the variables of `env`, and their own, as their whole environment.
    ///
    /// It returns when each server has answered, failed, or used up its time; those that failed are
    /// in [`failed`](Self::failed). Dropping the future kills what was started.
    pub async fn connect(servers: Vec<Server>, cwd: &Path, env: &[(String, String)]) -> Self {
        let place = Arc::new(Place { cwd: cwd.to_owned(), env: env.to_owned() });
        let link = |server| Arc::new(Link::new(server, Arc::clone(&place)));
        let links: Vec<_> = servers.into_iter().map(link).collect();
        let offers = join_all(links.iter().map(|link| link.offers())).await;
        let mut taken = BTreeSet::new();
        let mut connected = Self { links: Vec::new(), tools: Vec::new(), failed: Vec::new() };
        for (link, offer) in links.into_iter().zip(offers) {
            match offer {
                Ok((tools, instructions)) => {
                    connected.add(&link, tools, instructions, &mut taken);
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

    /// The servers that did not come up, for a warning about each.
    pub fn failed(&self) -> &[ServerError] {
        &self.failed
    }

    /// Ends the servers, all at once: programs get SIGTERM, and SIGKILL two seconds later. Tools
    /// that are called from now on fail.
    pub async fn close(self) {
        join_all(self.links.iter().map(|link| link.close())).await;
    }

    fn add(
        &mut self,
        link: &Arc<Link>,
        tools: Vec<rmcp::model::Tool>,
        instructions: Option<String>,
        taken: &mut BTreeSet<String>,
    ) {
        // They are about the server as a whole, so only its first tool has them.
        let mut instructions = instructions.map(|text| {
            let text: String = text.chars().take(INSTRUCTIONS).collect();
            format!("About all tools of the MCP server `{}`:\n\n{text}", link.server.name)
        });
        for tool in tools {
            let name = name::unique(&link.server.name, &tool.name, taken);
            let tool = McpTool::new(name, tool, Arc::clone(link), instructions.take());
            self.tools.push(Arc::new(tool));
        }
    }
}
