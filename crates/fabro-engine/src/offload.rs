//! Large values leave the context for blobs before they reach the log.

use fabro_blob::{NewBlob, OFFLOAD_LIMIT, offload_value};
use fabro_context::keys;
use fabro_types::{BlobRef, ContextPatch};

/// Puts references in the place of a patch's large values and of all command output. The bytes they
/// name are added to `blobs`.
pub fn offload_patch(patch: &mut ContextPatch, blobs: &mut Vec<NewBlob>) {
    for (key, value) in patch {
        if BlobRef::from_value(value).is_none() {
            let always = key == keys::COMMAND_OUTPUT || key == keys::COMMAND_STDERR;
            offload_value(value, if always { 0 } else { OFFLOAD_LIMIT }, blobs);
        }
    }
}

/// How many values of the patch are references.
pub(crate) fn blobs_in(patch: &ContextPatch) -> u64 {
    patch.values().filter(|value| BlobRef::from_value(value).is_some()).count() as u64
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;

    #[track_caller]
    fn check(key: &str, value: &Value, expect_blob: bool) {
        let mut patch = ContextPatch::from([(key.to_owned(), Arc::new(value.clone()))]);
        let mut blobs = Vec::new();
        offload_patch(&mut patch, &mut blobs);
        assert_eq!(BlobRef::from_value(&patch[key]).is_some(), expect_blob, "{key}");
        if expect_blob {
            assert_eq!(serde_json::from_slice::<Value>(&blobs[0].1).unwrap(), *value);
            assert_eq!(BlobRef::from_value(&patch[key]), Some(blobs[0].0));
        }
        assert_eq!(blobs_in(&patch), u64::from(expect_blob));
    }

    #[test]
    fn exactly_the_limit_stays() {
        check("plan", &json!("x".repeat(OFFLOAD_LIMIT - 2)), false);
        check("plan", &json!("x".repeat(OFFLOAD_LIMIT - 1)), true);
        check("plan", &json!("\n".repeat(OFFLOAD_LIMIT / 2)), true);
        check("plan", &json!(vec![1; OFFLOAD_LIMIT / 2]), true);
        check("plan", &json!({"a": "x".repeat(OFFLOAD_LIMIT)}), true);
        check("command.output", &json!(""), true);
    }
}
