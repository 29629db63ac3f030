//! Any text is a patch or a refusal, and any patch applies to any file or not.

#![no_main]

use std::sync::Arc;

use fabro_sandbox::MemoryFiles;
use fabro_tools::{Patch, ToolContext, ToolSet, file_tools};
use fabro_types::Permissions;
use libfuzzer_sys::fuzz_target;
use serde_json::json;
use tokio_util::sync::CancellationToken;

fuzz_target!(|input: (&str, &str)| {
    let (patch, file) = input;
    if patch.len() + file.len() > fabro_fuzz::MAX_INPUT {
        return;
    }
    let is_patch = Patch::parse(patch).is_ok();
    let files = Arc::new(MemoryFiles::new([("a", file)]));
    let before = files.all();
    let tools = file_tools(files.clone()).into_iter().fold(ToolSet::new(), ToolSet::with);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let context = ToolContext::default();
    let cancel = CancellationToken::new();
    let output = runtime.block_on(async {
        let run = async |name, arguments| {
            tools.run(name, "1", &arguments, &context, &cancel, Permissions::Full).await
        };
        run("read_file", json!({"file_path": "a"})).await;
        run("apply_patch", json!({"patch": patch})).await
    });
    assert!(is_patch || output.is_error);
    if output.is_error {
        assert_eq!(files.all(), before);
    }
});
