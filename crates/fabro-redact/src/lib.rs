//! Finds secrets in text and streams, by value and by shape, and blanks them out.
