//! The public items of the crates that others may use: one file each in `xtask/api`, so that a change of the API is a change of a
//! file that is reviewed. Every `pub` item is public: the lint `unreachable_pub` holds in all of them.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};
use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::{Attribute, Fields, ImplItem, Item, Meta, TraitItem, Visibility};

use crate::tidy::layers::is_entry_point;
use crate::workspace::{Package, Workspace};

/// The listings, by path.
pub(crate) fn listings(workspace: &Workspace) -> Result<Vec<(String, String)>> {
    let stable = workspace.packages.iter().filter(|package| is_entry_point(&package.name));
    stable
        .map(|package| {
            let items = items(workspace, package).with_context(|| package.name.clone())?;
            let text: String = items.into_iter().map(|item| item + "\n").collect();
            Ok((format!("xtask/api/{}.txt", package.name), text))
        })
        .collect()
}

/// The items of a library, sorted.
fn items(workspace: &Workspace, package: &Package) -> Result<BTreeSet<String>> {
    let root = format!("{}/src/lib.rs", package.dir);
    let mut found = Listing { workspace, items: BTreeSet::new() };
    found.file(&root, &package.name.replace('-', "_"))?;
    Ok(found.items)
}

struct Listing<'a> {
    workspace: &'a Workspace,
    items: BTreeSet<String>,
}

