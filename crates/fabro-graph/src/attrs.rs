use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use fabro_types::Span;
use imbl::OrdMap;

use crate::value::Value;

/// Where the value of an attribute comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It is written on the node, edge or graph itself.
    Own,
    /// It is a default of the scope: `node [..]`, `edge [..]`.
    Default,
    /// The model stylesheet sets it.
    Stylesheet,
}

/// One attribute with its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Attr {
    /// The current name: `prompt` even where `llm_prompt` is written.
    pub name: Cow<'static, str>,
    /// The name as it is written.
    pub written: Cow<'static, str>,
    /// What it is set to; for an attribute of the schema already of the schema's type, unless an
    /// `attribute-value` error says that it cannot be.
    pub value: Value,
    /// Where the value stands, with its quotes.
    pub span: Span,
    /// Where the key stands.
    pub key_span: Span,
    /// Where the value comes from.
    pub origin: Origin,
    /// The file that the text was read from, as written after the `@`.
    pub file: Option<Arc<str>>,
}

impl Attr {
    /// True when an older name is written, such as `llm_model`.
    pub fn is_older_name(&self) -> bool {
        self.name != self.written
    }

    /// True when the value, of an attribute that may name a file, is `@path`, the `@@` of a text, or
    /// the path of a sub-workflow.
    pub(crate) fn is_file_reference(&self) -> bool {
        let is_escaped = self.value.text().is_some_and(|text| text.starts_with("@@"));
        is_escaped || self.file_path().is_some()
    }

    /// The path of the file that replaces the value, for attributes that may name a file. A script of
    /// several lines is never a path: Python decorators begin with `@` too.
    pub(crate) fn file_path(&self) -> Option<&str> {
        let text = self.value.text()?;
        match text.strip_prefix('@') {
            Some(rest) if rest.starts_with('@') => None,
            Some(rest) if self.name == "script" && rest.trim().contains('\n') => None,
            Some(path) => Some(path.trim()),
            None => (self.name == "stack.child_workflow").then(|| text.trim()),
        }
    }
}

/// The attributes of a graph, node or edge by their current names. Values of the element itself
/// come before the defaults of its scope. Nodes of one scope share its defaults, and edges of one
/// chain their attributes, so that memory grows with the file and not with its product.
#[derive(Clone, Debug, Default)]
pub struct Attrs {
    // Sorted by name, each name once; `None` when there are none, as on most edges.
    own: Option<Arc<Vec<Arc<Attr>>>>,
    inherited: Defaults,
    // Of all names in both.
    names: Names,
}

/// The defaults of a scope; a copy costs the same however many there are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Defaults {
    map: OrdMap<Cow<'static, str>, Arc<Attr>>,
    names: Names,
}

impl Defaults {
    /// Those that another scope lacks, or has from elsewhere.
    pub(crate) fn missing_in<'d>(&'d self, other: &'d Self) -> impl Iterator<Item = &'d Arc<Attr>> {
        let same = self.map.ptr_eq(&other.map);
        let all = self.map.values().filter(move |_| !same);
        all.filter(|attr| !other.map.get(&attr.name).is_some_and(|it| Arc::ptr_eq(it, attr)))
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    pub(crate) fn insert(&mut self, attr: Arc<Attr>) {
        self.names.add(&attr.name);
        self.map.insert(attr.name.clone(), attr);
    }
}

/// A bit for each name, which names may share: most lookups are for attributes that are not
/// there, and need nothing else.
#[derive(Clone, Copy, Debug, Default)]
struct Names(u64);

impl Names {
    fn add(&mut self, name: &str) {
        self.0 |= Self::bit(name);
    }

    fn may_have(self, name: &str) -> bool {
        self.0 & Self::bit(name) != 0
    }

