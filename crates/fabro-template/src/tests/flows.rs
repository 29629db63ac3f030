//! Values that become code by way of variables, arguments, input and files: `@` is a value.

use super::*;

fn is_refused(script: &str, mode: Mode) -> bool {
    // `$@` and `[@]` are the shell's own.
    let script = script.replace("$@", "\u{1}").replace("[@]}", "\u{2}");
    let script = script.replace('@', "{{ context.v }}");
    let script = script.replace('\u{1}', "$@").replace('\u{2}', "[@]}");
    !Template::parse(&script).unwrap().misplaced(mode).is_empty()
}

fn check(scripts: &[&str], expected: bool) {
    let wrong: Vec<_> =
        scripts.iter().filter(|script| is_refused(script, Mode::Shell) != expected).collect();
    assert!(wrong.is_empty(), "refused should be {expected}: {wrong:#?}");
}

#[test]
fn variables_that_are_evaluated_hold_no_values() {
    check(
        &[
            "x=@; y=$x; echo $((y))",
            "x=@; y=\"$x\"; z=${y}; ((z++))",
            "x=@; y=x; echo $((y))",
            "x=@; declare -i y; y=$x",
            "x=@; export y=$x; [[ $y -gt 1 ]]",
            "x=@; trap 'eval \"$x\"' EXIT",
            "x=@; trap '$x' EXIT",
            "x=@; eval '$x'",
            "x=@; trap 'alias a=b; echo $((x))' EXIT",
            "x=@; export x; bash -c 'alias a=b; echo $((x))'",
            "x=@; export x; bash -c '\"$@\"' _ eval 'echo $((x))'",
            "x=@; export x; bash -c 'echo $((x))'",
            "x=@ bash -c 'echo $((x))'",
            "env N=@ sh -c 'eval \"$N\"'",
            "x=@; read \"$x\" </dev/null",
            "x=@; echo a >&$x",
            "x=@; awk \"BEGIN{$x}\"",
            "x=@; sed -n \"1e $x\" f",
            "for i in @; do $i; done",
            "for i in a @; do ((i)); done",
            "a=(@ b); for i in \"${a[@]}\"; do ((i)); done",
        ],
        true,
    );
}

#[test]
fn variables_that_are_commands_hold_no_values() {
    check(
        &[
            "x=@; $x",
            "x=@; \"$x\" a",
            "x=@; command $x",
            "x=@; timeout 5 $x",
            "x=@; echo a | $x",
            "x=@; echo \"$($x)\"",
            "x=@; find . -exec $x \\;",
            "x=@; y=$x; $y",
            "x=\"sh -c @\"; $x",
            "a=(@); \"${a[@]}\"",
            "a=(sh -c @); \"${a[@]}\"",
            "set -- @; \"$@\"",
            "set -- eval @; \"$@\"",
            "f() { \"$@\"; }; f @",
            "run() { \"$@\"; }; run eval @",
            "retry() { shift; until \"$@\"; do break; done; }; retry 5 eval @",
            "bash -c '\"$@\"' _ @",
            "time ! eval @",
            "time if let @; then :; fi",
            "time -p eval @",
        ],
        true,
    );
}

#[test]
fn arguments_that_are_evaluated_are_no_values() {
    check(
        &[
            "f() { local n=$1; echo $((n+1)); }; f @",
            "f() { n=$1; ((n>0)); }; f @",
            "f() { bash -c \"$1\"; }; f @",
            "set -- @; n=$1; echo $((n))",
            "set -- @; for i; do echo $((i)); done",
            "set -- @; for i in \"$@\"; do ((i)); done",
            "bash -c 'echo $(($1))' _ @",
            "sh -c 'eval \"$0\"' @",
        ],
        true,
    );
}

#[test]
fn input_that_is_run_or_evaluated_is_no_value() {
    check(
        &[
            "while read -r n; do echo $((n)); done <<< @",
            "while read n; do ((t+=n)); done < <(printf '%s\\n' @)",
            "while read n; do ((t+=n)); done <<'EOF'\n@\nEOF",
            "echo @ | while read n; do echo $((n)); done",
            "echo @ | { read n; echo $((n)); }",
            "x=@; echo \"$x\" | sh",
            "x=@; sh <<< \"$x\"",
            "cat <<'X' | while read n; do ((n)); done\n@\nX",
            "( sh ) <<'X'\n@\nX",
            "{ bash; } <<< @",
            "if sh; then :; fi <<< @",
            "for i in 1; do sh; done <<< @",
            "echo @ | ( sh )",
            "echo @ | while true; do sh; break; done",
            ". /dev/stdin <<< @",
            "source /dev/stdin <<'EOF'\n@\nEOF",
            "eval \"$(cat)\" <<< @",
            "eval sh <<< @",
            "echo @ | bash -c \"$(cat)\"",
            "echo @ | bash -c 'bash -s'",
            "echo @ | sh -c 'read x; eval \"$x\"'",
            "f() { sh; }; echo @ | f",
            "f() { eval \"$(cat)\"; }; f <<< @",
            "f() { read n; ((n)); }; f <<< @",
            "exec <<< @; sh",
            "exec 3<<< @; sh <&3",
            "exec > >(sh); echo @",
            "echo @ | \"$SHELL\"",
            "echo @ | $(which sh)",
            "echo @ | bash --rcfile x",
            "echo @ | xargs -n1 env",
            "echo @ | xargs nice",
            "echo @ | make -f -",
            "echo a >&@",
        ],
        true,
    );
}

