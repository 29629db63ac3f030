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

/// All properties, in the order in which [`Stylesheet::properties`](crate::Stylesheet::properties)
/// lists them.
pub(crate) const PROPERTIES: [Property; 6] = [
    Property { name: "model", older: Some("llm_model"), values: Values::Text },
    Property { name: "provider", older: Some("llm_provider"), values: Values::Text },
    Property {
        name: "reasoning_effort",
        older: None,
        values: Values::OneOf(&fabro_types::REASONING_EFFORTS),
    },
    Property { name: "speed", older: None, values: Values::Text },
    Property { name: "backend", older: None, values: Values::OneOf(&["api", "cli", "acp"]) },
    Property { name: "max_tokens", older: None, values: Values::PositiveInteger },
];

/// The index of a property in [`PROPERTIES`].
pub(crate) fn find(name: &str) -> Option<usize> {
    PROPERTIES.iter().position(|property| property.name == name || property.older == Some(name))
}

/// The names of all properties.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    PROPERTIES.iter().map(|property| property.name)
}

impl Values {
    /// What is wrong with a value and how to fix it; `None` for a valid value.
    pub(crate) fn reject(self, value: &str) -> Option<(&'static str, String)> {
        match self {
            Self::Text if value.is_empty() => {
                Some(("the value is empty", "write a value, or remove the property".to_owned()))
            }
            Self::OneOf(words) if !words.contains(&value) => {
                Some(("not one of its values", format!("write {}", fabro_types::one_of(words))))
            }
            Self::PositiveInteger if !value.parse::<u64>().is_ok_and(|number| number > 0) => {
                Some(("not a positive integer", "write a number such as 4096".to_owned()))
            }
            _ => None,
        }
    }
}
