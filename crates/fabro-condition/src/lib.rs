//! The condition language of workflow edges: parse once, evaluate, explain clause by clause.