    fn bit(name: &str) -> u64 {
        let bytes = name.as_bytes();
        let at = |index: usize| bytes.get(index).map_or(0, |byte| u32::from(*byte));
        let mixed = at(0) + 5 * at(bytes.len() / 2) + 11 * bytes.len() as u32;
        1 << (mixed % 64)
    }
}

impl Attrs {
    /// `written` in file order; of one name the last wins, and a name of today before an older
    /// one.
    pub(crate) fn new(written: Vec<Arc<Attr>>, inherited: Defaults) -> Self {
        let mut names = inherited.names;
        for attr in &written {
            names.add(&attr.name);
        }
        let own = (!written.is_empty()).then(|| Arc::new(settle(written)));
        Self { own, inherited, names }
    }

    /// The attribute of this current name.
    #[inline]
    pub fn get(&self, name: &str) -> Option<&Attr> {
        if self.names.may_have(name) { self.look_up(name) } else { None }
    }

    fn look_up(&self, name: &str) -> Option<&Attr> {
        let own = self.position(name).ok().map(|at| &self.own_slice()[at]);
        own.or_else(|| self.inherited.map.get(name)).map(Arc::as_ref)
    }

    /// All attributes, first the element's own, then the defaults it does not override; each
    /// group by name.
    pub fn iter(&self) -> impl Iterator<Item = &Attr> + '_ {
        let defaults = self.inherited.map.iter().filter(|(name, _)| self.position(name).is_err());
        self.own_slice().iter().chain(defaults.map(|(_, attr)| attr)).map(Arc::as_ref)
    }

    /// The element's own attributes by name, without the defaults of its scope.
    pub fn own(&self) -> impl Iterator<Item = &Attr> + '_ {
        self.own_slice().iter().map(Arc::as_ref)
    }

    /// The text of a string or a bare word. Attributes of the type text are always strings.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name)?.value.text()
    }

    /// The text of a string or a bare word, shared with the workflow.
    pub fn shared_text(&self, name: &str) -> Option<Arc<str>> {
        self.get(name)?.value.shared_text()
    }

    /// The attribute is there and `true`.
    pub fn is_true(&self, name: &str) -> bool {
        self.bool(name) == Some(true)
    }

    /// `true` or `false`.
    pub fn bool(&self, name: &str) -> Option<bool> {
        self.get(name)?.value.to_bool()
    }

    /// A whole number.
    pub fn int(&self, name: &str) -> Option<i64> {
        self.get(name)?.value.to_int()
    }

    /// A number.
    pub fn float(&self, name: &str) -> Option<f64> {
        self.get(name)?.value.to_float()
    }

    /// A duration; a number alone is in seconds.
    pub fn duration(&self, name: &str) -> Option<Duration> {
        self.get(name)?.value.to_duration()
    }

    /// The same with other attributes of the same names in their place.
    pub(crate) fn mapped(&self, map: &mut impl FnMut(&Arc<Attr>) -> Arc<Attr>) -> Self {
        let own = self.own.as_ref().map(|own| Arc::new(own.iter().map(&mut *map).collect()));
        let mut inherited = Defaults::default();
        for attr in self.inherited.map.values() {
            inherited.insert(map(attr));
        }
        Self { own, inherited, names: self.names }
    }

    /// Sets the element's own attribute, replacing an earlier value.
    pub(crate) fn set(&mut self, attr: Attr) {
        let position = self.position(&attr.name);
        self.names.add(&attr.name);
        let own = Arc::make_mut(self.own.get_or_insert_default());
        match position {
            Ok(at) => own[at] = Arc::new(attr),
            Err(at) => own.insert(at, Arc::new(attr)),
        }
    }

    fn position(&self, name: &str) -> Result<usize, usize> {
        self.own_slice().binary_search_by(|attr| attr.name.as_ref().cmp(name))
    }

    fn own_slice(&self) -> &[Arc<Attr>] {
        self.own.as_deref().map_or(&[], Vec::as_slice)
    }
}

/// Sorts by name and keeps one of each: the last, a current name before an older one.
pub(crate) fn settle(mut written: Vec<Arc<Attr>>) -> Vec<Arc<Attr>> {
    if written.len() < 2 {
        return written;
    }
    written.reverse();
    written.sort_by(|a, b| (&a.name, a.is_older_name()).cmp(&(&b.name, b.is_older_name())));
    written.dedup_by(|next, kept| next.name == kept.name);
    written
}
