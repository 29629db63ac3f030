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
    if open.is_empty() { Ok(()) } else { Err(invalid("A function call has no response.")) }
}
