//! The list of a fan-out with `for_each`: read once, when the fan-out begins. Its event keeps it.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use fabro_blob::{NewBlob, OFFLOAD_LIMIT, offload_value};
use fabro_context::{Context, keys};
use fabro_events::{CreatedRun, ForEach, PlannedBranch};
use fabro_plan::{ForEachSpec, ListSource, TextTemplate};
use fabro_types::{BlobRef, BranchPath, excerpt};
use serde_json::Value;

use crate::list_text;
use crate::run_vars::RunVars;
use crate::select::{LookupError, SelectError, Values, find};

/// What an element is in a dry run in which nothing makes the list.
const ASSUMED: &str = "(assumed)";

/// The least that a large element of a long list has, in bytes of its JSON.
const LEAST_LARGE: usize = 256;

/// What a list is read from.
pub(crate) struct ListQuery<'a> {
    pub(crate) node: &'a str,
    pub(crate) spec: &'a ForEachSpec,
    pub(crate) run: &'a Arc<CreatedRun>,
    pub(crate) context: &'a Context,
    pub(crate) values: Values<'a>,
}

impl ListQuery<'_> {
    /// The list, or why there is none. A dry run, in which nothing makes lists, assumes one element.
    pub(crate) fn read(&self) -> Result<ForEach, SelectError> {
        let name = Arc::clone(&self.spec.name);
        let found = match self.value() {
            Err(SelectError::Needs(needs)) => return Err(SelectError::Needs(needs)),
            Err(SelectError::Lookup(LookupError(message))) => Err(message),
            Ok(value) => self.elements(value),
        };
        let items = match found {
            Err(_) if self.run.dry_run => Vec::new(),
            Err(message) => return Err(SelectError::Lookup(LookupError(message))),
            Ok(items) => items,
        };
        if self.run.dry_run && items.is_empty() {
            return Ok(ForEach { name, items: vec![Arc::new(ASSUMED.into())], assumed: true });
        }
        let most = self.spec.max_items;
        if items.len() > most {
            return Err(SelectError::Lookup(LookupError(format!(
                "{} has {} elements, and `{}` takes at most {most}: give it a higher max_items",
                self.what(),
                items.len(),
                self.node
            ))));
        }
        Ok(ForEach { name, items: items.into_iter().map(Arc::new).collect(), assumed: false })
    }

    fn value(&self) -> Result<Option<Value>, SelectError> {
        let needs = RefCell::new(BTreeSet::new());
        let read = |blob: &BlobRef| {
            self.values.get(blob).unwrap_or_else(|| {
                needs.borrow_mut().insert(*blob);
                Err("it is not read yet".to_owned())
            })
        };
        let found = match &self.spec.list {
            ListSource::Key(key) => {
                let value = find(key, self.context, &read);
                value.map(|value| value.map(std::borrow::Cow::into_owned))
            }
            ListSource::Text(text) => self.rendered(text, &mut needs.borrow_mut()),
        };
        let found = found.and_then(|value| match value.as_ref().and_then(BlobRef::from_value) {
            Some(blob) => read(&blob).map(Some).map_err(LookupError),
            None => Ok(value),
        });
        let needs = needs.take();
        if needs.is_empty() {
            found.map_err(SelectError::Lookup)
        } else {
            Err(SelectError::Needs(needs))
        }
    }

    fn rendered(
        &self,
        text: &TextTemplate,
        needs: &mut BTreeSet<BlobRef>,
    ) -> Result<Option<Value>, LookupError> {
        let vars = RunVars::new(self.run, self.context, self.values);
        let value = text.template.value(Arc::clone(&vars) as _);
        needs.append(&mut vars.needs());
        value.map(Some).map_err(|error| LookupError(error.to_string()))
    }

    fn elements(&self, value: Option<Value>) -> Result<Vec<Value>, String> {
        let holds = match value {
            Some(Value::Array(items)) => return Ok(items),
            Some(Value::String(text)) => match list_text::elements(&text) {
                Ok(items) => return Ok(items),
                Err(holds) => holds,
            },
            None => {
                return Err(format!("{} has no value: no stage has written one", self.what()));
            }
            Some(Value::Null) => "null".to_owned(),
            Some(Value::Object(_)) => "a JSON object".to_owned(),
            Some(other) => format!("`{other}`"),
        };
        Err(format!("{} holds {holds}: a list is a JSON array, or lines of text", self.what()))
    }

    /// How messages call the list.
    fn what(&self) -> String {
        format!("the list `{}` of `{}`", excerpt(self.spec.text.trim(), 100), self.node)
    }
}

/// The branches of a list. Of a long list, large elements go to `blobs`.
pub(crate) fn branches(
    list: &mut ForEach,
    fan_out: &str,
    target: &Arc<str>,
    blobs: &mut Vec<NewBlob>,
) -> Vec<PlannedBranch> {
    let size: usize = list.items.iter().map(|item| item.to_string().len()).sum();
    if size > OFFLOAD_LIMIT {
        let share = (OFFLOAD_LIMIT / list.items.len().max(1)).max(LEAST_LARGE);
        for item in &mut list.items {
            if BlobRef::from_value(item).is_none() {
                offload_value(item, share, blobs);
            }
        }
    }
    let branch = |index| PlannedBranch {
        branch: BranchPath::element(fan_out, target, index),
        target: Arc::clone(target),
        edge: None,
    };
    (0..list.items.len()).map(branch).collect()
}

/// Gives a branch its element.
pub(crate) fn enter(context: &mut Context, list: &ForEach, index: usize) {
    if let Some(item) = list.items.get(index) {
        context.set(Arc::clone(&list.name), Arc::clone(item));
        context.set(format!("{}_index", list.name), Value::from(index));
        context.set(keys::ITEM_INDEX, Value::from(index));
    }
}
