//! What templates read in attributes that are rendered when a run is created: conditions, models,
//! commands of ACP agents, labels.

use std::sync::Arc;

use fabro_template::{Mode, Template, Values};
use serde_json::{Map, Value};

/// What is known of a run when it is created.
#[derive(Clone, Debug, PartialEq)]
pub struct Constants(Arc<Values>);

impl Constants {
    /// The rendered goal and the inputs.
    pub fn new(goal: &str, inputs: &Map<String, Value>) -> Self {
        let inputs = inputs.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        Self(Arc::new(Values { goal: goal.to_owned(), inputs, ..Values::default() }))
    }

    /// Whether the run has an input, which a name of `a.b` looks into.
    pub fn has_input(&self, name: &str) -> bool {
        let name = name.split_once('.').map_or(name, |(name, _)| name);
        self.0.inputs.contains_key(name)
    }

    /// The text of a template that reads nothing else.
    ///
    /// # Errors
    /// Why it cannot be rendered, as a fragment.
    pub fn render(&self, template: &Template) -> Result<String, String> {
        let values = Arc::clone(&self.0);
        template.render(values, Mode::Text).map_err(|error| error.to_string())
    }
}
