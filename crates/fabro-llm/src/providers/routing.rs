use super::wire::invalid;
use super::{Provider, ProviderKind};
use crate::{Catalog, ErrorKind, ModelError, Request};

/// The index of the provider that a request goes to, and the model's name there.
pub(super) fn route(
    providers: &[Provider],
    catalog: &Catalog,
    request: &Request,
) -> Result<(usize, String), ModelError> {
    let (index, model) = target(providers, catalog, request)?;
    let name = &providers[index].name;
    let unnamed = || ModelError {
        kind: ErrorKind::UnknownModel,
        ..invalid(format!("no model is named for provider `{name}`: name one of its models"))
    };
    Ok((index, model.ok_or_else(unnamed)?))
}

/// The same; without a model where no model is named and the provider has no usual one.
pub(super) fn target(
    providers: &[Provider],
    catalog: &Catalog,
    request: &Request,
) -> Result<(usize, Option<String>), ModelError> {
    let named = |name: &str| find(providers, name);
    let (index, model) = match (&request.provider, &request.model) {
        (Some(name), model) => {
            let index = named(name).ok_or_else(|| not_configured(name))?;
            // A prefix that repeats the provider is not part of the model's name.
            let model = model.as_deref().map(|model| {
                let prefix = model.split_once('/').filter(|(prefix, _)| *prefix == name);
                prefix.map_or(model, |(_, rest)| rest)
            });
            (index, model)
        }
        (None, Some(model)) => match (named(model), model.split_once('/')) {
            (Some(index), _) => (index, None),
            (None, Some((prefix, rest))) if named(prefix).is_some() => {
                (named(prefix).unwrap_or_default(), Some(rest))
            }
            (None, Some((prefix, rest))) if !may_serve_whole(providers, catalog, model) => {
                if owner_by_name(rest) == Some(prefix) {
                    return Err(not_served(providers, prefix, model));
                }
                (by_model(providers, catalog, model)?, Some(model.as_str()))
            }
            _ => (by_model(providers, catalog, model)?, Some(model.as_str())),
        },
        (None, None) => (0, None),
    };
    let provider = providers.get(index).ok_or_else(|| {
        auth("no provider is configured: set a key, a base URL, or [providers.NAME]".to_owned())
    })?;
    require_key(provider)?;
    let model = match model {
        Some(model) => Some(catalog.resolve(model).to_owned()),
        None => default_model(provider, catalog),
    };
    Ok((index, model))
}

/// Whether the whole of `vendor/model` is a name that a configured provider has: one of the settings, or of a
/// reseller whose names have this form.
fn may_serve_whole(providers: &[Provider], catalog: &Catalog, model: &str) -> bool {
    let is_reseller = |provider: &Provider| {
        let url = provider.base_url.as_deref().unwrap_or_default();
        provider.name == "openrouter" || url.contains("openrouter.ai")
    };
    catalog.iter().any(|known| known.is_called(model)) || providers.iter().any(is_reseller)
}

/// A model whose name begins with the provider that is not configured.
fn not_served(providers: &[Provider], vendor: &str, model: &str) -> ModelError {
    let error = not_configured(vendor);
    match providers.iter().find(|provider| provider.base_url.is_some()) {
        Some(own) => {
            let name = &own.name;
            auth(format!("{error}; where `{name}` has a model of this name: `{name}/{model}`"))
        }
        None => error,
    }
}

fn find(providers: &[Provider], name: &str) -> Option<usize> {
    let kind = ProviderKind::parse(name);
    let by_name = providers.iter().position(|provider| provider.name == name);
    by_name.or_else(|| providers.iter().position(|provider| Some(provider.kind) == kind))
}

/// The addresses of vendors that serve no models of Anthropic, `OpenAI` and Google but their own.
const VENDORS: [&str; 8] = [
    "api.openai.com",
    "api.anthropic.com",
    "generativelanguage.googleapis.com",
    "api.groq.com",
    "api.deepseek.com",
    "api.mistral.ai",
    "api.x.ai",
    "api.cerebras.ai",
];

/// The provider that a model belongs to, as far as that is known.
fn owner<'a>(catalog: &'a Catalog, model: &str) -> Option<&'a str> {
    let known = catalog.find(model).and_then(|info| info.provider.as_deref());
    known.or_else(|| owner_by_name(model))
}

