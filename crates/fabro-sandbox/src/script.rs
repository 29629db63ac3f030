//! What running a script has in common, wherever it runs.

use std::time::Duration;

/// How long output is read when the group has ended but a process outside it holds the pipe.
pub(crate) const LAST_OUTPUT: Duration = Duration::from_millis(100);

/// Runs a script from a file just as `python3 -c` would: same arguments, same module path.
pub(crate) const PYTHON_FROM_FILE: &str = "import sys\n\
    exec(compile(open(sys.argv.pop(), encoding='utf-8').read(), '<string>', 'exec'))";
