//! Full-text search over chunks of files, for the retrieved block of a prompt.
