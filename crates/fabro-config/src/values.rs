//! Reading of values that have a meaning: times, addresses, counts, names of variables.

use std::collections::BTreeMap;
use std::time::Duration;

use fabro_redact::is_secret_name;
use toml::de::DeValue;

use crate::near::near_misses;
use crate::reader::{Key, Node, Reader};
use crate::variables::{has_variable, is_variable};

impl Reader {
    /// The entries of a table whose keys the user chooses; those without a name are errors.
    pub(crate) fn named<'t, 'i>(
        &mut self,
        table: &str,
        node: &'t Node<'i>,
    ) -> Vec<(&'t Key<'i>, &'t Node<'i>)> {
        let mut entries = self.section(table, node);
        entries.retain(|(key, value)| {
            let named = !key.get_ref().trim().is_empty();
            if !named {
                self.error(value, format!("`{table}` has one without a name"), "give it a name");
            }
            named
        });
        entries
    }

    /// One of these words.
    pub(crate) fn word<T>(
        &mut self,
        name: &str,
        node: &Node<'_>,
        words: &[&str],
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let word = self.text(name, node)?;
        let parsed = parse(&word);
        if parsed.is_none() {
            let fix = match near_misses(&word, words.iter().copied()).first() {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("use {}", either(words)),
            };
            self.error(node, format!("`{name}` is `{word}`"), &fix);
        }
        parsed
    }

    /// `true` or `false`.
    pub(crate) fn flag(&mut self, name: &str, node: &Node<'_>) -> Option<bool> {
        let flag = node.get_ref().as_bool();
        if flag.is_none() {
            self.wrong_type(name, node, "a boolean");
        }
        flag
    }

    /// A whole number of at least `least`.
    pub(crate) fn count(&mut self, name: &str, node: &Node<'_>, least: u64) -> Option<u64> {
        let DeValue::Integer(value) = node.get_ref() else {
            self.wrong_type(name, node, "an integer");
            return None;
        };
        let number = i64::from_str_radix(value.as_str(), value.radix()).ok();
        let number = number.and_then(|it| u64::try_from(it).ok()).filter(|it| *it >= least);
        if number.is_none() {
            let fix = format!("use a whole number of at least {least}");
            self.error(node, format!("`{name}` is {}", value.as_str()), &fix);
        }
        number
    }

    /// The same below 4294967296.
    pub(crate) fn small(&mut self, name: &str, node: &Node<'_>, least: u64) -> Option<u32> {
        let count = self.count(name, node, least)?;
        let small = u32::try_from(count).ok();
        if small.is_none() {
            self.error(node, format!("`{name}` is {count}"), "use a smaller number");
        }
        small
    }

    /// US dollars, not below 0.
    pub(crate) fn cost(&mut self, name: &str, node: &Node<'_>) -> Option<f64> {
        let number = match node.get_ref() {
            DeValue::Float(value) => value.as_str().parse::<f64>().ok(),
            DeValue::Integer(value) => {
                let whole = i64::from_str_radix(value.as_str(), value.radix()).ok();
                whole.map(|whole| whole as f64)
            }
            _ => {
                self.wrong_type(name, node, "a number");
                return None;
            }
        };
        let cost = number.filter(|cost| cost.is_finite() && *cost >= 0.0);
        if cost.is_none() {
            let fix = "use US dollars for a million tokens, 0 or more";
            self.error(node, format!("`{name}` is no price"), fix);
        }
        cost
    }

    /// A time above nothing: `500ms`, `30s`, `10m`, `2h`, or a number of seconds.
    pub(crate) fn duration(&mut self, name: &str, node: &Node<'_>) -> Option<Duration> {
        let text = match node.get_ref() {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(value) => {
                let seconds = i64::from_str_radix(value.as_str(), value.radix());
                seconds.map_or_else(|_| value.as_str().to_owned(), |seconds| seconds.to_string())
            }
            DeValue::Float(value) => value.as_str().to_owned(),
            _ => {
                self.wrong_type(name, node, "a time");
                return None;
            }
        };
        let time = duration(&text).filter(|time| !time.is_zero());
        if time.is_none() {
            let fix = "write it as `500ms`, `30s`, `10m` or `2h`";
            self.error(node, format!("`{name}` is no time"), fix);
        }
        time
    }

