//! Variables whose content is code, or says where code is loaded from.

/// By name, in the order of the bytes. Those that only shells read are among them: what a shell
/// imports as a number, it evaluates.
const NAMES: [&str; 110] = [
    "AWKLIBPATH",
    "AWKPATH",
    "BASHOPTS",
    "BASHPID",
    "BASH_ALIASES",
    "BASH_ARGC",
    "BASH_ARGV",
    "BASH_CMDS",
    "BASH_ENV",
    "BROWSER",
    "CLASSPATH",
    "CVS_RSH",
    "DOTNET_STARTUP_HOOKS",
    "EDITOR",
    "ELIXIR_ERL_OPTIONS",
    "EMACSLOADPATH",
    "ENV",
    "EPOCHSECONDS",
    "ERL_AFLAGS",
    "ERL_FLAGS",
    "ERL_ZFLAGS",
    "EUID",
    "EXINIT",
    "FCEDIT",
    "FPATH",
    "FUNCNEST",
    "FZF_DEFAULT_COMMAND",
    "GCONV_PATH",
    "GIT_ASKPASS",
    "GIT_COMMON_DIR",
    "GIT_DIR",
    "GIT_EDITOR",
    "GIT_EXEC_PATH",
    "GIT_EXTERNAL_DIFF",
    "GIT_PAGER",
    "GIT_PROXY_COMMAND",
    "GIT_SEQUENCE_EDITOR",
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "GIT_TEMPLATE_DIR",
    "GNUMAKEFLAGS",
    "GUILE_LOAD_PATH",
    "HGEDITOR",
    "HISTCMD",
    "IFS",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "JULIA_LOAD_PATH",
    "KUBE_EDITOR",
    "LESSCLOSE",
    "LESSOPEN",
    "LINENO",
    "LUA_CPATH",
    "LUA_INIT",
    "LUA_PATH",
    "MAILCHECK",
    "MAKEFILES",
    "MAKEFLAGS",
    "MANPAGER",
    "MFLAGS",
    "NODE_OPTIONS",
    "NODE_PATH",
    "OPENSSL_CONF",
    "OPTIND",
    "PAGER",
    "PERL5DB",
    "PERL5LIB",
    "PERL5OPT",
    "PERLLIB",
    "PHPRC",
    "PHP_INI_SCAN_DIR",
    "PPID",
    "PROMPT_COMMAND",
    "PS0",
    "PS1",
    "PS2",
    "PS3",
    "PS4",
    "PYTHONBREAKPOINT",
    "PYTHONHOME",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "PYTHONUSERBASE",
    "PYTHONWARNINGS",
    "RANDOM",
    "RSYNC_RSH",
    "RUBYLIB",
    "RUBYOPT",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTC_WRAPPER",
    "RUSTFLAGS",
    "R_ENVIRON",
    "R_ENVIRON_USER",
    "R_PROFILE",
    "R_PROFILE_USER",
    "SECONDS",
    "SHELLOPTS",
    "SRANDOM",
    "SSH_ASKPASS",
    "SUDO_ASKPASS",
    "SUDO_EDITOR",
    "SVN_SSH",
    "SYSTEMD_EDITOR",
    "SYSTEMD_PAGER",
    "TAR_OPTIONS",
    "UID",
    "VIMINIT",
    "VISUAL",
    "ZDOTDIR",
    "_JAVA_OPTIONS",
];

/// Beginnings of names: the loader of Linux and of macOS, functions of bash, settings of git.
const PREFIXES: [&str; 5] = ["BASH_FUNC", "DYLD_", "GIT_CONFIG", "LD_", "npm_config_"];

/// Whether shells, the loader, interpreters or common programs run what a variable of this name holds, or
/// load code from where it points: `BASH_ENV`, `LD_PRELOAD`, `PYTHONPATH`, `PAGER`. A value that is not known when
/// a script is written has no place in one.
///
/// `PATH`, and directories in which programs look for settings (`HOME`, `XDG_CONFIG_HOME`), are not among
/// them: workflows set them on purpose.
pub fn is_code_variable(name: &str) -> bool {
    NAMES.binary_search(&name).is_ok() || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found() {
        assert!(NAMES.is_sorted());
        for name in ["BASH_ENV", "LD_AUDIT", "PYTHONPATH", "_JAVA_OPTIONS", "GIT_CONFIG_COUNT"] {
            assert!(is_code_variable(name), "{name}");
        }
        for name in ["HOME", "PATH", "GIT_AUTHOR_NAME", "PATHS", "TITLE", "LDFLAGS"] {
            assert!(!is_code_variable(name), "{name}");
        }
    }
}
