/// A property of a stylesheet, which is also an attribute of nodes.
pub(crate) struct Property {
    /// The name of the attribute that it sets.
    pub(crate) name: &'static str,
    /// An older name that means the same.
    pub(crate) older: Option<&'static str>,
    pub(crate) values: Values,
}

/// What a property may be set to.
#[derive(Clone, Copy)]
pub(crate) enum Values {
    Text,
    OneOf(&'static [&'static str]),
    PositiveInteger,
}

/// All properties; their order is the order in which a cascade is told.
pub(crate) const PROPERTIES: [Property; 6] = [
    Property { name: "model", older: Some("llm_model"), values: Values::Text },
    Property { name: "provider", older: Some("llm_provider"), values: Values::Text },
    Property {
        name: "reasoning_effort",
        older: None,
        values: Values::OneOf(&["low", "medium", "high"]),
    },
    Property { name: "speed", older: None, values: Values::Text },
    Property { name: "backend", older: None, values: Values::OneOf(&["api", "cli", "acp"]) },
    Property { name: "max_tokens", older: None, values: Values::PositiveInteger },
];

/// The place of a property in [`PROPERTIES`].
pub(crate) fn find(name: &str) -> Option<usize> {
    PROPERTIES.iter().position(|property| property.name == name || property.older == Some(name))
}

/// The property that was probably meant.
pub(crate) fn nearest(name: &str) -> Option<&'static str> {
    let name = name.to_lowercase().replace('-', "_");
    PROPERTIES
        .iter()
        .flat_map(|property| [Some(property.name), property.older])
        .flatten()
        .map(|known| (strsim::osa_distance(&name, known), known))
        .filter(|(distance, known)| *distance <= known.len() / 3)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

impl Values {
    /// What is wrong with a value and what to write; `None` when nothing is.
    pub(crate) fn refuse(self, value: &str) -> Option<(&'static str, String)> {
        match self {
            Self::Text if value.is_empty() => {
                Some(("the value is empty", "give it a value or take the property out".to_owned()))
            }
            Self::OneOf(words) if !words.contains(&value) => {
                Some(("it has fixed values", format!("write {}", one_of(words))))
            }
            Self::PositiveInteger if !value.parse::<u64>().is_ok_and(|number| number > 0) => {
                Some(("it is a positive integer", "write a number such as 4096".to_owned()))
            }
            _ => None,
        }
    }
}

fn one_of(words: &[&str]) -> String {
    match words {
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
        [] => String::new(),
    }
}
