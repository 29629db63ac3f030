//! Whether a response is one that docs/openapi.json describes. Every response of a test is checked.

use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::served::Response;

static DESCRIPTION: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("../../../../docs/openapi.json")).unwrap());

/// Checks the status, the headers, the media type and the shape of a response.
#[track_caller]
pub(crate) fn check(method: &str, path: &str, response: &Response) {
    let shown = format!("{method} {path}: {}", response.status);
    if response.status == 0 || path.contains("/../") {
        // The connection was closed before the response, or the address is none of the API.
        return;
    }
    let Some(methods) = methods_of(path) else {
        assert_eq!(response.problem(), "404 not_found", "{shown}");
        return;
    };
    let Some(operation) = methods.get(method.to_lowercase()) else {
        assert_eq!(response.problem(), "405 method_not_allowed", "{shown}");
        return;
    };
    let status = response.status.to_string();
    let range = format!("{}XX", &status[..1]);
    let described = &operation["responses"];
    let described = described.get(&status).or_else(|| described.get(range));
    let described = described.unwrap_or_else(|| panic!("{shown} is not described"));
    let described = match described["$ref"].as_str() {
        Some(reference) => DESCRIPTION.pointer(reference.strip_prefix('#').unwrap()).unwrap(),
        None => described,
    };
    for name in described["headers"].as_object().into_iter().flat_map(|headers| headers.keys()) {
        // Only a repeated request has it.
        let is_there = !response.header(&name.to_lowercase()).is_empty();
        assert!(is_there || name == "Idempotency-Replayed", "{shown} has no {name}");
    }
    if described.get("content").is_none() {
        assert_eq!(response.body, b"", "{shown}");
        return;
    }
    let media = response.header("content-type").split(';').next().unwrap();
    let content = &described["content"][media];
    assert!(content.is_object(), "{shown}: {media} is not described");
    if media.ends_with("/json") || media.ends_with("+json") {
        conforms(&content["schema"], &response.json(), &shown);
    }
}

/// The methods of an address. A stage at its end may have slashes.
fn methods_of(path: &str) -> Option<&'static Value> {
    let path = path.split('?').next().unwrap();
    let is_it = |known: &str| {
        let mut parts = path.split('/');
        known.split('/').all(|wanted| {
            parts.next().is_some_and(|part| {
                let is_name = wanted.starts_with('{') && !part.is_empty();
                wanted == part || is_name
            })
        }) && (known.ends_with("{stage}") || parts.next().is_none())
    };
    let paths = DESCRIPTION["paths"].as_object().unwrap();
    paths.iter().find(|(known, _)| is_it(known)).map(|(_, methods)| methods)
}

#[track_caller]
fn conforms(schema: &Value, value: &Value, shown: &str) {
    let mut schema = schema.clone();
    // References of schemas begin at the description.
    schema["components"] = json!({"schemas": DESCRIPTION["components"]["schemas"]});
    let validator = jsonschema::validator_for(&schema).unwrap();
    if let Err(error) = validator.validate(value) {
        panic!("{shown}: {error} in {value}");
    }
}
