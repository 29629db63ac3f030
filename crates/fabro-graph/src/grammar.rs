//! The parser that pest derives from `graph.pest`. Private: no other crate sees a `Rule`.

#[derive(pest_derive::Parser)]
#[grammar = "graph.pest"]
pub(crate) struct Grammar;
