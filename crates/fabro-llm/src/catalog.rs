use std::sync::LazyLock;

use fabro_types::{Costs, Date, ModelInfo, Usage};
use serde::Deserialize;

/// `catalog.json`.
#[derive(Deserialize)]
struct CatalogFile {
    /// The day on which the providers' pages said so.
    dated: Date,
    models: Vec<ModelInfo>,
}

#[expect(clippy::expect_used, reason = "the file is part of the program, and a test reads it")]
static BUILTIN: LazyLock<CatalogFile> = LazyLock::new(|| {
    serde_json::from_str(include_str!("catalog.json")).expect("catalog.json is valid")
});

/// Whose models others resell under `VENDOR/NAME` at the vendor's own prices.
const RESOLD: [(&str, &str); 6] = [
    ("anthropic", "anthropic"),
    ("openai", "openai"),
    ("gemini", "gemini"),
    ("google", "gemini"),
    ("xai", "xai"),
    ("x-ai", "xai"),
];

/// Known models with their context windows, prices and capabilities.
///
/// ```
/// use fabro_llm::{Catalog, ModelInfo};
///
/// let mut catalog = Catalog::builtin();
/// assert_eq!(catalog.find("anthropic/claude-sonnet-4-5-20250929").unwrap().context_window, Some(200_000));
/// let llama = ModelInfo { context_window: Some(8192), ..ModelInfo::new("local-llama") };
/// catalog.extend([llama]);
/// assert_eq!(catalog.find("local-llama").unwrap().context_window, Some(8192));
/// assert_eq!(catalog.find("unheard-of"), None);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Catalog {
    models: Vec<ModelInfo>,
}

impl Catalog {
    /// No models at all.
    pub fn empty() -> Self {
        Self::default()
    }

    /// The common models of the large providers, and a few open ones, with their list prices.
    pub fn builtin() -> Self {
        Self { models: BUILTIN.models.clone() }
    }

    /// The day on which the built-in models and prices were looked up.
    pub fn dated() -> Date {
        BUILTIN.dated
    }

    /// What is known of the model of this name. A provider before the name (`anthropic/…`) is ignored
    /// where nothing is found with it. Without an exact name or alias, the longest known name counts that
    /// this one begins with, up to a character such as `-`: that may be a relative, whose prices are
    /// not those of this model ([`costs`](Self::costs)).
    pub fn find(&self, name: &str) -> Option<&ModelInfo> {
        let mut rest = name;
        loop {
            // The name may have a slash of its own, behind that of its provider.
            match (self.exact(rest), rest.split_once('/')) {
                (Some(model), _) => return Some(model),
                (None, Some((_, behind))) => rest = behind,
                (None, None) => break,
            }
        }
        // Bedrock, with or without a region before it.
        let bare = rest.split_once("anthropic.").map_or(rest, |(_, bare)| bare);
        self.exact(bare).or_else(|| self.family(bare))
    }

    /// The exact name behind an alias; other names are given back as they are.
    pub fn resolve<'a>(&'a self, name: &'a str) -> &'a str {
        self.exact(name).map_or(name, |model| &model.name)
    }

    /// The model whose prices this one has: of this name or alias, with or without a date at its end
    /// (`gpt-5-2026-01-01`, `claude-sonnet-4-5-20250929`) and its vendor before it. A relative is no
    /// such model.
    pub fn same_model(&self, name: &str) -> Option<&ModelInfo> {
        let same = |name| self.exact(name).or_else(|| self.exact(without_date(name)?));
        same(name).or_else(|| {
            let (vendor, bare) = name.split_once('/')?;
            let (_, vendor) = RESOLD.iter().find(|(prefix, _)| *prefix == vendor)?;
            same(bare).filter(|model| model.provider.as_deref() == Some(vendor))
        })
    }

    /// The model whose prices a request for `asked` has that `answered` answers: a vendor serves, and bills, some
    /// retired names as another model of its own. `None` where `asked` has its own prices, or those of settings.
    #[cfg(feature = "providers")]
    pub(crate) fn served_as(&self, asked: &str, answered: &str) -> Option<&ModelInfo> {
        let own = self.same_model(asked)?;
        let is_list = |known: &ModelInfo| {
            known.name == own.name && known.cost == own.cost && known.prices == own.prices
        };
        let served = self.same_model(answered)?;
        let is_other = served.provider == own.provider && served.name != own.name;
        (is_other && BUILTIN.models.iter().any(is_list)).then_some(served)
    }

    /// What one request at this time (milliseconds since 1970) costs at the list price of its model;
    /// `None` when that is unknown.
    pub fn costs(&self, usage: &Usage, at_ms: i64) -> Option<Costs> {
        self.same_model(usage.model.as_deref()?)?.costs(usage, at_ms)
    }

    fn exact(&self, name: &str) -> Option<&ModelInfo> {
        self.models.iter().find(|model| model.is_called(name))
    }

    fn family(&self, name: &str) -> Option<&ModelInfo> {
        let begins = |model: &&ModelInfo| {
            let rest = name.strip_prefix(model.name.as_str());
            rest.and_then(|rest| rest.chars().next()).is_some_and(|next| !next.is_alphanumeric())
        };
        self.models.iter().filter(begins).max_by_key(|model| model.name.len())
    }

    /// All models, the user's own last.
    pub fn iter(&self) -> impl Iterator<Item = &ModelInfo> {
        self.models.iter()
    }
}

impl Extend<ModelInfo> for Catalog {
    /// Adds models, or overrides properties of known ones. Properties that an entry leaves out are those
    /// of the same model, else of its family; prices are never those of a family.
    fn extend<I: IntoIterator<Item = ModelInfo>>(&mut self, models: I) {
        for model in models {
            let model = match (self.same_model(&model.name), self.find(&model.name)) {
                (Some(same), _) => model.or(same),
                (None, Some(relative)) => model.or_rules(relative),
                (None, None) => model,
            };
            self.models.retain(|known| known.name != model.name);
            self.models.push(model);
        }
    }
}

/// The name without the date at its end, where there is one.
fn without_date(name: &str) -> Option<&str> {
    let is_date = |text: &str| {
        let text = text.replace('-', "");
        let digits = text.len() == 8 && text.bytes().all(|byte| byte.is_ascii_digit());
        digits && (text.starts_with("20")) && text.parse::<Date>().is_ok()
    };
    [8, 10].into_iter().find_map(|length| {
        let (name, date) = name.split_at_checked(name.len().checked_sub(length)?)?;
        let name = name.strip_suffix(['-', '@'])?;
        is_date(date).then_some(name)
    })
}

#[cfg(test)]
mod tests;
