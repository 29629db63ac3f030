//! The modules of a crate and the files that the names in their code come from. Good enough for this
//! workspace: `#[path]` and names made by macros are not followed.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{Token, closing, sources, starts};
use crate::workspace::{Package, Workspace};

/// Re-exports of re-exports are followed this deep; a deeper one is a loop.
const DEEPEST: usize = 16;
/// The keywords before the name of an item.
const ITEMS: [&str; 9] =
    ["struct", "enum", "union", "trait", "fn", "const", "static", "type", "macro_rules"];

type ModulePath = Vec<String>;

/// The modules of one crate.
pub(super) struct Modules<'a> {
    /// Each file with its module.
    files: Vec<(&'a str, ModulePath)>,
    modules: BTreeMap<ModulePath, Module>,
}

/// A module: a file, or a block inside of one.
#[derive(Default)]
struct Module {
    /// Its index in `Modules::files`.
    file: usize,
    items: BTreeSet<String>,
    uses: Vec<Use>,
    /// The paths in its code, and single names; without those of its `use` declarations.
    paths: Vec<Vec<String>>,
}

/// One name that a `use` brings in.
struct Use {
    /// The name here; `*` for a glob.
    name: String,
    path: Vec<String>,
    /// `pub use`: for others, so that it is no use by the module itself.
    exported: bool,
}

/// What a path leads to: files with the item it names, and its name there, and a module.
#[derive(Default)]
struct Target {
    files: BTreeMap<usize, String>,
    module: Option<ModulePath>,
}

impl<'a> Modules<'a> {
    pub(super) fn of(workspace: &'a Workspace, package: &'a Package) -> Self {
        let mut found = Self { files: Vec::new(), modules: BTreeMap::new() };
        let root = package.root_file(workspace).map(|(path, _)| path);
        for source in sources(workspace, package) {
            let path = if root.as_deref() == Some(source.path) {
                Vec::new()
            } else {
                module_path(&source.path[package.dir.len() + "/src/".len()..])
            };
            found.read(path.clone(), found.files.len(), &source.tokens);
            found.files.push((source.path, path));
        }
        found
    }

    /// Which file uses what of which other: (from, to) with the names, in order. What a module uses of the
    /// module that it is declared in is left out: the two are one, in several files.
    pub(super) fn imports(&self) -> BTreeMap<(&'a str, &'a str), BTreeSet<String>> {
        let mut imports: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
        for (at, module) in &self.modules {
            let own_uses = module.uses.iter().filter(|it| !it.exported).map(|it| &it.path);
            for path in own_uses.chain(&module.paths) {
                for (file, name) in self.resolve(at, path, 0).files {
                    let (to, parent) = &self.files[file];
                    if file == module.file || at.starts_with(parent) {
                        continue;
                    }
                    let files = (self.files[module.file].0, *to);
                    imports.entry(files).or_default().insert(name);
                }
            }
        }
        imports
    }

