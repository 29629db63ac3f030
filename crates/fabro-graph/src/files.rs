use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use fabro_types::{Diagnostic, excerpt};

use crate::attrs::{Attr, Attrs};
use crate::includes::{with_includes, without_includes};
use crate::renamed::Renamed;
use crate::schema;
use crate::sources::{Sources, similar_workflow};
use crate::value::Value;
use crate::workflow::{Node, Workflow};

/// Replaces every `@path` of `goal`, `prompt`, `script`, `output_schema` and `stack.child_workflow` by
/// the text of that file, and `@@` by `@`; [`Attr::file`] keeps the path. Each file is read once. A
/// file that cannot be read is an error of the rule `missing-file`, one of
/// [`Workflow::findings`]. A second call does nothing: the texts of files may themselves begin
/// with `@`.
pub fn resolve_files(workflow: &mut Workflow, sources: &dyn Sources) {
    if workflow.files_resolved {
        return;
    }
    workflow.files_resolved = true;
    let names = schema::ATTRIBUTES.iter().filter(|known| known.file).map(|known| known.name);
    let texts = BTreeMap::new();
    let findings = Vec::new();
    let mut reader = Reader { sources, names: names.collect(), texts, findings };
    reader.resolve(&mut workflow.attrs);
    for node in workflow.graph.node_weights_mut() {
        reader.resolve(&mut node.attrs);
        let Node { attrs, renamed, .. } = node;
        for renamed in renamed {
            rename(attrs, renamed);
        }
    }
    workflow.findings.extend(reader.findings);
}

/// The texts of an imported node read the keys of its file under their new names.
fn rename(attrs: &mut Attrs, renamed: &Renamed) {
    let is_template = |name: &str| {
        matches!(name, "prompt" | "script" | "label" | "for_each" | "show")
            || schema::is_keyed(name)
    };
    // `for_each` and `show` contain context keys, or a template.
    let is_key = |attr: &Attr, text: &str| {
        matches!(&*attr.name, "for_each" | "show") && !text.contains("{{")
    };
    let texts = attrs.iter().filter(|attr| is_template(&attr.name));
    let changed: Vec<Attr> = texts
        .filter_map(|attr| {
            let text = attr.value.text()?;
            let names_key = is_key(attr, text);
            let text = if names_key { renamed.keys(text) } else { renamed.template(text) };
            let Cow::Owned(text) = text else { return None };
            Some(Attr { value: Value::String(text.into()), ..attr.clone() })
        })
        .collect();
    for attr in changed {
        attrs.set(attr);
    }
}

struct Reader<'a> {
    sources: &'a dyn Sources,
    /// The attributes that may name a file.
    names: Vec<&'static str>,
    texts: BTreeMap<Arc<str>, Option<Arc<str>>>,
    findings: Vec<Diagnostic>,
}

impl Reader<'_> {
    fn resolve(&mut self, attrs: &mut Attrs) {
        for at in 0..self.names.len() {
            if let Some(attr) = attrs.get(self.names[at])
                && let Some(resolved) = self.resolved(attr)
            {
                attrs.set(resolved);
            }
        }
        if let Some(attr) = attrs.get("prompt")
            && let Some(expanded) = self.with_includes(attr)
        {
            attrs.set(expanded);
        }
    }

    /// A prompt with the files that it includes; `None` when nothing changes.
    fn with_includes(&mut self, attr: &Attr) -> Option<Attr> {
        let path = attr.file.as_deref().unwrap_or_default();
        match with_includes(attr.value.text()?, path, self.sources) {
            Ok(text) => Some(Attr { value: Value::String(text?.into()), ..attr.clone() }),
            Err(reason) => {
                let message = format!("`{}` includes a file: {reason}", attr.written);
                let fix = "correct the path, which is relative to the file that includes it, and stays in the workflow's folder";
                let finding = Diagnostic::error("missing-file", attr.span, message);
                self.findings.push(finding.with_fix(fix));
                // The rest is checked without them: an `include` that is left would be another error.
                let text = without_includes(attr.value.text()?);
                Some(Attr { value: Value::String(text.into()), ..attr.clone() })
            }
        }
    }

    /// The attribute with its file's text; `None` when nothing changes.
    fn resolved(&mut self, attr: &Attr) -> Option<Attr> {
        let written = attr.value.text()?;
        if written.starts_with("@@") {
            return Some(Attr { value: Value::from(&written[1..]), ..attr.clone() });
        }
        let path: Arc<str> = attr.file_path()?.into();
        let text = match self.texts.get(&path) {
            Some(text) => text.clone(),
            None => self.read(&path, attr),
        };
        Some(Attr { value: Value::String(text?), file: Some(path), ..attr.clone() })
    }

    fn read(&mut self, path: &Arc<str>, attr: &Attr) -> Option<Arc<str>> {
        let text = match self.sources.read(path) {
            Ok(text) => Some(text.into()),
            Err(reason) => {
                let message =
                    format!("`{}` names the file `{}`: {reason}", attr.written, excerpt(path, 100));
                let finding = Diagnostic::error("missing-file", attr.span, message);
                let fix = if attr.name == "stack.child_workflow" {
                    similar_workflow(self.sources, path).unwrap_or_else(|| {
                        "create the file, or correct the path, which is relative to this workflow"
                            .to_owned()
                    })
                } else {
                    "create the file, correct the path, which is relative to this workflow, or write @@ for a text that begins with @".to_owned()
                };
                self.findings.push(finding.with_fix(fix));
                None
            }
        };
        self.texts.insert(path.clone(), text.clone());
        text
    }
}
