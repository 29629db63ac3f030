//! Variables of the templates that the engine renders itself: the list of a `for_each`, the reason
//! of an exit.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use fabro_context::Context;
use fabro_events::CreatedRun;
use fabro_plan::Vars;
use fabro_types::BlobRef;
use serde_json::Value;

use crate::NewBlob;
use crate::select::Values;

/// The goal, inputs and context of a run at one point.
pub(crate) struct RunVars {
    run: Arc<CreatedRun>,
    context: Context,
    read: BTreeMap<BlobRef, Result<Value, String>>,
    pending: Vec<NewBlob>,
    needs: Mutex<BTreeSet<BlobRef>>,
}

impl RunVars {
    pub(crate) fn new(run: &Arc<CreatedRun>, context: &Context, values: Values<'_>) -> Arc<Self> {
        Arc::new(Self {
            run: Arc::clone(run),
            context: context.clone(),
            read: values.read.clone(),
            pending: values.pending.to_vec(),
            needs: Mutex::default(),
        })
    }

    /// Takes the blobs that a template requested and that are not loaded yet.
    pub(crate) fn needs(&self) -> BTreeSet<BlobRef> {
        std::mem::take(&mut self.needs.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Vars for RunVars {
    fn goal(&self) -> &str {
        &self.run.goal
    }

    fn input(&self, name: &str) -> Option<Value> {
        self.run.inputs.get(name).cloned()
    }

    fn context(&self, key: &str) -> Result<Option<Arc<Value>>, String> {
        let Some(value) = self.context.get_shared(key) else { return Ok(None) };
        let Some(blob) = BlobRef::from_value(&value) else { return Ok(Some(value)) };
        let values = Values { read: &self.read, pending: &self.pending };
        if let Some(value) = values.get(&blob) {
            return value.map(|value| Some(Arc::new(value)));
        }
        self.needs.lock().unwrap_or_else(PoisonError::into_inner).insert(blob);
        Err("it is not read yet".to_owned())
    }
}
