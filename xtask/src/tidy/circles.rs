//! Files of one crate that import each other in a circle. A reader of one has to read all of them, so
//! what they share belongs into a file below them.

use std::collections::BTreeMap;

use petgraph::algo::tarjan_scc;
use petgraph::graph::DiGraph;

use super::Problem;
use super::modules::Modules;
use crate::workspace::{Package, Workspace};

/// The circles that are allowed, by their first file, and the reason.
const ALLOWED: &[(&str, &str)] = &[];

/// No file imports, directly or through others, a file that imports it. A re-export is followed to the
/// file of the item, and a module may use what the module that declares it defines.
pub(super) fn import_circles(workspace: &Workspace) -> Vec<Problem> {
    except(all_circles(workspace), ALLOWED)
}

/// The circles that are not allowed, and an error for each exception without a circle.
fn except(circles: Vec<Problem>, allowed: &[(&str, &str)]) -> Vec<Problem> {
    let is_found = |file: &str| circles.iter().any(|circle| circle.path == file);
    let stale = allowed.iter().filter(|(file, _)| !is_found(file));
    let mut problems: Vec<_> = stale
        .map(|(file, _)| {
            let message = format!("no circle begins with {file}: remove it from `ALLOWED`");
            Problem::new("xtask/src/tidy/circles.rs", 0, message)
        })
        .collect();
    let is_allowed = |circle: &Problem| allowed.iter().any(|(file, _)| circle.path == *file);
    problems.extend(circles.into_iter().filter(|circle| !is_allowed(circle)));
    problems
}

fn all_circles(workspace: &Workspace) -> Vec<Problem> {
    workspace.packages.iter().flat_map(|package| circles(workspace, package)).collect()
}

/// One problem for each circle, at its first file.
fn circles(workspace: &Workspace, package: &Package) -> Vec<Problem> {
    let modules = Modules::of(workspace, package);
    let imports = modules.imports();
    let mut graph = DiGraph::new();
    let mut nodes = BTreeMap::new();
    for ((from, to), names) in &imports {
        let ends = [from, to].map(|file| {
            let node = nodes.entry(*file);
            *node.or_insert_with(|| graph.add_node(*file))
        });
        graph.add_edge(ends[0], ends[1], names);
    }
    let mut problems = Vec::new();
    for circle in tarjan_scc(&graph).into_iter().filter(|circle| circle.len() > 1) {
        let is_inside = |file: &str| nodes.get(file).is_some_and(|node| circle.contains(node));
        let inside = imports.iter().filter(|((from, to), _)| is_inside(from) && is_inside(to));
        let short = |file: &str| file[package.dir.len() + "/src/".len()..].to_owned();
        let lines: Vec<_> = inside
            .map(|((from, to), names)| {
                let names: Vec<_> = names.iter().map(String::as_str).collect();
                format!("\n    {} -> {}: {}", short(from), short(to), names.join(", "))
            })
            .collect();
        let count = circle.len();
        let message = format!("{count} files import each other in a circle:{}", lines.concat());
        let first = circle.iter().map(|node| graph[*node]).min().unwrap_or_default();
        problems.push(Problem::new(first, 0, message));
    }
    problems.sort_by(|a, b| a.path.cmp(&b.path));
    problems
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;
    use crate::tidy::found;

    /// The circles of a crate with these files below `src`.
    fn check(files: &[(&str, &str)]) -> String {
        let paths = files.iter().map(|(path, text)| (format!("crates/a/src/{path}"), *text));
        let paths: Vec<_> = paths.collect();
        let mut all = vec![("crates/a/Cargo.toml", "[package]\nname = 'a'")];
        all.extend(paths.iter().map(|(path, text)| (path.as_str(), *text)));
        found(all_circles, &all)
    }

    #[test]
    fn files_that_import_each_other_are_found() {
        let circle = check(&[
            ("lib.rs", "mod b; mod c; mod d;"),
            ("b.rs", "use crate::c::{C, other as mine};\npub(crate) struct B;"),
            ("c.rs", "use std::fmt;\nuse super::b;\npub(crate) struct C(b::B);\nfn other() {}"),
            ("d.rs", "use crate::b::B;"),
        ]);
        assert_snapshot!(circle, @r"
        crates/a/src/b.rs: 2 files import each other in a circle:
            b.rs -> c.rs: C, other
            c.rs -> b.rs: B
        ");
    }

    #[test]
    fn a_circle_through_re_exports_and_folders_is_found() {
        let circle = check(&[
            ("lib.rs", "mod b;\nmod c;\nmod d;\npub use b::B;"),
            ("b.rs", "use crate::c::*;\npub struct B;\nfn f() { inner(); }"),
            ("c/mod.rs", "mod deep;\npub(crate) use deep::inner;"),
            ("c/deep.rs", "pub(crate) fn inner() { crate::d::name(); }"),
            ("d.rs", "pub fn name() -> crate::B { loop {} }"),
        ]);
        assert_snapshot!(circle, @r"
        crates/a/src/b.rs: 3 files import each other in a circle:
            b.rs -> c/deep.rs: inner
            c/deep.rs -> d.rs: name
            d.rs -> b.rs: B
        ");
    }

    #[test]
    fn what_is_no_circle() {
        // A child uses its parent, which declares, re-exports and calls it.
        let parent = ("lib.rs", "mod b; pub use b::B; pub struct A; fn f() { b::g(); }");
        assert_eq!(check(&[parent, ("b.rs", "use super::A; pub struct B(A); pub fn g() {}")]), "");
        // Tests, comments, texts, members and labels import nothing.
        let lib = ("lib.rs", "mod b; mod c;");
        let c = ("c.rs", "use crate::b::B; pub struct C;");
        for text in [
            "pub struct B; #[cfg(test)] mod tests { use crate::c::C; }",
            "/// [`C`](crate::c::C)\npub struct B; // crate::c::C",
            "pub struct B; const T: &str = \"crate::c::C\";",
            "use other::c::C; pub struct B { c: u8 } fn f(b: B) { b.c.C(); }",
            "pub struct B; impl B { fn f<'c>(self) -> impl Sized + use<> {} }",
        ] {
            assert_eq!(check(&[lib, ("b.rs", text), c]), "", "{text}");
        }
        // The same with an import.
        assert_ne!(check(&[lib, ("b.rs", "pub struct B(crate::c::C);"), c]), "");
        assert_ne!(check(&[lib, ("b.rs", "pub struct B; fn f() { use crate::c; c::C; }"), c]), "");
        assert_ne!(
            check(&[lib, ("b.rs", "mod x { use super::super::c::C; } pub struct B;"), c]),
            ""
        );
    }

    #[test]
    fn an_exception_names_a_circle() {
        let circle = || vec![Problem::new("a.rs", 0, "2 files")];
        let except = |allowed| {
            let problems = except(circle(), allowed);
            problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n")
        };
        assert_eq!(except(&[("a.rs", "why")]), "");
        assert_snapshot!(except(&[("b.rs", "why")]), @r"
        xtask/src/tidy/circles.rs: no circle begins with b.rs: remove it from `ALLOWED`
        a.rs: 2 files
        ");
    }
}
