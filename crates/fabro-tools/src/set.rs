use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use fabro_llm::ToolSpec;
use fabro_preamble::memory::ToolContext;
use fabro_redact::Redactor;
use fabro_sandbox::{FileHashes, KnownFiles};
use fabro_types::{Permissions, nearest};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::limit::Limits;
use crate::schema::Schema;
use crate::tool::{Call, CallGuard, Output, Tool};

/// The tools of an agent, by name.
///
/// Clones share the tools, so they are cheap, and they share which files were read: they are of one
/// agent.
#[derive(Clone, Default)]
pub struct ToolSet {
    tools: BTreeMap<String, Arc<Entry>>,
    redactor: Redactor,
    limits: Limits,
    known: KnownFiles,
    guard: Option<Arc<dyn CallGuard>>,
}

struct Entry {
    tool: Arc<dyn Tool>,
    /// Compiled once; an error is the result of each call.
    schema: Arc<Result<Schema, String>>,
}

impl ToolSet {
    /// No tools; outputs are redacted by the well-known shapes of keys and cut by the default
    /// [`Limits`].
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tool, replacing one of the same name.
    pub fn with(mut self, tool: Arc<dyn Tool>) -> Self {
        let schema = Arc::new(Schema::compile(&tool.spec().parameters));
        let tool = tool.with_known_files(&self.known).unwrap_or(tool);
        self.tools.insert(tool.spec().name.clone(), Arc::new(Entry { tool, schema }));
        self
    }

    /// Redacts these secrets in every output.
    pub fn with_redactor(self, redactor: Redactor) -> Self {
        Self { redactor, ..self }
    }

    /// Cuts every output to this.
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// Cuts every output to so many characters, where that is less than its [`Limits`] leave.
    pub fn bounded(self, chars: usize) -> Self {
        Self { limits: self.limits.bounded(chars), ..self }
    }

    /// Asks this before every call that is permitted and has valid arguments.
    pub fn with_guard(self, guard: Arc<dyn CallGuard>) -> Self {
        Self { guard: Some(guard), ..self }
    }

    /// Only the tools of these names. Unknown names are ignored; compare with [`names`](Self::names).
    pub fn select<N: AsRef<str>>(&self, names: &[N]) -> Self {
        self.filtered(|name, _| names.iter().any(|wanted| wanted.as_ref() == name))
    }

    /// Only the tools that may be called under these permissions.
    pub fn allowed(&self, permissions: Permissions) -> Self {
        self.filtered(|_, tool| tool.needs() <= permissions)
    }

    fn filtered(&self, keep: impl Fn(&str, &dyn Tool) -> bool) -> Self {
        let mut set = self.clone();
        set.tools.retain(|name, entry| keep(name, &*entry.tool));
        set
    }

    /// The same tools for another agent, which has read no files yet.
    pub fn for_another_agent(&self) -> Self {
        let known = KnownFiles::default();
        let tools = self.tools.iter().filter_map(|(name, entry)| {
            let tool = entry.tool.with_known_files(&known)?;
            Some((name.clone(), Arc::new(Entry { tool, schema: Arc::clone(&entry.schema) })))
        });
        let mut set = self.clone();
        set.tools.extend(tools);
        Self { known, ..set }
    }

    /// Adds the files that the agent has read by earlier calls: see [`Output::files_seen`].
    pub fn add_known_files(&self, files: &FileHashes) {
        self.known.add(files);
    }

    /// The names, in order.
    pub fn names(&self) -> Vec<String> {
        self.tools.keys().cloned().collect()
    }

