//! Servers that refuse what the real ones refuse, in their words.

mod anthropic;
mod compatible;
mod gemini;
mod openai;

use serde_json::{Value, json};

use crate::{Block, Request, Response};

/// A provider, for [`strict`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Vendor {
    /// `OpenAI`: Responses, and Chat Completions as far as a model has it.
    OpenAi,
    /// Anthropic's Messages.
    Anthropic,
    /// Gemini's `generateContent`.
    Gemini,
    /// `DeepSeek`, Chat Completions as of all that follow.
    DeepSeek,
    /// Groq.
    Groq,
    /// Mistral.
    Mistral,
    /// Cerebras.
    Cerebras,
    /// Ollama.
    Ollama,
    /// llama.cpp's server.
    LlamaCpp,
    /// LM Studio.
    LmStudio,
    /// Models of Alibaba that answer in streams only.
    Qwen,
    /// Gemini's interface that is compatible with Chat Completions.
    GeminiCompatible,
    /// `OpenRouter`, with a model whose reasoning is signed.
    OpenRouter,
    /// Moonshot, with a model that always thinks.
    Moonshot,
    /// xAI, with a model that cannot be told not to think.
    XAi,
}

/// Answers requests that the provider accepts, and refuses the others: for
/// [`Server::answering`](crate::Server::answering). Where a model thinks, the turns begin with a
/// thought whose signature is bound to the model and to the request, and the next requests are refused
/// when it does not fit them.
pub fn strict(
    vendor: Vendor,
    answer: impl Fn(&Request) -> Response + Send + Sync + 'static,
) -> impl Fn(&Request) -> Response + Send + Sync + 'static {
    move |request| {
        let body = request.json();
        let checked = match vendor {
            Vendor::OpenAi => openai::check(request, &body),
            Vendor::Anthropic => anthropic::check(request, &body),
            Vendor::Gemini => gemini::check(request, &body),
            other => compatible::check(other, &body),
        };
        match checked {
            Ok(thoughts) => answer(request).after(thoughts),
            Err(refusal) => Response::bytes(refusal.status, "application/json", refusal.body),
        }
    }
}

/// What comes before the blocks of a turn, or why there is none.
type Checked = Result<Vec<Block>, Refusal>;

#[derive(Debug)]
struct Refusal {
    status: u16,
    body: String,
}

/// A refusal in the form of `OpenAI`.
fn refused(message: &str, param: &str, code: Option<&str>) -> Refusal {
    let error =
        json!({"message": message, "type": "invalid_request_error", "param": param, "code": code});
    Refusal { status: 400, body: json!({"error": error}).to_string() }
}

/// A thought that is bound to a model and to what it has read.
fn sealed(text: &str, model: &str, prefix: &str) -> Block {
    let signature = Some(seal(text, model, prefix));
    Block::Thinking { text: text.to_owned(), signature }
}

fn seal(text: &str, model: &str, prefix: &str) -> String {
    format!("sealed:{model}:{:016x}:{:016x}", hash(prefix), hash(text))
}

/// FNV-1a.
fn hash(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

pub(crate) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}
