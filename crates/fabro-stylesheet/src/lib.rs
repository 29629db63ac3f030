//! Model stylesheets: selectors, specificity and cascade.
