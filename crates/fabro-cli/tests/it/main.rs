//! The built `fabro` on temporary projects: what it prints, and how it exits.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails")]

mod artifacts;
mod check;
mod completion;
mod damage;
mod documented;
mod dumps;
mod examples;
mod gates;
mod hooks;
mod html_reports;
mod isolation;
mod limits;
mod lists;
mod logs;
mod models;
mod old_stores;
mod pages;
mod parts;
mod people;
mod programs;
mod project;
mod remote_sandboxes;
mod replays;
mod reports;
mod run_file;
mod safe_text;
mod sandboxes;
mod secrets;
mod serve;
mod serve_mcp;
mod serve_pages;
mod serve_security;
mod served;
mod space;
mod states;
mod terminal;
mod traces;
mod unavailable;
mod upstream;
mod warnings;
mod worktrees;
