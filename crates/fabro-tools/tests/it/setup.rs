use std::path::PathBuf;
use std::sync::Arc;

use fabro_sandbox::{Files, LocalFiles, MemoryFiles};
use fabro_tools::{Output, Tool, ToolContext, ToolSet, file_tools};
use fabro_types::Permissions;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// An agent with full permissions.
pub(crate) struct Agent {
    pub(crate) tools: ToolSet,
    pub(crate) context: ToolContext,
    pub(crate) cancel: CancellationToken,
}

impl Agent {
    pub(crate) fn new(tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Self {
        Self {
            tools: tools.into_iter().fold(ToolSet::new(), ToolSet::with),
            context: ToolContext::default(),
            cancel: CancellationToken::new(),
        }
    }

    pub(crate) fn on(files: impl Files + 'static) -> Self {
        Self::new(file_tools(Arc::new(files)))
    }

    /// One with these files, in memory.
    pub(crate) fn with(files: &[(&str, &str)]) -> (Self, Arc<MemoryFiles>) {
        let files = Arc::new(MemoryFiles::new(files.iter().copied()));
        (Self::new(file_tools(files.clone())), files)
    }

    pub(crate) async fn run(&self, tool: &str, arguments: Value) -> Output {
        let permissions = Permissions::Full;
        let context = &self.context;
        let cancel = &self.cancel;
        self.tools.run(tool, "1", &arguments, context, cancel, permissions).await
    }

    /// What a call says that goes well.
    #[track_caller]
    pub(crate) fn ok(&self, tool: &str, arguments: Value) -> impl Future<Output = String> {
        let place = std::panic::Location::caller();
        async move {
            let output = self.run(tool, arguments).await;
            assert!(!output.is_error, "{place}: {}", output.text);
            output.text
        }
    }

    /// What a call says that fails.
    #[track_caller]
    pub(crate) fn fails(&self, tool: &str, arguments: Value) -> impl Future<Output = String> {
        let place = std::panic::Location::caller();
        async move {
            let output = self.run(tool, arguments).await;
            assert!(output.is_error, "{place}: {}", output.text);
            output.text
        }
    }
}

/// A working directory `work` with `a.txt`, and a directory `out` beside it with a secret.
pub(crate) struct Place {
    pub(crate) directory: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("work")).unwrap();
        std::fs::create_dir(directory.path().join("out")).unwrap();
        std::fs::write(directory.path().join("work/a.txt"), "inside\n").unwrap();
        std::fs::write(directory.path().join("out/secret"), "top secret\n").unwrap();
        Self { directory }
    }

    pub(crate) fn files(&self) -> LocalFiles {
        LocalFiles::new(self.work("")).unwrap()
    }

    pub(crate) fn work(&self, path: &str) -> PathBuf {
        self.directory.path().join("work").join(path)
    }

    pub(crate) fn out(&self, path: &str) -> PathBuf {
        self.directory.path().join("out").join(path)
    }
}
