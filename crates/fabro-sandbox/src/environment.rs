/// The variables of the user's environment that the shell of an agent gets, separated by spaces: the
/// locations of programs and their files, and the user's language. None is meant to hold a secret.
const ALLOWED: [&str; 3] = [
    // The user and the terminal.
    "HOME LANG LANGUAGE LOGNAME NO_COLOR PATH PWD SHELL TEMP TERM TMP TMPDIR TZ USER \
     COLORTERM HOSTNAME XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME XDG_STATE_HOME",
    // Where certificates and libraries are.
    "LD_LIBRARY_PATH DYLD_LIBRARY_PATH NIX_SSL_CERT_FILE PKG_CONFIG_PATH SSL_CERT_DIR \
     SSL_CERT_FILE",
    // Tool chains.
    "AR BUN_INSTALL CARGO_HOME CARGO_TARGET_DIR CC CFLAGS CONDA_PREFIX CXX CXXFLAGS DENO_DIR \
     DOTNET_ROOT GEM_HOME GEM_PATH GOCACHE GOMODCACHE GOPATH GOROOT GRADLE_HOME \
     GRADLE_USER_HOME JAVA_HOME LDFLAGS M2_HOME MAVEN_HOME NODE_PATH NVM_BIN NVM_DIR \
     PNPM_HOME PYENV_ROOT PYTHONPATH RBENV_ROOT RUSTFLAGS RUSTUP_HOME RUSTUP_TOOLCHAIN \
     SDKROOT ANDROID_HOME UV_CACHE_DIR VIRTUAL_ENV VOLTA_HOME",
];

/// The whole environment of the programs of an agent: of the user's variables the locations of
/// programs and files (`PATH`, `HOME`, `LANG`, `LC_*`, `CARGO_HOME`, …), then `extra`, as it is.
///
/// The result is sorted by name, each name once; where both have a name, `extra` wins.
///
/// ```
/// let user = [("PATH", "/bin"), ("ANTHROPIC_API_KEY", "k"), ("LC_ALL", "C")];
/// let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
/// let env = fabro_sandbox::agent_env(user.map(own), [("RUST_LOG", "info")].map(own));
/// assert_eq!(env, [("LC_ALL", "C"), ("PATH", "/bin"), ("RUST_LOG", "info")].map(own));
/// ```
pub fn agent_env(
    user: impl IntoIterator<Item = (String, String)>,
    extra: impl IntoIterator<Item = (String, String)>,
) -> Vec<(String, String)> {
    let allowed = user.into_iter().filter(|(name, _)| is_allowed(name));
    let all: std::collections::BTreeMap<_, _> = allowed.chain(extra).collect();
    all.into_iter().collect()
}

fn is_allowed(name: &str) -> bool {
    name.starts_with("LC_") || ALLOWED.iter().any(|names| names.split(' ').any(|it| it == name))
}