    /// Adds the module with these tokens, and the blocks `mod name { … }` in it.
    fn read(&mut self, path: ModulePath, file: usize, tokens: &[Token]) {
        let mut module = Module { file, ..Module::default() };
        let mut at = 0;
        let mut depth = 0_usize;
        while at < tokens.len() {
            let text = tokens[at].text.as_str();
            let next = tokens.get(at + 1).map_or("", |token| token.text.as_str());
            if text == "mod" && tokens.get(at + 2).is_some_and(|token| token.text == "{") {
                let end = closing(tokens, at + 2).unwrap_or(tokens.len() - 1);
                let inner = [path.as_slice(), &[next.to_owned()]].concat();
                self.read(inner, file, &tokens[at + 3..end]);
                at = end + 1;
                continue;
            }
            // `use<'a>` is no declaration.
            if text == "use" && next != "<" {
                let end = end_of_use(tokens, at);
                let exported = at > 0 && ["pub", ")"].contains(&tokens[at - 1].text.as_str());
                let mut tree = Tree { tokens: &tokens[at + 1..end], exported, found: Vec::new() };
                tree.read(&[]);
                module.uses.append(&mut tree.found);
                at = end + 1;
                continue;
            }
            match text {
                "{" | "(" | "[" => depth += 1,
                "}" | ")" | "]" => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 && ITEMS.contains(&text) {
                let name = tokens[at + 1..].iter().find(|it| !["mut", "!"].contains(&&*it.text));
                let name = name.filter(|name| is_name(&name.text));
                module.items.extend(name.map(|name| name.text.clone()));
            }
            let path = path_at(tokens, at);
            at += (3 * path.len()).saturating_sub(2).max(1);
            module.paths.extend((!path.is_empty()).then_some(path));
        }
        self.modules.insert(path, module);
    }

    fn resolve(&self, from: &[String], path: &[String], depth: usize) -> Target {
        let Some((first, mut rest)) = path.split_first().filter(|_| depth < DEEPEST) else {
            return Target::default();
        };
        let mut module = match first.as_str() {
            "crate" => Vec::new(),
            "self" => from.to_vec(),
            "super" => {
                let mut parent = from.to_vec();
                parent.pop();
                while let Some(("super", more)) = rest.split_first().map(|(a, b)| (a.as_str(), b)) {
                    parent.pop();
                    rest = more;
                }
                parent
            }
            _ => {
                rest = path;
                from.to_vec()
            }
        };
        while let Some((name, more)) = rest.split_first() {
            let here = self.find(&module, name, depth);
            match here.module {
                Some(inner) if !more.is_empty() => module = inner,
                _ => return here,
            }
            rest = more;
        }
        Target { module: Some(module), ..Target::default() }
    }

    /// What `name` is in a module: an item, a module, or what a `use` brings in.
    fn find(&self, at: &[String], name: &str, depth: usize) -> Target {
        let mut target = Target::default();
        let Some(module) = self.modules.get(at) else { return target };
        if module.items.contains(name) {
            target.files.insert(module.file, name.to_owned());
        }
        for import in module.uses.iter().filter(|it| it.name == name) {
            let through = self.resolve(at, &import.path, depth + 1);
            target.files.extend(through.files);
            target.module = target.module.or(through.module);
        }
        let inner = [at, &[name.to_owned()]].concat();
        if self.modules.contains_key(&inner) {
            target.module = Some(inner);
        }
        if target.files.is_empty() && target.module.is_none() {
            for glob in module.uses.iter().filter(|it| it.name == "*") {
                let path = [glob.path.as_slice(), &[name.to_owned()]].concat();
                let through = self.resolve(at, &path, depth + 1);
                target.files.extend(through.files);
                target.module = target.module.or(through.module);
            }
        }
        target
    }
}

/// The tree of one `use` declaration.
struct Tree<'a> {
    /// What is left of it.
    tokens: &'a [Token],
    exported: bool,
    found: Vec<Use>,
}

impl Tree<'_> {
    /// Reads one branch below `prefix`, to the `,` or bracket after it.
    fn read(&mut self, prefix: &[String]) {
        let mut path = prefix.to_vec();
        let mut name = None;
        while let Some((token, rest)) = self.tokens.split_first() {
            match token.text.as_str() {
                "," | "}" => break,
                ":" => self.tokens = rest,
                "as" => {
                    name = rest.first().map(|token| token.text.clone());
                    self.tokens = rest.get(1..).unwrap_or_default();
                }
                "{" => return self.read_group(&path),
                "*" => {
                    name = Some("*".to_owned());
                    self.tokens = rest;
                }
                text => {
                    path.push(text.to_owned());
                    self.tokens = rest;
                }
            }
        }
        // `{self}` is the module itself.
        if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        if let Some(name) = name.or_else(|| path.last().cloned()) {
            self.found.push(Use { name, path, exported: self.exported });
        }
    }

    fn read_group(&mut self, prefix: &[String]) {
        while let Some((token, rest)) = self.tokens.split_first() {
            // The opening bracket, a comma, or the end.
            self.tokens = rest;
            let ends = rest.first().is_none_or(|next| next.text == "}");
            if token.text == "}" {
                break;
            }
            if !ends {
                self.read(prefix);
            }
        }
    }
}

/// `llm/mod.rs` and `llm.rs` are the module `llm`.
fn module_path(file: &str) -> ModulePath {
    let path = file.trim_end_matches(".rs");
    let path = path.strip_suffix("/mod").unwrap_or(path);
    path.split('/').map(str::to_owned).collect()
}

/// The `;` that ends the declaration at `at`.
fn end_of_use(tokens: &[Token], at: usize) -> usize {
    let length = tokens[at..].iter().take_while(|token| token.text != ";").count();
    at + length
}

/// The path `a::b::c` that begins at `at`; empty inside of a path, for a member and for a label.
fn path_at(tokens: &[Token], at: usize) -> Vec<String> {
    let before = |back: usize| at.checked_sub(back).map_or("", |at| tokens[at].text.as_str());
    let is_inside = before(1) == ":" && before(2) == ":";
    let is_member = before(1) == "." && before(2) != ".";
    let is_label = starts(tokens, at + 1, &[":"]) && !starts(tokens, at + 1, &[":", ":"]);
    let mut path = Vec::new();
    if is_inside || is_member || is_label {
        return path;
    }
    let mut at = at;
    while let Some(token) = tokens.get(at).filter(|token| is_name(&token.text)) {
        path.push(token.text.clone());
        if !starts(tokens, at + 1, &[":", ":"]) {
            break;
        }
        at += 3;
    }
    path
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}
