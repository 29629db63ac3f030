//! What the fuzz targets call; built with `--cfg fuzzing` only.

use std::sync::Arc;

use super::concessions::RefusedField;
use super::error_body::ErrorBody;
use super::interface::Wire;
use super::prefix::PrefixHash;
use super::prepared::event_reader;
use super::sse::{Frame, Parser};
use super::turn::{Pricing, Turn};
use super::{Provider, ProviderKind};

/// Reads a body as the answer of every interface, and as an error.
pub fn read_reply(body: &str) {
    for kind in [
        ProviderKind::OpenAi,
        ProviderKind::OpenAiCompatible,
        ProviderKind::Anthropic,
        ProviderKind::Gemini,
    ] {
        for model in ["gpt-6.2-sol", "m"] {
            read_as(kind, model, body);
        }
    }
    let error = ErrorBody::from_text(body);
    for status in [None, Some(400), Some(429), Some(500)] {
        let _ = error.kind(status);
        let _ = error.summary(status);
    }
    let _ = RefusedField::of(400, body);
}

fn read_as(kind: ProviderKind, model: &str, body: &str) {
    let prefix = PrefixHash::default();
    let price = Pricing::default();
    let mut turn = Turn::new(kind.as_str(), model.to_owned(), price, Arc::default(), prefix);
    let mut reader = event_reader(Wire::of(&Provider::new("p", kind), model, None));
    let mut parser = Parser::default();
    let mut frames: Vec<_> =
        body.lines().filter_map(|line| parser.line(line)).map(Frame::Event).collect();
    frames.extend(parser.finish());
    for frame in frames {
        let read = match frame {
            Frame::Event(event) => reader.read(&event, &mut turn).map(drop),
            Frame::Whole(whole) => match serde_json::from_str(&whole) {
                Ok(whole) => reader.read_whole(&whole, &mut turn),
                Err(_) => return,
            },
        };
        if read.is_err() {
            return;
        }
        while turn.pop_part().is_some() {}
    }
    let _ = reader.close(&mut turn);
}