    /// The tool of a name.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.get(name).map(|entry| &entry.tool)
    }

    /// The specs of the tools that may be called under these permissions, by name.
    pub fn specs(&self, permissions: Permissions) -> Arc<[ToolSpec]> {
        let tools = self.tools.values().map(|entry| &entry.tool);
        tools.filter(|tool| tool.needs() <= permissions).map(|tool| tool.spec().clone()).collect()
    }

    /// The instructions of the tools that may be called under these permissions, as Markdown; empty
    /// when none has any.
    pub fn instructions(&self, permissions: Permissions) -> String {
        let tools = self.tools.values().map(|entry| &entry.tool);
        let parts = tools.filter(|tool| tool.needs() <= permissions).filter_map(|tool| {
            let text = tool.instructions()?.trim();
            (!text.is_empty()).then(|| format!("### {}\n\n{text}", tool.spec().name))
        });
        parts.collect::<Vec<_>>().join("\n\n")
    }

    /// Runs one call to its end. A call of a tool that does not exist or is not permitted, or with
    /// arguments that do not match its schema, results in an error that says what to do.
    ///
    /// The text of the output is redacted, then cut; the names of files are redacted, and not reported
    /// as read when they have secrets.
    pub async fn run(
        &self,
        name: &str,
        id: &str,
        arguments: &Value,
        context: &ToolContext,
        cancel: &CancellationToken,
        permissions: Permissions,
    ) -> Output {
        let none = Value::Object(Map::new());
        let mut output = match self.prepare(name, arguments, &none, permissions) {
            Ok((tool, arguments)) => {
                let call = Call { id, arguments, context, cancel, redactor: &self.redactor };
                let refusal = match &self.guard {
                    Some(guard) => guard.refusal(name, call).await,
                    None => None,
                };
                let output = match refusal {
                    Some(refusal) => Output::error(refusal),
                    None => tool.call(call).await,
                };
                if let Some(guard) = &self.guard {
                    guard.ended(name, call, &output).await;
                }
                output
            }
            Err(problem) => Output::error(problem),
        };
        // Not before: the agent gets nothing of a dropped call.
        self.known.add(&output.files_seen);
        self.redactor.redact_all(&mut output.files_read);
        self.redactor.redact_all(&mut output.files_modified);
        let is_plain = |path: &String| matches!(self.redactor.redact(path), Cow::Borrowed(_));
        output.files_seen.retain(|path, _| is_plain(path));
        let text = self.limits.cut(self.redactor.redact(&output.text)).into_owned();
        Output { text, ..output }
    }

    fn prepare<'a>(
        &'a self,
        name: &str,
        arguments: &'a Value,
        none: &'a Value,
        permissions: Permissions,
    ) -> Result<(&'a dyn Tool, &'a Map<String, Value>), String> {
        let Some(entry) = self.tools.get(name) else { return Err(self.unknown(name)) };
        let needed = entry.tool.needs();
        if needed > permissions {
            return Err(format!(
                "`{name}` is not permitted: it needs permissions \"{}\", and this agent has \"{}\". \
                 Go on without it, or say in your answer that permissions=\"{}\" on the node or in \
                 [run.agent] would allow it.",
                needed.as_str(),
                permissions.as_str(),
                needed.as_str(),
            ));
        }
        // Some models send null for no arguments.
        let arguments = if arguments.is_null() { none } else { arguments };
        let Value::Object(members) = arguments else {
            return Err(no_object(name, arguments));
        };
        let schema = (*entry.schema).as_ref().map_err(|problem| {
            format!("`{name}` cannot be called: its JSON Schema is not valid: {problem}")
        })?;
        let problems = schema.problems(arguments);
        if !problems.is_empty() {
            return Err(format!(
                "the arguments of `{name}` are not valid: {problems}. Call it again."
            ));
        }
        Ok((&*entry.tool, members))
    }

    fn unknown(&self, name: &str) -> String {
        let shown: String = name.chars().take(64).collect();
        match nearest(&shown, self.tools.keys().map(String::as_str)) {
            Some(known) => format!("there is no tool `{shown}`: did you mean `{known}`?"),
            None if self.tools.is_empty() => {
                format!("there is no tool `{shown}`, and no other tool")
            }
            None => {
                format!("there is no tool `{shown}`: choose from {}", self.names().join(", "))
            }
        }
    }
}

/// The names only.
impl fmt::Debug for ToolSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolSet").field("tools", &self.names()).finish_non_exhaustive()
    }
}

/// The error for arguments that are not an object. JSON that does not parse arrives as a string.
fn no_object(name: &str, arguments: &Value) -> String {
    let text = arguments.as_str();
    match text.and_then(|text| serde_json::from_str::<Value>(text).err()) {
        Some(error) => format!(
            "the arguments of `{name}` are not valid JSON ({error}): call it again, with all of them"
        ),
        None => format!("the arguments of `{name}` are {}: pass a JSON object", kind(arguments)),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
