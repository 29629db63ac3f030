//! The parser that pest derives from `graph.pest`. Private: nobody outside sees a `Rule`.

#[derive(pest_derive::Parser)]
#[grammar = "graph.pest"]
pub(crate) struct Grammar;
