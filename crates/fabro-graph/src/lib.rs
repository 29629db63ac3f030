//! The .fabro workflow language: a spanned syntax tree, a typed workflow graph, and a formatter.