/// The configured provider of this name or kind.
fn own_provider(providers: &[Provider], owner: &str) -> Option<usize> {
    let same = |kind: ProviderKind| {
        kind.as_str() == owner || (owner == "openai" && kind == ProviderKind::OpenAiResponses)
    };
    find(providers, owner).or_else(|| providers.iter().position(|provider| same(provider.kind)))
}

/// Models of these are served by them, and by proxies and servers of one's own.
fn is_closed(owner: &str) -> bool {
    matches!(owner, "anthropic" | "openai" | "gemini")
}

/// The provider that a model belongs to, or another one that may serve it.
fn by_model(providers: &[Provider], catalog: &Catalog, model: &str) -> Result<usize, ModelError> {
    let Some(owner) = owner(catalog, model) else { return Ok(0) };
    let open = |provider: &Provider| {
        let address = provider.base_url.as_deref();
        let is_vendor = |url: &str| VENDORS.iter().any(|host| url.contains(host));
        (provider.kind == ProviderKind::OpenAiCompatible || address.is_some())
            && !(is_closed(owner) && address.is_some_and(is_vendor))
    };
    let place = own_provider(providers, owner).or_else(|| providers.iter().position(open));
    place.ok_or_else(|| not_configured(owner))
}

/// The provider that a model belongs to, where it is not configured and no other one is named.
pub(super) fn absent_owner<'a>(
    providers: &[Provider],
    catalog: &'a Catalog,
    request: &Request,
) -> Option<&'a str> {
    let model = request.model.as_deref().filter(|_| request.provider.is_none())?;
    let prefix = model.split_once('/').map_or(model, |(prefix, _)| prefix);
    let owner = owner(catalog, model).filter(|owner| is_closed(owner))?;
    let is_named = find(providers, model).or_else(|| find(providers, prefix)).is_some();
    (!is_named && own_provider(providers, owner).is_none()).then_some(owner)
}

/// The provider that names its models like this.
fn owner_by_name(model: &str) -> Option<&'static str> {
    let name = model.rsplit('/').next().unwrap_or(model);
    let series_o = name.strip_prefix('o').is_some_and(|rest| {
        let mut rest = rest.chars();
        rest.next().is_some_and(|digit| digit.is_ascii_digit())
            && rest.next().is_none_or(|next| next == '-')
    });
    if name.starts_with("claude") {
        Some("anthropic")
    } else if name.starts_with("gpt-oss") {
        // Its weights are open: many serve it.
        None
    } else if name.starts_with("gpt-") || name.starts_with("chatgpt-") || series_o {
        Some("openai")
    } else if name.starts_with("gemini-") {
        Some("gemini")
    } else {
        None
    }
}

/// The user's first model of this provider, else the usual one of its kind, else the one that it was found to
/// list.
fn default_model(provider: &Provider, catalog: &Catalog) -> Option<String> {
    let is_other_address =
        provider.base_url.as_ref().is_some_and(|url| !url.contains("api.openai.com"));
    let usual = match provider.kind {
        ProviderKind::Anthropic => Some("claude-sonnet-5-5"),
        ProviderKind::OpenAi | ProviderKind::OpenAiResponses if !is_other_address => {
            Some("gpt-5.2")
        }
        ProviderKind::Gemini => Some("gemini-3.8-flash"),
        _ => provider.listed_model.as_deref(),
    };
    let own = |model: &&crate::ModelInfo| {
        provider.name != provider.kind.as_str() && model.provider.as_ref() == Some(&provider.name)
    };
    catalog.iter().find(own).map(|model| model.name.as_str()).or(usual).map(str::to_owned)
}

/// The default addresses require a key.
fn require_key(provider: &Provider) -> Result<(), ModelError> {
    let own_headers = !provider.headers.is_empty();
    if provider.key.is_some() || provider.base_url.is_some() || own_headers {
        return Ok(());
    }
    let name = &provider.name;
    Err(auth(format!("provider `{name}` has no key: set {}", variable(name))))
}

