use std::collections::BTreeMap;

use crate::known_providers::{KNOWN_PROVIDERS, known_provider};
use crate::provider::ProviderSettings;

/// The providers that the environment configures: those whose key or whose base URL is set, in a
/// fixed order. `lookup` is given the name of a variable; an empty value counts as not set. A base
/// URL alone configures a provider without a key.
///
/// ```
/// let env = |name: &str| (name == "OPENAI_BASE_URL").then(|| "http://127.0.0.1:8401/v1".to_owned());
/// let found = fabro_config::detect_providers(env);
/// assert_eq!(found[0].name, "openai");
/// assert_eq!(found[0].base_url.as_deref(), Some("http://127.0.0.1:8401/v1"));
/// assert_eq!(found[0].api_key_env, None);
/// ```
pub fn detect_providers(lookup: impl Fn(&str) -> Option<String>) -> Vec<ProviderSettings> {
    let set = |name: &str| lookup(name).filter(|value| !value.trim().is_empty());
    let in_environment = KNOWN_PROVIDERS.iter().filter(|known| known.name != "openai-responses");
    let found = in_environment.filter_map(|known| {
        let key = known.keys.iter().find(|name| set(name).is_some());
        let base_url = set(&format!("{}_BASE_URL", known.name.to_uppercase()));
        if key.is_none() && base_url.is_none() {
            return None;
        }
        let base_url = base_url.as_deref().map(str::trim).or(known.base_url);
        Some(ProviderSettings {
            base_url: base_url.map(str::to_owned),
            api_key_env: key.map(|name| (*name).to_owned()),
            ..ProviderSettings::new(known.name, known.kind)
        })
    });
    found.collect()
}

/// The providers of a run: those the settings name, by name, then those that only the environment
/// configures, as [`detect_providers`] finds them. Where both configure one, the settings win field
/// by field.
pub fn providers(
    configured: &BTreeMap<String, ProviderSettings>,
    lookup: impl Fn(&str) -> Option<String>,
) -> Vec<ProviderSettings> {
    let detected = detect_providers(lookup);
    let named = configured.values().map(|provider| {
        let mut provider = provider.clone();
        let is_same = |it: &&ProviderSettings| it.name == provider.name && it.kind == provider.kind;
        if let Some(found) = detected.iter().find(is_same) {
            let preset = known_provider(&provider.name).and_then(|known| known.base_url);
            if provider.base_url.as_deref().is_none_or(|url| Some(url) == preset) {
                provider.base_url.clone_from(&found.base_url);
            }
        }
        provider
    });
    let alone = detected.iter().filter(|found| !configured.contains_key(&found.name));
    named.chain(alone.cloned()).collect()
}

#[cfg(test)]
mod tests {
    use fabro_types::ProviderKind;

    use super::*;

    fn check(variables: &[(&str, &str)]) -> String {
        let env = env(variables);
        let found = detect_providers(env).into_iter().map(|it| {
            let url = it.base_url.unwrap_or_default();
            let key = it.api_key_env.unwrap_or_default();
            format!("{} {} [{url}] [{key}]", it.name, it.kind.as_str())
        });
        found.collect::<Vec<_>>().join("\n")
    }

    fn env(variables: &[(&str, &str)]) -> impl Fn(&str) -> Option<String> {
        let variables: BTreeMap<String, String> =
            variables.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        move |name| variables.get(name).cloned()
    }

    #[test]
    fn keys_and_base_urls_configure_providers() {
        insta::assert_snapshot!(check(&[
            ("GOOGLE_API_KEY", "k"),
            ("ANTHROPIC_API_KEY", "k"),
            ("ANTHROPIC_BASE_URL", " http://127.0.0.1:1 "),
            ("OPENAI_BASE_URL", "http://127.0.0.1:2/v1"),
            ("OPENROUTER_API_KEY", "k"),
            ("GROQ_API_KEY", "  "),
        ]), @r"
        anthropic anthropic [http://127.0.0.1:1] [ANTHROPIC_API_KEY]
        openai openai [http://127.0.0.1:2/v1] []
        gemini gemini [] [GOOGLE_API_KEY]
        openrouter openai-compatible [https://openrouter.ai/api/v1] [OPENROUTER_API_KEY]
        ");
        assert_eq!(check(&[]), "");
    }

    #[test]
    fn settings_win_over_the_environment() {
        let anthropic = ProviderSettings::new("anthropic", ProviderKind::Anthropic);
        let moved = ProviderSettings { base_url: Some("http://b".into()), ..anthropic.clone() };
        let found = |configured: ProviderSettings| {
            let configured = BTreeMap::from([(configured.name.clone(), configured)]);
            let env = env(&[("ANTHROPIC_BASE_URL", "http://a"), ("OPENAI_API_KEY", "k")]);
            let found = providers(&configured, env).into_iter();
            found.map(|it| (it.name, it.base_url.unwrap_or_default())).collect::<Vec<_>>()
        };
        let openai = || ("openai".to_owned(), String::new());
        assert_eq!(found(anthropic), [("anthropic".into(), "http://a".into()), openai()]);
        assert_eq!(found(moved), [("anthropic".into(), "http://b".into()), openai()]);
        let other = ProviderSettings {
            base_url: Some("http://c".into()),
            ..ProviderSettings::new("anthropic", ProviderKind::OpenAiCompatible)
        };
        assert_eq!(found(other), [("anthropic".into(), "http://c".into()), openai()]);
    }

    #[test]
    fn keys_are_looked_up_when_they_are_needed() {
        let key = |provider: &ProviderSettings, variables| {
            provider.api_key(env(variables)).map_err(|missing| missing.0)
        };
        let gemini = ProviderSettings::new("mine", ProviderKind::Gemini);
        assert_eq!(key(&gemini, &[("GOOGLE_API_KEY", "g")]), Ok(Some("g".into())));
        assert_eq!(key(&gemini, &[]), Ok(None));
        let local = ProviderSettings::new("local", ProviderKind::OpenAiCompatible);
        assert_eq!(key(&local, &[("OPENAI_API_KEY", "o")]), Ok(None));
        let groq = ProviderSettings::new("groq", ProviderKind::OpenAiCompatible);
        assert_eq!(key(&groq, &[("GROQ_API_KEY", "q")]), Ok(Some("q".into())));
        let named = ProviderSettings { api_key_env: Some("MINE".into()), ..gemini };
        assert_eq!(key(&named, &[("GOOGLE_API_KEY", "g")]), Err("MINE".into()));
        assert_eq!(key(&named, &[("MINE", "m")]), Ok(Some("m".into())));
    }
}
