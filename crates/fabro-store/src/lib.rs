//! The durable log of runs: append with an expected sequence, read, follow, inbox.
