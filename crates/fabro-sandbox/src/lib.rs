//! Running scripts in a process group of their own, with time limits and bounded memory.
