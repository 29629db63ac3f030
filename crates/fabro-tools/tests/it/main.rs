//! Tools on real files, sockets and processes.
