//! Routing directives and JSON objects out of model text, in one linear pass.
