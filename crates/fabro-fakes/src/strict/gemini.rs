use serde_json::{Value, json};

use super::{Checked, Refusal, list, sealed, text};
use crate::Request;

/// Accepted in the place of a signature.
const SKIP: &str = "skip_thought_signature_validator";

pub(super) fn check(request: &Request, body: &Value) -> Checked {
    let path = request.path.split('?').next().unwrap_or_default();
    let model = path.rsplit('/').next().and_then(|it| it.split(':').next()).unwrap_or_default();
    let version = model.strip_prefix("gemini-").and_then(|rest| rest.chars().next());
    let Some(version) = version.and_then(|digit| digit.to_digit(10)) else {
        let message = format!(
            "models/{model} is not found for API version v1beta, or is not supported for generateContent."
        );
        return Err(refused(404, "NOT_FOUND", &message));
    };
    let config = &body["generationConfig"];
    let thinking = &config["thinkingConfig"];
    let level = thinking["thinkingLevel"].as_str().map(str::to_ascii_lowercase);
    if version >= 4 && !thinking["thinkingBudget"].is_null() {
        return Err(invalid("Thinking budget is not supported for this model."));
    }
    if version < 3 && level.is_some() {
        return Err(invalid("Thinking level is not supported for this model."));
    }
    let takes_xhigh = model.contains("hydrogen") || model.contains("neon");
    let is_refused = match level.as_deref() {
        Some("low" | "medium" | "high") | None => false,
        Some("minimal") => version >= 4,
        Some("xhigh") => !takes_xhigh,
        Some(_) => true,
    };
    if is_refused {
        return Err(invalid(format!(
            "Thinking level {} is not supported for this model.",
            level.unwrap_or_default()
        )));
    }
    if config["maxOutputTokens"].as_u64().is_some_and(|most| most > 65_536) {
        return Err(invalid(
            "Unable to submit request because it has a maxOutputTokens value that is out of the supported range: from 1 (inclusive) to 65537 (exclusive).",
        ));
    }
    for key in ["presencePenalty", "frequencyPenalty", "candidateCount"] {
        if version >= 4 && !config[key].is_null() {
            return Err(invalid(format!("{key} is not supported for this model.")));
        }
    }
    for declaration in list(&body["tools"][0]["functionDeclarations"]) {
        if !is_name(text(declaration, "name")) {
            return Err(invalid(
                "Invalid function name. Must start with a letter or an underscore. Must be alphameric (a-z, A-Z, 0-9), underscores (_), dots (.), colons (:), or dashes (-), with a maximum length of 64.",
            ));
        }
    }
    let has_tools = !list(&body["tools"]).is_empty();
    if version < 3 && has_tools && !config["responseMimeType"].is_null() {
        return Err(invalid(
            "Function calling with a response mime type: 'application/json' is unsupported",
        ));
    }
    contents_fit(list(&body["contents"]), version)?;
    Ok(if version >= 3 { vec![sealed("", model, "")] } else { Vec::new() })
}

fn refused(code: u16, status: &str, message: &str) -> Refusal {
    let error = json!({"code": code, "status": status, "message": message});
    Refusal { status: code, body: json!({"error": error}).to_string() }
}

fn invalid(message: impl Into<String>) -> Refusal {
    refused(400, "INVALID_ARGUMENT", &message.into())
}

fn is_name(name: &str) -> bool {
    let is_first = |it: char| it.is_ascii_alphabetic() || it == '_';
    let is_allowed = |it: char| is_first(it) || it.is_ascii_digit() || ".:-".contains(it);
    name.len() <= 64 && name.starts_with(is_first) && name.chars().all(is_allowed)
}

fn contents_fit(contents: &[Value], version: u32) -> Result<(), Refusal> {
    let has =
        |content: &Value, key: &str| list(&content["parts"]).iter().any(|it| !it[key].is_null());
    // The current turn: since the last text of the user.
    let is_question =
        |content: &Value| content["role"] == "user" && !has(content, "functionResponse");
    let turn = contents.iter().rposition(is_question).unwrap_or(0);
    let mut open: Vec<&Value> = Vec::new();
    for (place, content) in contents.iter().enumerate() {
        let parts = list(&content["parts"]);
        if parts.is_empty() {
            return Err(invalid(format!("contents[{place}].parts: must not be empty")));
        }
        let responses: Vec<_> =
            parts.iter().map(|part| &part["functionResponse"]).filter(|it| !it.is_null()).collect();
        if responses.len() != open.len() {
            return Err(invalid(
                "Please ensure that the number of function response parts is equal to the number of function call parts of the function call turn.",
            ));
        }
        for (call, response) in open.iter().zip(&responses) {
            if call["name"] != response["name"]
                || call["id"] != response["id"]
                || !response["response"].is_object()
            {
                return Err(invalid(format!(
                    "Function response {} does not match its call.",
                    response["name"]
                )));
            }
        }
        let before = place.checked_sub(1).map(|before| &contents[before]["role"]);
        if has(content, "functionCall") && before.is_none_or(|role| role != "user") {
            return Err(invalid(
                "Please ensure that function call turn comes immediately after a user turn or after a function response turn.",
            ));
        }
        open = parts.iter().map(|part| &part["functionCall"]).filter(|it| !it.is_null()).collect();
        let first = parts.iter().find(|part| !part["functionCall"].is_null());
        let Some(first) = first.filter(|_| version >= 3 && place > turn) else { continue };
        let signature = text(first, "thoughtSignature");
        if signature != SKIP && !signature.starts_with("sealed:") {
            let name = &first["functionCall"]["name"];
            return Err(invalid(format!(
                "Function call {name} in the {place}. content block is missing a thought_signature in functionCall parts."
            )));
        }
    }
    if !open.is_empty() {
        return Err(invalid("A function call has no response."));
    }
    if version >= 4 && contents.last().is_some_and(|last| last["role"] == "model") {
        return Err(invalid("The last content must not be of the role `model`."));
    }
    Ok(())
}