impl Listing<'_> {
    fn file(&mut self, path: &str, module: &str) -> Result<()> {
        let text = self.workspace.file(path).with_context(|| format!("read {path}"))?;
        let file = syn::parse_file(text).with_context(|| format!("parse {path}"))?;
        // Where the files of the modules are that this one declares.
        let folder = match path.strip_suffix("/lib.rs").or_else(|| path.strip_suffix("/mod.rs")) {
            Some(folder) => folder.to_owned(),
            None => path.trim_end_matches(".rs").to_owned(),
        };
        self.list(&file.items, &folder, module)
    }

    fn list(&mut self, items: &[Item], folder: &str, module: &str) -> Result<()> {
        for item in items {
            self.item(item, folder, module)?;
        }
        Ok(())
    }

    fn item(&mut self, item: &Item, folder: &str, module: &str) -> Result<()> {
        match item {
            Item::Mod(it) if is_test(&it.attrs) => {}
            Item::Mod(it) => {
                let name = format!("{module}::{}", it.ident);
                let folder = format!("{folder}/{}", it.ident);
                if is_public(&it.vis) {
                    self.add(module, "mod", &it.ident);
                }
                let Some((_, items)) = &it.content else {
                    let paths = [format!("{folder}.rs"), format!("{folder}/mod.rs")];
                    let path = paths.iter().find(|path| self.workspace.file(path).is_some());
                    let Some(path) = path else { bail!("there is no {}", paths[0]) };
                    return self.file(path, &name);
                };
                self.list(items, &folder, &name)?;
            }
            Item::Use(it) if is_public(&it.vis) => self.add(module, "use", &it.tree),
            Item::Fn(it) if is_public(&it.vis) => self.add(module, "", &it.sig),
            Item::Const(it) if is_public(&it.vis) => {
                self.add(module, "const", typed(&it.ident, &it.ty));
            }
            Item::Static(it) if is_public(&it.vis) => {
                self.add(module, "static", typed(&it.ident, &it.ty));
            }
            Item::Type(it) if is_public(&it.vis) => {
                let name = &it.ident;
                let generics = &it.generics;
                let ty = &it.ty;
                self.add(module, "type", quote::quote!(#name #generics = #ty));
            }
            Item::Struct(it) if is_public(&it.vis) => {
                let name = &it.ident;
                let generics = &it.generics;
                self.add(module, &attributes(&it.attrs), quote::quote!(struct #name #generics));
                self.fields(&it.fields, &format!("{module}::{name}"));
            }
            Item::Enum(it) if is_public(&it.vis) => {
                let name = &it.ident;
                let generics = &it.generics;
                self.add(module, &attributes(&it.attrs), quote::quote!(enum #name #generics));
                for variant in &it.variants {
                    let variant_name = &variant.ident;
                    let fields = without_attributes(&variant.fields);
                    self.add(
                        &format!("{module}::{name}"),
                        &attributes(&variant.attrs),
                        quote::quote!(#variant_name #fields),
                    );
                }
            }
            Item::Trait(it) if is_public(&it.vis) => {
                let name = &it.ident;
                let generics = &it.generics;
                let bounds = &it.supertraits;
                self.add(module, "trait", quote::quote!(#name #generics: #bounds));
                for item in &it.items {
                    self.trait_item(item, &format!("{module}::{name}"));
                }
            }
            Item::Impl(it) if !is_test(&it.attrs) => self.implementation(it, module),
            Item::Macro(it) if it.attrs.iter().any(|it| it.path().is_ident("macro_export")) => {
                self.add(module, "macro", &it.ident);
            }
            _ => {}
        }
        Ok(())
    }

    fn fields(&mut self, fields: &Fields, path: &str) {
        for (at, field) in fields.iter().enumerate().filter(|(_, field)| is_public(&field.vis)) {
            let name = field.ident.as_ref().map_or_else(|| at.to_string(), ToString::to_string);
            let ty = &field.ty;
            self.items.insert(format!("{path}::{name}: {}", text(&quote::quote!(#ty))));
        }
    }

    fn trait_item(&mut self, item: &TraitItem, path: &str) {
        match item {
            TraitItem::Fn(it) => {
                let default =
                    if it.default.is_some() { quote::quote!({ .. }) } else { quote::quote!() };
                let signature = &it.sig;
                self.add(path, "", quote::quote!(#signature #default));
            }
            TraitItem::Type(it) => {
                let name = &it.ident;
                let bounds = &it.bounds;
                self.add(path, "type", quote::quote!(#name: #bounds));
            }
            TraitItem::Const(it) => {
                self.add(path, "const", typed(&it.ident, &it.ty));
            }
            _ => {}
        }
    }

    /// The public functions of a type; of a trait's implementation, that it is there.
    fn implementation(&mut self, it: &syn::ItemImpl, module: &str) {
        let ty = &it.self_ty;
        let generics = &it.generics;
        if let Some((_, name, _)) = &it.trait_ {
            self.add(module, "impl", quote::quote!(#generics #name for #ty));
            return;
        }
        let path = format!("{module}::{}", text(&quote::quote!(#ty)));
        for item in &it.items {
            match item {
                ImplItem::Fn(it) if is_public(&it.vis) => self.add(&path, "", &it.sig),
                ImplItem::Const(it) if is_public(&it.vis) => {
                    self.add(&path, "const", typed(&it.ident, &it.ty));
                }
                _ => {}
            }
        }
    }

    fn add(&mut self, path: &str, before: &str, item: impl ToTokens) {
        let space = if before.is_empty() { "" } else { " " };
        self.items.insert(format!("{path}: {before}{space}{}", text(&item.to_token_stream())));
    }
}

fn typed(name: &syn::Ident, ty: &syn::Type) -> TokenStream {
    quote::quote!(#name: #ty)
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn is_test(attributes: &[Attribute]) -> bool {
    let is_test =
        |it: &Attribute| matches!(&it.meta, Meta::List(list) if list.tokens.to_string() == "test");
    attributes.iter().any(|it| it.path().is_ident("cfg") && is_test(it))
}

/// What a user of the item depends on: what it derives, and that it may grow.
fn attributes(attributes: &[Attribute]) -> String {
    let kept = attributes
        .iter()
        .filter(|it| it.path().is_ident("derive") || it.path().is_ident("non_exhaustive"));
    text(&kept.map(ToTokens::to_token_stream).collect())
}

fn without_attributes(fields: &Fields) -> Fields {
    let mut fields = fields.clone();
    for field in &mut fields {
        field.attrs.clear();
    }
    fields
}

/// Tokens as a line, with the usual spaces.
fn text(tokens: &TokenStream) -> String {
    const SPACES: [(&str, &str); 16] = [
        (" ::", "::"),
        (":: ", "::"),
        (" ,", ","),
        (" (", "("),
        ("( ", "("),
        (" )", ")"),
        (" :", ":"),
        ("& ", "&"),
        (" <", "<"),
        ("< ", "<"),
        (" >", ">"),
        ("# [", "#["),
        (",)", ")"),
        (",>", ">"),
        (" ;", ";"),
        ("* const ", "*const "),
    ];
    let line = tokens.to_string();
    SPACES.iter().fold(line, |line, (from, to)| line.replace(from, to))
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;
    use crate::workspace::testing::workspace;

    #[test]
    fn public_items_are_listed() {
        let manifest = ("crates/fabro-graph/Cargo.toml", "[package]\nname = 'fabro-graph'");
        let library = (
            "crates/fabro-graph/src/lib.rs",
            "mod inner;\npub use inner::A;\n#[cfg(test)]\nmod tests { pub fn t() {} }\n\
             pub(crate) fn hidden() {}\npub const MAX: usize = 3;",
        );
        let inner = (
            "crates/fabro-graph/src/inner.rs",
            "#[derive(Clone)]\n#[non_exhaustive]\npub struct A<'a> { pub x: &'a str, y: u8 }\n\
             impl<'a> A<'a> { pub async fn new(x: &'a str) -> Result<Self, E> { todo!() } fn z(&self) {} }\n\
             impl Drop for A<'_> { fn drop(&mut self) {} }\n\
             pub trait T: Send { fn a(&self); fn b(&self) {} }\npub enum E { /// it\n One, Two { a: u8 } }",
        );
        let listings = listings(&workspace(&[manifest, library, inner])).unwrap();
        assert_eq!(listings[0].0, "xtask/api/fabro-graph.txt");
        assert_snapshot!(listings[0].1, @r"
        fabro_graph: const MAX: usize
        fabro_graph: use inner::A
        fabro_graph::inner: #[derive(Clone)] #[non_exhaustive] struct A<'a>
        fabro_graph::inner: enum E
        fabro_graph::inner: impl Drop for A<'_>
        fabro_graph::inner: trait T: Send
        fabro_graph::inner::A::x: &'a str
        fabro_graph::inner::A<'a>: async fn new(x: &'a str) -> Result<Self, E>
        fabro_graph::inner::E: One
        fabro_graph::inner::E: Two { a: u8 }
        fabro_graph::inner::T: fn a(&self)
        fabro_graph::inner::T: fn b(&self) { .. }
        ");
    }

    #[test]
    fn the_listings_are_those_of_the_crates() {
        let root = crate::root();
        let workspace = Workspace::load(&root).unwrap();
        for (path, text) in listings(&workspace).unwrap() {
            let found = std::fs::read_to_string(root.join(&path)).unwrap_or_default();
            let is_same = found == text;
            assert!(
                is_same,
                "{path}: run `cargo xtask fixtures --bless`, and see docs/stability.md"
            );
        }
    }
}