pub(super) fn not_configured(name: &str) -> ModelError {
    let fix = match ProviderKind::parse(name) {
        Some(_) => format!("set {}, or [providers.{name}]", variable(name)),
        None => format!("set [providers.{name}] in a settings file"),
    };
    auth(format!("provider `{name}` is not configured: {fix}"))
}

fn variable(name: &str) -> String {
    let word = name.strip_suffix("-responses").unwrap_or(name);
    format!(
        "{}_API_KEY",
        word.to_ascii_uppercase().replace(|c: char| !c.is_ascii_alphanumeric(), "_")
    )
}

fn auth(message: String) -> ModelError {
    ModelError { kind: ErrorKind::Auth, ..invalid(message) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ModelInfo;

    fn provider(name: &str, kind: ProviderKind, base_url: Option<&str>) -> Provider {
        let key = Some(super::super::Secret::new("k"));
        Provider { key, base_url: base_url.map(str::to_owned), ..Provider::new(name, kind) }
    }

    fn routed(providers: &[Provider], provider: Option<&str>, model: Option<&str>) -> String {
        let mut catalog = Catalog::builtin();
        let mine = ModelInfo {
            provider: Some("local".to_owned()),
            aliases: vec!["llama".to_owned()],
            ..ModelInfo::new("llama-3-8b.gguf")
        };
        catalog.extend([mine]);
        let mut request = Request::new(Vec::new());
        request.provider = provider.map(str::to_owned);
        request.model = model.map(str::to_owned);
        match route(providers, &catalog, &request) {
            Ok((index, model)) => format!("{} {model}", providers[index].name),
            Err(error) => format!("{:?}: {error}", error.kind),
        }
    }

    #[test]
    fn requests_find_their_provider() {
        let all = [
            provider("anthropic", ProviderKind::Anthropic, None),
            provider("openai", ProviderKind::OpenAi, None),
            provider("local", ProviderKind::OpenAiCompatible, Some("http://h/v1")),
            provider("google", ProviderKind::Gemini, None),
        ];
        let check =
            |provider, model, expect: &str| assert_eq!(routed(&all, provider, model), expect);
        check(None, None, "anthropic claude-sonnet-5-5");
        check(None, Some("gpt-5.2-codex"), "openai gpt-5.2-codex");
        check(None, Some("o4-mini-x"), "openai o4-mini-x");
        check(None, Some("o9"), "openai o9");
        check(None, Some("claude-next-9"), "anthropic claude-next-9");
        check(None, Some("gemini-9-ultra"), "google gemini-9-ultra");
        check(None, Some("sonnet"), "anthropic claude-sonnet-5-5");
        check(None, Some("llama"), "local llama-3-8b.gguf");
        check(None, Some("unheard-of"), "anthropic unheard-of");
        check(None, Some("openai"), "openai gpt-5.2");
        check(None, Some("local"), "local llama-3-8b.gguf");
        check(None, Some("gemini"), "google gemini-3.8-flash");
        check(None, Some("local/claude-sonnet-4-5"), "local claude-sonnet-4-5");
        check(None, Some("anthropic/opus"), "anthropic claude-opus-5-5");
        check(Some("local"), Some("anthropic/claude-x"), "local anthropic/claude-x");
        check(Some("local"), Some("local/x"), "local x");
        check(Some("gemini"), None, "google gemini-3.8-flash");
        check(Some("openai-compatible"), Some("m"), "local m");
        check(None, Some("deepseek-chat"), "local deepseek-chat");
        check(
            Some("groq"),
            Some("m"),
            "Auth: provider `groq` is not configured: set [providers.groq] in a settings file",
        );
        check(
            Some("openai-responses"),
            None,
            "Auth: provider `openai-responses` is not configured: set OPENAI_API_KEY, or [providers.openai-responses]",
        );
    }

    #[test]
    fn a_name_that_begins_with_a_provider_goes_to_no_other() {
        let local = [provider("local", ProviderKind::OpenAiCompatible, Some("http://h/v1"))];
        for (prefix, model, key) in [
            ("openai", "gpt-5.2", "OPENAI_API_KEY"),
            ("anthropic", "claude-next", "ANTHROPIC_API_KEY"),
            ("gemini", "gemini-9", "GEMINI_API_KEY"),
        ] {
            assert_eq!(
                routed(&local, None, Some(&format!("{prefix}/{model}"))),
                format!(
                    "Auth: provider `{prefix}` is not configured: set {key}, or [providers.{prefix}]; \
                     where `local` has a model of this name: `local/{prefix}/{model}`"
                )
            );
        }
        // Names of open models, and those that the server is named for.
        for (name, expect) in [
            ("openai/gpt-oss-20b", "local openai/gpt-oss-20b"),
            ("local/openai/gpt-5.2", "local openai/gpt-5.2"),
            ("gpt-5.2", "local gpt-5.2"),
        ] {
            assert_eq!(routed(&local, None, Some(name)), expect);
        }
        let url = Some("https://openrouter.ai/api/v1");
        let reseller = [provider("openrouter", ProviderKind::OpenAiCompatible, url)];
        assert_eq!(routed(&reseller, None, Some("openai/gpt-5.2")), "openrouter openai/gpt-5.2");
    }

    #[test]
    fn the_owner_of_a_model_may_be_absent() {
        let local = provider("local", ProviderKind::OpenAiCompatible, Some("http://h/v1"));
        let catalog = Catalog::builtin();
        let absent = |providers: &[Provider], provider: Option<&str>, model: &str| {
            let mut request = Request::new(Vec::new());
            request.provider = provider.map(str::to_owned);
            request.model = Some(model.to_owned());
            absent_owner(providers, &catalog, &request).map(str::to_owned)
        };
        let only = [local.clone()];
        assert_eq!(absent(&only, None, "gpt-5.2").as_deref(), Some("openai"));
        assert_eq!(absent(&only, None, "claude-next").as_deref(), Some("anthropic"));
        for named in ["local/gpt-5.2", "qwen3:8b", "local", "gpt-oss-20b"] {
            assert_eq!(absent(&only, None, named), None, "{named}");
        }
        assert_eq!(absent(&only, Some("local"), "gpt-5.2"), None);
        let both = [local, provider("openai", ProviderKind::OpenAi, None)];
        assert_eq!(absent(&both, None, "gpt-5.2"), None);
    }

    #[test]
    fn a_server_at_its_own_address_serves_any_model() {
        let own = [provider("openai", ProviderKind::OpenAi, Some("http://127.0.0.1:1/v1"))];
        assert_eq!(routed(&own, None, Some("claude-sonnet-4-5")), "openai claude-sonnet-4-5");
        assert_eq!(routed(&own, None, Some("qwen/qwen3")), "openai qwen/qwen3");
        assert_eq!(
            routed(&own, None, None),
            "UnknownModel: no model is named for provider `openai`: name one of its models"
        );
        let listed = Provider { listed_model: Some("tiny".to_owned()), ..own[0].clone() };
        assert_eq!(routed(&[listed], None, None), "openai tiny");
        let usual = [provider("openai", ProviderKind::OpenAi, None)];
        assert_eq!(
            routed(&usual, None, Some("claude-sonnet-4-5")),
            "Auth: provider `anthropic` is not configured: set ANTHROPIC_API_KEY, or [providers.anthropic]"
        );
        for (name, kind, url) in [
            ("openai", ProviderKind::OpenAi, "https://api.openai.com/v1"),
            ("groq", ProviderKind::OpenAiCompatible, "https://api.groq.com/openai/v1"),
        ] {
            assert_eq!(
                routed(&[provider(name, kind, Some(url))], None, Some("claude-next")),
                "Auth: provider `anthropic` is not configured: set ANTHROPIC_API_KEY, or [providers.anthropic]"
            );
        }
        let responses = [provider("mine", ProviderKind::OpenAiResponses, None)];
        assert_eq!(routed(&responses, None, Some("gpt-5")), "mine gpt-5");
        assert_eq!(
            routed(&[], None, None),
            "Auth: no provider is configured: set a key, a base URL, or [providers.NAME]"
        );
        let keyless = [Provider::new("anthropic", ProviderKind::Anthropic)];
        assert_eq!(
            routed(&keyless, None, None),
            "Auth: provider `anthropic` has no key: set ANTHROPIC_API_KEY"
        );
    }
}
