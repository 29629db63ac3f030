//! Names of tools and ids of calls in a form that providers accept.
//!
//! Models invent names, and some servers make ids that no other server accepts
//! (`functions.read_file:0`): one such call would get every later request of its conversation refused.
//! The conversation keeps them unchanged; only what is sent differs.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{ProviderKind, gemini};
use crate::{Content, Request, Role};

/// The most characters of a name.
const LONGEST_NAME: usize = 64;
/// The most characters of an id: Chat Completions of `OpenAI` has the lowest limit.
const LONGEST_ID: usize = 40;
/// The same for servers that have long ids of their own.
const LONGEST_OTHER_ID: usize = 64;

/// The ids that a server accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdForm {
    /// What its kind accepts.
    Usual,
    /// Nine letters and digits: older models of Mistral.
    Short,
}

/// Names or ids that a provider refuses, and what is sent for each.
type Renamed<'a> = BTreeMap<&'a str, String>;

/// The request with names and ids that this kind of provider accepts. Valid ones are not changed, and
/// neither are the names of tools that the request offers.
pub(super) fn fit(kind: ProviderKind, form: IdForm, request: &Request) -> Cow<'_, Request> {
    let contents = || request.messages.iter().flat_map(|message| &message.content);
    let offered = request.tools.iter().map(|tool| tool.name.as_str());
    let names = offered.clone().chain(contents().filter_map(|content| match content {
        Content::ToolCall(call) => Some(call.name.as_str()),
        _ => None,
    }));
    let ids = contents().filter_map(|content| match content {
        Content::ToolCall(call) => Some(call.id.as_str()),
        Content::ToolResult { id, .. } => Some(id.as_str()),
        _ => None,
    });
    let is_offered = |name: &str| offered.clone().any(|it| it == name);
    let names = renamed(&names, LONGEST_NAME, |name| fits_name(kind, name) || is_offered(name));
    let ids = match form {
        IdForm::Usual => renamed(&ids, LONGEST_ID, |id| fits_id(kind, id)),
        IdForm::Short => short(&ids),
    };
    if names.is_empty() && ids.is_empty() {
        return Cow::Borrowed(request);
    }
    let mut request = request.clone();
    for message in Arc::make_mut(&mut request.messages) {
        if matches!(message.role, Role::Assistant | Role::Tool) {
            let contents = &mut Arc::make_mut(message).content;
            if kind == ProviderKind::Gemini {
                unsign_renamed(contents, &names);
            }
            for content in contents {
                rename(content, &names, &ids);
            }
        }
    }
    Cow::Owned(request)
}

/// A short replacement for each id that is not short.
fn short<'a>(ids: &(impl Iterator<Item = &'a str> + Clone)) -> Renamed<'a> {
    let fits = |id: &&str| id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let taken: BTreeSet<&str> = ids.clone().filter(fits).collect();
    let mut renamed = Renamed::new();
    // In the order of the calls, so that a replacement stays the same when the conversation grows.
    let mut number = 0;
    for id in ids.clone().filter(|id| !fits(id)) {
        if renamed.contains_key(id) {
            continue;
        }
        let other = loop {
            number += 1;
            let other = format!("c{number:08}");
            if !taken.contains(other.as_str()) {
                break other;
            }
        };
        renamed.insert(id, other);
    }
    renamed
}

fn fits_name(kind: ProviderKind, name: &str) -> bool {
    // Gemini accepts no other characters at the beginning.
    let begins = kind != ProviderKind::Gemini || name.starts_with(can_begin);
    begins && is_plain(name, LONGEST_NAME)
}

fn fits_id(kind: ProviderKind, id: &str) -> bool {
    match kind {
        // Some models recognise their calls by the form of their ids.
        ProviderKind::OpenAiCompatible => {
            (1..=LONGEST_OTHER_ID).contains(&id.len()) && id.bytes().all(|it| it.is_ascii_graphic())
        }
        // It is not sent.
        ProviderKind::Gemini if gemini::unsent_id_name(id).is_some() => true,
        _ => is_plain(id, LONGEST_ID),
    }
}

fn is_plain(text: &str, longest: usize) -> bool {
    (1..=longest).contains(&text.len()) && text.chars().all(is_plain_char)
}

fn is_plain_char(char: char) -> bool {
    char.is_ascii_alphanumeric() || matches!(char, '_' | '-')
}

fn can_begin(char: char) -> bool {
    char.is_ascii_alphabetic() || char == '_'
}

/// A unique replacement for each one that does not fit.
fn renamed<'a>(
    all: &(impl Iterator<Item = &'a str> + Clone),
    longest: usize,
    fits: impl Fn(&str) -> bool,
) -> Renamed<'a> {
    let mut renamed = Renamed::new();
    let mut odd = all.clone().filter(|text| !fits(text)).peekable();
    if odd.peek().is_none() {
        return renamed;
    }
    let mut taken: BTreeSet<Cow<'_, str>> =
        all.clone().filter(|text| fits(text)).map(Cow::Borrowed).collect();
    // How many replacements each plain form has, so that no number is tried twice.
    let mut made: BTreeMap<String, usize> = BTreeMap::new();
    for text in odd {
        if renamed.contains_key(text) {
            continue;
        }
        let plain = plain(text, longest);
        let count = made.entry(plain.clone()).or_default();
        let other = loop {
            *count += 1;
            let other = numbered(&plain, *count, longest);
            if taken.insert(Cow::Owned(other.clone())) {
                break other;
            }
        };
        renamed.insert(text, other);
    }
    renamed
}