#[test]
fn files_that_are_run_hold_no_values() {
    check(
        &[
            "cat <<'EOF' > f.sh; sh f.sh\n@\nEOF",
            "cat > f.sh <<'EOF'\n@\nEOF\nsh f.sh",
            "cat > f.sh <<'EOF'\n@\nEOF\n. ./f.sh",
            "cat > f.sh <<'EOF'\n@\nEOF\nchmod +x f.sh; ./f.sh",
            "printf '%s\\n' @ > f.py; python3 ./f.py",
            "x=@; echo \"$x\" > f.js; node f.js",
            "echo @ | tee f.sh; bash f.sh",
        ],
        true,
    );
}

#[test]
fn options_and_variables_of_programs_that_are_code_are_no_values() {
    check(
        &[
            "tar cf x --checkpoint=1 --checkpoint-action=exec=@ d",
            "tar cf x -I @ d",
            "tar cf x --use-compress-program=@ d",
            "scp -o ProxyCommand=@ a b:",
            "rsync -e @ a b",
            "make --eval=@",
            "GIT_SSH_COMMAND=@ git fetch",
            "PERL5OPT=@ perl x.pl",
            "export PAGER=@",
        ],
        true,
    );
}

#[test]
fn values_that_only_pass_through_are_accepted() {
    check(
        &[
            "retry() { n=$1; shift; until \"$@\"; do sleep \"$n\"; done; }\nretry 5 curl -fsS @",
            "run() { echo \"+ $*\"; \"$@\"; }; run git commit -m @",
            "cmd=(curl -fsS); cmd+=(-H @ \"https://x/@\"); \"${cmd[@]}\"",
            "cmd=(git commit -m @); \"${cmd[@]}\"",
            "log() { printf '%s %s\\n' \"$(date)\" \"$1\"; }; log @; n=$(ls | wc -l); ((n > 3)) && log \"@\"",
            "count=0; while read -r line; do echo \"$line\"; count=$((count + 1)); done <<< @",
            "echo @ | while IFS= read -r line; do printf '%s\\n' \"$line\"; done",
            "total=$(wc -l < log); if (( total > 80 )); then echo @; fi",
            "cat > config.json <<'EOF'\n{\"name\": \"@\"}\nEOF\nnode build.js config.json",
            "echo @ > notes.txt; python3 summarize.py notes.txt; bash deploy.sh",
            "bash -c 'printf \"%s\\n\" \"$1\"; exec tool \"$1\"' _ @",
            "exec > >(tee -a build.log) 2>&1\necho @",
            "exec 3> @; echo done >&3",
            "exec > @.log 2>&1; ls",
            "echo @ | tee -a out.log | grep -c x || true",
            "eval \"$(ssh-agent -s)\"; git push origin @",
            "PY=${PYTHON:-python3}; \"$PY\" -V; echo @ | \"$PY\" parse.py",
            "for f in @ b; do if [ -f \"$f\" ]; then cat -- \"$f\"; fi; done",
            "name=@; dir=/tmp/$name; mkdir -p \"$dir\"; i=0; while ((i < 3)); do ((i++)); done; ls \"$dir\"",
            "time make @; time -p ls @",
            "main() { local name=$1; mkdir -p \"$name\"; (( $# > 1 )) && echo many; }; main @",
            "set -euo pipefail\nsource ./lib.sh\nhelper @",
            "trap 'rm -rf \"$tmp\"' EXIT; tmp=$(mktemp -d); cp @ \"$tmp\"",
            "A=@ ./tool; export TITLE=@; python3 report.py",
            "ls | xargs -I{} cp {} @; find . -name '*.rs' -exec grep -- @ {} +",
            "docker build -t @ . && docker run --rm -i img sh < script.sh",
            "{ echo \"# @\"; cat body.md; } > README.md",
            "if ! out=$(tool @ 2>&1); then echo \"$out\" >&2; exit 1; fi",
            "select_env() { case $1 in prod) echo p;; *) echo \"$1\";; esac; }; select_env @",
        ],
        false,
    );
}

#[test]
fn commands_inside_many_others_are_refused_on_a_small_stack() {
    const WORDS: usize = 100_000;
    let pieces = ["env ", "bash -c '\"$@\"' _ ", "find -exec "];
    for piece in pieces {
        let words = piece.split_whitespace().count();
        let script = piece.repeat(WORDS / words) + "echo @";
        let thread = std::thread::Builder::new().stack_size(1 << 20);
        let check = thread.spawn(move || is_refused(&script, Mode::Shell)).unwrap();
        assert!(check.join().unwrap(), "{piece}");
    }
    check(&["env env env echo @", "env nice timeout 5 env A=b ls @"], false);
}

#[test]
fn code_of_python_is_found_however_it_is_called() {
    let check = |script: &str, expected: bool| {
        assert_eq!(is_refused(script, Mode::Python), expected, "{script}");
    };
    for script in [
        "os.system (\"ls @\")",
        "exec\t('@')",
        "(os.system)('@')",
        "getattr(os, 'system')('ls @')",
        "subprocess.run('ls @', **{'shell': True})",
        "subprocess.run(['sh', '-c' , 'ls @'])",
        "subprocess.run(['bash', '-ec', 'ls ' + '@'])",
        "subprocess.run(['sh', '-c', 'ls {}'.format('@')])",
        "os.execlp('sh', 'sh', '-c', '@')",
    ] {
        check(script, true);
    }
    for script in [
        "subprocess.run(['git', 'commit', '-m', '@'], check=True)",
        "print (\"@\")",
        "subprocess.run(['bash', 'x.sh', '@']); subprocess.run(['sh', '-c', 'ls']); print('@')",
        "subprocess.run(['tar', '-xf', '@'])",
        "(a + b)('@')",
    ] {
        check(script, false);
    }
}
