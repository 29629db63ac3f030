//! The prompt caches of providers.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use serde_json::Value;

use crate::strict::{list, text};
use crate::{Request, Response, Tokens};

/// Characters of a token.
const TOKEN: usize = 4;

/// How many blocks before a mark Anthropic looks for what is cached.
const LOOKBACK: usize = 20;

/// The step in which the others cache, in tokens.
const STEP: usize = 128;

/// A piece of a prompt.
struct Piece {
    text: String,
    /// Anthropic caches everything up to here.
    is_marked: bool,
}

/// Counts the tokens of each prompt, four characters each, and how many of them the provider would have read
/// from its cache: for Anthropic what ends at a mark of an earlier request, at most 20 blocks before a mark of
/// this one; for the others the beginning that an earlier prompt to the model had, in steps of 128. A turn
/// without a usage of its own gets this one, with one token of output. For
/// [`Server::answering`](crate::Server::answering), around the answers themselves or [`strict`](crate::strict()).
pub fn caching(
    answer: impl Fn(&Request) -> Response + Send + Sync + 'static,
) -> impl Fn(&Request) -> Response + Send + Sync + 'static {
    // By the name of the model: all that is cached, each with its length in pieces.
    let known: Mutex<BTreeMap<String, Vec<Cached>>> = Mutex::default();
    move |request| {
        let body = request.json();
        let pieces = pieces(&body);
        let input: usize = pieces.iter().map(|piece| piece.text.len()).sum();
        let cached = {
            let mut known = known.lock();
            let name = format!("{} {}", text(&body, "model"), request.path);
            let earlier = known.entry(name).or_default();
            let is_anthropic = request.path.contains("/messages");
            let cached = if is_anthropic {
                marked_length(&pieces, earlier)
            } else {
                let longest = earlier.iter().map(|it| common_length(&pieces, it)).max();
                longest.unwrap_or_default() / TOKEN / STEP * STEP * TOKEN
            };
            if is_anthropic {
                let marks = (0..pieces.len()).filter(|place| pieces[*place].is_marked);
                earlier.extend(marks.map(|place| joined(&pieces[..=place])));
            } else {
                earlier.push(joined(&pieces));
            }
            cached
        };
        let tokens = |chars: usize| (chars / TOKEN) as u64;
        answer(request).with_tokens(Tokens {
            input: tokens(input),
            output: 1,
            cached: tokens(cached),
        })
    }
}

/// The text of pieces that are cached.
type Cached = String;

fn joined(pieces: &[Piece]) -> Cached {
    pieces.iter().map(|piece| piece.text.as_str()).collect()
}

/// The longest beginning that ends at an earlier mark, in characters.
fn marked_length(pieces: &[Piece], earlier: &[Cached]) -> usize {
    let marks = (0..pieces.len()).filter(|place| pieces[*place].is_marked);
    let ends = marks.flat_map(|mark| mark.saturating_sub(LOOKBACK)..=mark);
    let beginnings = ends.map(|end| joined(&pieces[..=end]));
    let found = beginnings.filter(|beginning| earlier.contains(beginning));
    found.map(|beginning| beginning.len()).max().unwrap_or_default()
}

/// How many characters a prompt begins with as an earlier one did.
fn common_length(pieces: &[Piece], earlier: &Cached) -> usize {
    let prompt = joined(pieces);
    let same = prompt.bytes().zip(earlier.bytes()).take_while(|(one, other)| one == other);
    same.count()
}

/// The prompt, in the order in which providers read it: tools, system, messages.
fn pieces(body: &Value) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut add = |role: &str, value: &Value| pieces.push(piece(role, value));
    for tool in list(&body["tools"]) {
        add("", tool);
    }
    for key in ["system", "systemInstruction", "instructions"] {
        match &body[key] {
            Value::Null => {}
            Value::Array(blocks) => blocks.iter().for_each(|block| add("", block)),
            other => add("", other),
        }
    }
    for key in ["messages", "input", "contents"] {
        for message in list(&body[key]) {
            let role = text(message, "role");
            match &message["content"] {
                // Blocks are cached one by one.
                Value::Array(blocks) if key == "messages" => {
                    for block in blocks {
                        add(role, block);
                    }
                }
                _ => add(role, message),
            }
        }
    }
    pieces
}

fn piece(role: &str, value: &Value) -> Piece {
    let is_marked = !value["cache_control"].is_null();
    let mut value = value.clone();
    if let Some(map) = value.as_object_mut() {
        map.remove("cache_control");
    }
    Piece { text: format!("{role}{value}"), is_marked }
}
