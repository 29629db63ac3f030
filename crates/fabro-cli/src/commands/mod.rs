//! One file for each command: its arguments, what it does, and what it prints.

pub mod answer;
pub mod cancel;
pub mod compact;
pub mod completion;
pub mod context;
pub mod doctor;
pub mod events;
pub mod explain;
pub mod fmt;
mod follow;
pub mod fork;
pub mod graph;
pub mod init;
pub mod inspect;
mod inspect_stage;
mod log_files;
pub mod logs;
pub mod model;
mod model_test;
pub mod ps;
pub mod replay;
pub mod resume;
pub mod rm;
pub mod run;
pub mod steer;
pub mod validate;
pub mod wait;
