use std::collections::BTreeMap;
use std::sync::Arc;

use fabro_llm::{Model, ModelError, Part, Reply, Request, ToolSpec, collect};
use fabro_tools::ToolContext;
use fabro_tools::{Call, Output, Tool};
use fabro_types::Permissions;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

#[derive(Clone, Debug, Default)]
pub struct Asking {}

pub(crate) enum Progress<'a> {
    Part(&'a Part),
}

pub(crate) async fn ask(
    model: &dyn Model,
    request: Request,
    _options: &Asking,
    mut watch: impl FnMut(Progress<'_>) + Send,
) -> Result<Reply, ModelError> {
    collect(model.stream(request), |part| watch(Progress::Part(part))).await
}

#[derive(Clone, Default)]
pub struct ToolSet {
    tools: BTreeMap<String, Arc<dyn Tool>>,
}

impl ToolSet {
    pub fn with(mut self, tool: Arc<dyn Tool>) -> Self {
        self.tools.insert(tool.spec().name.clone(), tool);
        self
    }
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.get(name)
    }
    pub fn names(&self) -> Vec<String> {
        self.tools.keys().cloned().collect()
    }
    pub fn select(&self, names: &[String]) -> Self {
        let tools = self.tools.iter().filter(|(name, _)| names.contains(name));
        Self { tools: tools.map(|(name, tool)| (name.clone(), Arc::clone(tool))).collect() }
    }
    pub fn specs(&self, permissions: Permissions) -> Arc<[ToolSpec]> {
        self.tools
            .values()
            .filter(|tool| tool.needs() <= permissions)
            .map(|tool| tool.spec().clone())
            .collect()
    }
    pub async fn run(
        &self,
        name: &str,
        id: &str,
        arguments: &Value,
        context: &ToolContext,
        cancel: &CancellationToken,
        permissions: Permissions,
    ) -> Output {
        let Some(tool) = self.get(name) else { return Output::error("no such tool") };
        if tool.needs() > permissions {
            return Output::error("not permitted");
        }
        let Some(arguments) = arguments.as_object() else { return Output::error("no object") };
        tool.call(Call { id, arguments, context, cancel }).await
    }
}