/// The text with every character replaced that a name cannot have.
fn plain(text: &str, longest: usize) -> String {
    let begin = if text.starts_with(can_begin) { "" } else { "_" };
    let rest = text.chars().map(|char| if is_plain_char(char) { char } else { '_' });
    let plain: String = begin.chars().chain(rest).take(longest).collect();
    if text.is_empty() { "unnamed".to_owned() } else { plain }
}

fn numbered(plain: &str, count: usize, longest: usize) -> String {
    if count == 1 {
        return plain.to_owned();
    }
    let number = format!("_{count}");
    let kept = plain.len().min(longest.saturating_sub(number.len()));
    format!("{}{number}", &plain[..kept])
}

/// Leaves out the signatures of calls whose names change: Gemini signs a call with its name.
fn unsign_renamed(contents: &mut [Content], names: &Renamed<'_>) {
    for place in 1..contents.len() {
        if let [Content::Reasoning(thought), Content::ToolCall(call)] =
            &mut contents[place - 1..=place]
            && thought.fields.is_none()
            && names.contains_key(call.name.as_str())
        {
            thought.signature = None;
        }
    }
}

fn rename(content: &mut Content, names: &Renamed<'_>, ids: &Renamed<'_>) {
    let put = |text: &mut String, renamed: &Renamed<'_>| {
        if let Some(other) = renamed.get(text.as_str()) {
            text.clone_from(other);
        }
    };
    match content {
        Content::ToolCall(call) => {
            put(&mut call.name, names);
            put(&mut call.id, ids);
        }
        Content::ToolResult { id, .. } => put(id, ids),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(texts: &[&str], expect: &[&str]) {
        let fits = |text: &str| fits_name(ProviderKind::Gemini, text);
        let renamed = renamed(&texts.iter().copied(), LONGEST_NAME, fits);
        let result: Vec<_> =
            texts.iter().map(|text| renamed.get(text).map_or(*text, String::as_str)).collect();
        assert_eq!(result, expect);
        let different: BTreeSet<_> = texts.iter().collect();
        assert_eq!(result.iter().collect::<BTreeSet<_>>().len(), different.len());
        assert!(result.iter().all(|text| fits(text)));
    }

    #[test]
    fn invalid_names_get_unique_replacements() {
        check(&["read_file", "a-B_9", "_"], &["read_file", "a-B_9", "_"]);
        check(&["", "read file", "✓", "mcp.x/y"], &["unnamed", "read_file", "__", "mcp_x_y"]);
        check(&["2fa", "-x", "2fa"], &["_2fa", "_-x", "_2fa"]);
        // In any order, valid names are kept.
        check(&["a b", "a.b", "a_b", "a_b_2", "a:b"], &["a_b_3", "a_b_4", "a_b", "a_b_2", "a_b_5"]);
        let long = |end: &str| format!("{}{end}", "a".repeat(64));
        check(
            &[&long("1"), &long("2"), &long("")],
            &[&format!("{}_2", "a".repeat(62)), &format!("{}_3", "a".repeat(62)), &long("")],
        );
    }

    #[test]
    fn ten_thousand_similar_names_are_fast() {
        let texts: Vec<_> = (0..10_000).map(|n| "✓".repeat(100) + &n.to_string()).collect();
        let renamed = renamed(&texts.iter().map(String::as_str), LONGEST_NAME, |_| false);
        assert_eq!(renamed.values().collect::<BTreeSet<_>>().len(), 10_000);
    }

    #[test]
    fn ids_are_valid_where_they_were_made() {
        use ProviderKind::{Anthropic, Gemini, OpenAi, OpenAiCompatible, OpenAiResponses};
        let accepting = |id: &str| {
            let all = [Anthropic, OpenAi, OpenAiResponses, Gemini, OpenAiCompatible];
            all.into_iter().filter(|kind| fits_id(*kind, id)).collect::<Vec<_>>()
        };
        let all = [Anthropic, OpenAi, OpenAiResponses, Gemini, OpenAiCompatible];
        assert_eq!(accepting("toolu_01A09q90qw90lq917835lq9"), all);
        assert_eq!(accepting("functions.read_file:0"), [OpenAiCompatible]);
        assert_eq!(accepting("call#read_file#0"), [Gemini, OpenAiCompatible]);
        assert_eq!(accepting("chatcmpl-tool-0123456789abcdef0123456789abcdef"), [OpenAiCompatible]);
        for id in ["", "a b", "ä", &"x".repeat(65)] {
            assert_eq!(accepting(id), []);
        }
    }
}
