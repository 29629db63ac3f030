//! Reading attributes.

use fabro_graph::Attrs;

/// The text of an attribute; `None` when it is absent or only whitespace.
pub(crate) fn text<'a>(attrs: &'a Attrs, name: &str) -> Option<&'a str> {
    attrs.text(name).filter(|text| !text.trim().is_empty())
}