    /// An address of the web, without a password in it.
    pub(crate) fn url(&mut self, name: &str, node: &Node<'_>) -> Option<String> {
        let url = self.text(name, node)?;
        let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
        let host = rest.map(|rest| rest.split(['/', '?', '#']).next().unwrap_or_default());
        let odd = |c: char| c.is_whitespace() || c.is_control();
        match host {
            Some(host) if host.contains('@') => {
                let fix = "take it out, and put it into a header as `$NAME`";
                self.error(node, format!("`{name}` holds a name or a password"), fix);
                None
            }
            Some(host) if !host.is_empty() && !url.contains(odd) => Some(url),
            _ => {
                let fix = "write it as `http://HOST:PORT/PATH` or `https://HOST/PATH`";
                self.error(node, format!("`{name}` is no address"), fix);
                None
            }
        }
    }

    /// The name of a variable of the environment. What is refused is not repeated: it may be the
    /// secret itself.
    pub(crate) fn variable(&mut self, name: &str, node: &Node<'_>) -> Option<String> {
        let text = self.text(name, node)?;
        let variable = text.strip_prefix('$').unwrap_or(&text);
        if is_variable(variable) {
            return Some(variable.to_owned());
        }
        let message = format!("`{name}` is no name of a variable");
        self.error(node, message, "write the name of the variable that holds the key");
        None
    }

    /// Headers of a request. Secrets have to come from variables.
    pub(crate) fn headers(&mut self, name: &str, node: &Node<'_>) -> BTreeMap<String, String> {
        let mut headers = BTreeMap::new();
        for (key, value) in self.section(name, node) {
            let header = key.get_ref().as_ref();
            let full = format!("{name}.{header}");
            let is_part = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
            if header.is_empty() || !header.chars().all(is_part) {
                self.error(value, format!("`{full}` is no name of a header"), "correct the name");
            } else if let Some(text) = self.text(&full, value)
                && self.is_open(&full, header, &text, value)
            {
                if text.contains(char::is_control) {
                    self.error(value, format!("`{full}` holds a line end"), "remove it");
                } else {
                    headers.insert(header.to_owned(), text);
                }
            }
        }
        headers
    }

    /// Variables of a program. Secrets have to come from variables of ours.
    pub(crate) fn secret_env(&mut self, name: &str, node: &Node<'_>) -> BTreeMap<String, String> {
        let mut env = self.env(name, node);
        for (key, value) in self.section(name, node) {
            let variable = key.get_ref().as_ref();
            let full = format!("{name}.{variable}");
            let is_open = env
                .get(variable)
                .is_none_or(|text| text.is_empty() || self.is_open(&full, variable, text, value));
            if !is_open {
                env.remove(variable);
            }
        }
        env
    }

    /// Variables of scripts.
    pub(crate) fn env(&mut self, name: &str, node: &Node<'_>) -> BTreeMap<String, String> {
        let mut env = BTreeMap::new();
        for (key, value) in self.section(name, node) {
            let variable = key.get_ref().as_ref();
            let full = format!("{name}.{variable}");
            if variable.is_empty() || variable.contains(['=', '\0']) {
                self.error(value, format!("`{full}` is no name of a variable"), "correct the name");
            } else if value.get_ref().as_str() == Some("") {
                // Set but empty differs from not set: scripts test for it.
                env.insert(variable.to_owned(), String::new());
            } else if let Some(text) = self.text(&full, value) {
                env.insert(variable.to_owned(), text);
            }
        }
        env
    }

    /// An array of strings, empty ones among them.
    pub(crate) fn any_texts(&mut self, name: &str, node: &Node<'_>) -> Vec<String> {
        let mut texts = Vec::new();
        for item in self.array(name, node) {
            if item.get_ref().as_str() == Some("") {
                texts.push(String::new());
            } else {
                texts.extend(self.text(name, item));
            }
        }
        texts
    }

    /// False, and an error, when something that sounds secret stands there as it is. Settings are
    /// kept with each run, and so would be the secret.
    fn is_open(&mut self, full: &str, name: &str, text: &str, node: &Node<'_>) -> bool {
        if !is_secret_name(name) || has_variable(text) {
            return true;
        }
        let message = format!("`{full}` holds a secret, and settings are kept with each run");
        self.error(node, message, "put it into a variable of the environment, and write `$NAME`");
        false
    }
}

fn either(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [one] => format!("`{one}`"),
        [first @ .., last] => format!("`{}` or `{last}`", first.join("`, `")),
    }
}

fn duration(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let millis = match text.get(digits..)? {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Duration::try_from_secs_f64(text.parse().ok()?).ok(),
    };
    let amount: u64 = text.get(..digits)?.parse().ok()?;
    amount.checked_mul(millis).map(Duration::from_millis)
}
