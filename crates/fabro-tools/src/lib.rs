//! The tools of an agent: files, search, shell, web, workflow context; arguments checked, output bounded.
