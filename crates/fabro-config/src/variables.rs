/// A variable of the environment that is needed and not set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the environment variable `{0}` is not set: set it, or correct its name in the settings")]
pub struct MissingVariable(
    /// Its name.
    pub String,
);

/// The text with variables in the place of `$NAME`, `${NAME}` and `{{ env.NAME }}`; `$$` is a dollar
/// sign, and a `$` before anything else stands for itself.
///
/// ```
/// let lookup = |name: &str| (name == "TOKEN").then(|| "t0p".to_owned());
/// assert_eq!(fabro_config::expand_variables("Bearer $TOKEN", lookup).as_deref(), Ok("Bearer t0p"));
/// assert_eq!(fabro_config::expand_variables("{{ env.TOKEN }}", lookup).as_deref(), Ok("t0p"));
/// assert_eq!(fabro_config::expand_variables("$$5 of $5", lookup).as_deref(), Ok("$5 of $5"));
/// ```
///
/// # Errors
///
/// A variable that `lookup` does not know.
pub fn expand_variables(
    text: &str,
    lookup: impl Fn(&str) -> Option<String>,
) -> Result<String, MissingVariable> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['$', '{']) {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if rest[at..].starts_with('{') {
            if let Some((name, more)) = interpolation(&rest[at..]) {
                out.push_str(&lookup(name).ok_or_else(|| MissingVariable(name.to_owned()))?);
                rest = more;
            } else {
                out.push('{');
                rest = after;
            }
            continue;
        }
        if let Some(more) = after.strip_prefix('$') {
            out.push('$');
            rest = more;
        } else if let Some((name, more)) = variable(after) {
            out.push_str(&lookup(name).ok_or_else(|| MissingVariable(name.to_owned()))?);
            rest = more;
        } else {
            out.push('$');
            rest = after;
        }
    }
    out.push_str(rest);
    Ok(out)
}

/// The variable of `{{ env.NAME }}` at the beginning of the text, and the rest.
pub(crate) fn interpolation(text: &str) -> Option<(&str, &str)> {
    let inner = text.strip_prefix("{{")?.trim_start().strip_prefix("env.")?;
    let (name, rest) = variable(inner).filter(|_| !inner.starts_with('{'))?;
    Some((name, rest.trim_start().strip_prefix("}}")?))
}

/// True when the text names a variable.
pub(crate) fn has_variable(text: &str) -> bool {
    expand_variables(text, |_| None).is_err()
}

/// True for a name that a shell would take: letters, digits and `_`, no digit first.
pub(crate) fn is_variable(name: &str) -> bool {
    matches!(variable(name), Some((whole, "")) if whole == name)
}

/// The name at the beginning of what follows a `$`, and the rest.
fn variable(text: &str) -> Option<(&str, &str)> {
    if let Some(braced) = text.strip_prefix('{') {
        let (name, more) = braced.split_once('}')?;
        return is_variable(name).then_some((name, more));
    }
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let end = text.find(|c| !is_part(c)).unwrap_or(text.len());
    let starts_well = !text.starts_with(|c: char| c.is_ascii_digit());
    (end > 0 && starts_well).then(|| text.split_at(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_put_in() {
        let lookup = |name: &str| ["A", "B_1"].contains(&name).then(|| format!("<{name}>"));
        let check = |text: &str, expect: &str| {
            let said = expand_variables(text, lookup).unwrap_or_else(|missing| missing.to_string());
            assert_eq!(said, expect, "{text}");
        };
        check("", "");
        check("plain", "plain");
        check("$A", "<A>");
        check("${A}x$B_1-$A", "<A>x<B_1>-<A>");
        check("$$A $ $1 ${} ${A", "$A $ $1 ${} ${A");
        check("é$A", "é<A>");
        check("{{ env.A }}{{env.B_1}}{{ env.A", "<A><B_1>{{ env.A");
        check("{{ inputs.A }} {{ env.A.b }} {{{A}}} {", "{{ inputs.A }} {{ env.A.b }} {{{A}}} {");
        check(
            "$C",
            "the environment variable `C` is not set: set it, or correct its name in the settings",
        );
    }
}
