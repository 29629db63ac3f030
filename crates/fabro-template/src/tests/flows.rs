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
            "echo @ | tee f.sh | wc; cd x; bash \"$OLDPWD/f.sh\"",
            "F=f.sh; echo @ > $F; sh $F",
            "F=$(mktemp); echo @ > \"$F\"; . \"${F}\"",
            "F=d/f.sh; echo @ > d/f.sh; bash \"$F\"",
            "run() { sh \"$1\"; }; echo @ > f.sh; run f.sh",
            "echo @ > f.sh; for f in a.sh f.sh; do sh $f; done",
            "exec 3> f.sh; echo @ >&3; sh f.sh",
            "exec {fd}> f.sh; echo @ >&$fd; sh f.sh",
            "exec > f.sh; echo @; sh f.sh",
            "{ echo @; } > f.sh; sh f.sh",
            "( echo @ ) > f.sh; sh f.sh",
            "for i in @; do echo \"$i\"; done > f.sh; sh f.sh",
            "f() { echo @; }; f > f.sh; sh f.sh",
            "echo @ > g; cp g f.sh; sh f.sh",
            "echo @ > g; install -m 755 g f.sh; ./f.sh",
            "echo @ > g; sed s/a/b/ g > f.sh; sh f.sh",
            "echo @ | dd of=f.sh; sh f.sh",
            "echo @ | cat > f.sh; sh f.sh",
            "echo @ 1<> f.sh; sh f.sh",
            "echo @ >& f.sh; sh f.sh",
            "x=@; cat > f.sh <<EOF\n$x\nEOF\nsh f.sh",
            "printf 'all:\\n\\t%s\\n' @ > Makefile; make all",
        ],
        true,
    );
}

#[test]
fn files_whose_content_is_run_hold_no_values() {
    check(
        &[
            "echo @ > g; cat g | sh",
            "echo @ > g; sh < g",
            "echo @ > g; eval \"$(cat g)\"",
            "echo @ > g; bash -c \"$(< g)\"",
            "echo @ > g; exec < g; sh",
            "echo @ > g; exec 3< g; sh <&3",
            "mkfifo p; sh < p & echo @ > p",
        ],
        true,
    );
}

#[test]
fn output_that_is_run_holds_no_values() {
    check(
        &[
            "f() { echo @; }; f | bash",
            "g() { f | bash; }; f() { echo @; }; g",
            "f() { echo @; }; eval \"$(f)\"",
            "f() { echo @; }; . <(f)",
            "f() { echo @; }; a=($(f)); \"${a[@]}\"",
            "f() { echo @; }; $(f)",
            "f() { echo @; }; x=$(f); echo $((x))",
            "f() { echo @; }; x=`f`; eval \"$x\"",
            "f() { g; }; g() { echo @; }; f | python3 -",
            "f() { echo @; }; declare -f f | sh",
            "x=@; declare -p x | sh",
            "x=@; set | sh",
            "export x=@; env | sh",
            "x=@; y=$(declare -p); eval \"$y\"",
            "x=@; bash <<EOF\n$x\nEOF",
            "x=@; y=`echo $x`; eval \"$y\"",
        ],
        true,
    );
}

#[test]
fn variables_that_the_shell_sets_are_followed() {
    check(
        &[
            ": @; echo $((_))",
            "echo @; eval \"$_\"",
            "echo @; $_",
            "[[ @ =~ (.*) ]]; eval \"${BASH_REMATCH[1]}\"",
            "set -- @; while getopts a: o; do eval \"$OPTARG\"; done",
            "f() { eval \"$2\"; }; mapfile -t -C f -c 1 a <<< @",
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
            "PYTHONPATH=@ python3 -c 'import x'",
            "env GIT_CONFIG_COUNT=1 GIT_CONFIG_VALUE_0=@ git log",
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
            "echo @ > out.txt; sh build.sh; f() { echo @; }; f > log.txt; make",
            "OUT=\"$DIR/a.txt\"; echo @ > \"$OUT\"; bash \"$DIR/b.sh\"",
            "x=@; curl -s http://h | sh; exec 2>&1; echo \"$x\"; bash x.sh",
            "exec 3>log.txt; echo @ >&3; sh x.sh; F=$(mktemp); echo @ > \"$F\"; python3 tool.py \"$F\"",
            "for f in *.sh; do bash \"$f\"; done; echo @ > note.txt; declare -p | grep x",
            "_t=@; echo \"$_t\"; echo $((n_ + 1)); cp template.sh run.sh; sh run.sh; echo @ > data.json",
            "retry() { \"$@\"; }; echo @ > body.json; retry jq . body.json",
            "case @ in a) sh a.sh;; *) sh b.sh;; esac; out=$(cat result.json); n=$((out + 1))",
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
        "x = '@'; os.system(x)",
        "x = '@'\ny = x + ' a'\nsubprocess.run(y, shell=True)",
        "x: str = f'ls {1} @'\nos.popen(x)",
        "a = []\na.append('@')\nos.system(' '.join(a))",
        "def run(c):\n    os.system(c)\nrun('@')",
        "def name():\n    return '@'\nos.system(f'ls {name()}')",
        "for c in ['a', '@']:\n    subprocess.call(c, shell=True)",
        "cmd = {'a': '@'}; exec(cmd['a'])",
        "run = os.system; x = '@'; run(x)",
        "if (x := '@'): eval(x)",
        "x = '@'; getattr(os, 'system')(x)",
        "x = '@'; subprocess.run(['bash', '-c', x])",
        "x = '@'; subprocess.run(args=x, shell=True)",
    ] {
        check(script, true);
    }
    for script in [
        "subprocess.run(['git', 'commit', '-m', '@'], check=True)",
        "print (\"@\")",
        "subprocess.run(['bash', 'x.sh', '@']); subprocess.run(['sh', '-c', 'ls']); print('@')",
        "subprocess.run(['tar', '-xf', '@'])",
        "(a + b)('@')",
        "x = '@'; print(x); os.system('ls')",
        "x = '@'; subprocess.run(['ls', x])",
        "x = '@'; subprocess.run('ls', shell=True, cwd=x)",
        "x = shlex.quote('@'); os.system('ls ' + x)",
        "x = '@'; os.system(f'ls {shlex.quote(x)}')",
        "pattern = '@'; re.compile(pattern)",
        "x = '@'\nif x == y: os.system(y)",
        "x = '@'; open('f', 'w').write(x)",
    ] {
        check(script, false);
    }
}

#[test]
fn what_is_followed_takes_linear_time() {
    let many = |piece: &str| piece.repeat(200_000 / piece.len());
    for piece in [
        "eval(",
        "a=",
        "for x in ",
        "x=y;",
        "eval(x);",
        "quote(",
        "'-c',",
        "f'{x}'",
        "def f(x):",
        "a.b=",
    ] {
        let script = format!("x = '@'\n{}", many(piece));
        is_refused(&script, Mode::Python);
    }
    for piece in ["exec >f;sh f;", "x=$x;", "`f`;", "cp a b;", "f(){ sh f;};", "cat<<E\n$x\nE\n"] {
        is_refused(&format!("echo @;{}", many(piece)), Mode::Shell);
    }
    let distinct: Vec<String> =
        (0..5_000).map(|it| format!("exec >f{it}; sh f{it}; echo @;")).collect();
    assert!(is_refused(&distinct.concat(), Mode::Shell));
}

#[test]
fn variables_that_are_code_take_no_values_from_others() {
    check(
        &[
            "x=@; PS4=$x; set -x; :",
            "x=@; export PS4=\"$x\"",
            "x=@; y=a$x; PAGER=$y git log",
            "for BASH_ENV in @; do bash -c :; done",
            "read -r PS4 <<< @; set -x; :",
            "x=@; : \"${y:=$x}\"; eval $y",
            "x=@; : ${y=$x}; $y",
            "f() { echo \"${!1}\"; }; f @",
            "f() { echo \"${1@P}\"; }; f @",
            "set -- @; echo \"${!1}\"",
            "bash -c 'echo \"${!1}\"' _ @",
            "bash -c '$0' @",
            "echo @ > rc; BASH_ENV=./rc bash -c :",
            "echo @ > rc; bash --rcfile rc -ic :",
        ],
        true,
    );
    check(&["x=@; y=$x; PS4='+ '; echo \"$y\"", "x=@; : \"${y:=$x}\"; echo \"$y\""], false);
}

#[test]
fn texts_that_are_run_evaluate_no_values() {
    check(
        &[
            "export X=@; bash <<'E'\neval \"$X\"\nE",
            "export X=@; bash <<'E'\n$X\nE",
            "export X=@; bash <<< 'echo $((X))'",
            "export X=@; echo 'eval \"$X\"' | sh",
            "export X=@; echo \"eval \\$X\" | sh",
            "export X=@; cat > f.sh <<'E'\n[[ $X -gt 1 ]]\nE\nsh f.sh",
            "export X=@; c='eval \"$X\"'; bash -c \"$c\"",
            "export X=@; bash <<'E'\nbash <<'F'\n$X\nF\nE",
        ],
        true,
    );
    check(
        &[
            "export X=@; bash <<'E'\necho \"$X\"\nE",
            "export X=@; bash <<< 'printf %s \"$X\"'",
            "export X=@; echo 'echo \"$X\"' | sh",
            "export X=@; cat > f.sh <<'E'\necho \"$X\"\nE\nsh f.sh",
            "export X=@; cat <<'E'\neval $X\nE",
        ],
        false,
    );
}

#[test]
fn programs_that_run_code_from_arguments_files_or_input_take_no_values() {
    check(
        &[
            "echo @ | awk -f -",
            "echo @ | awk -f /dev/stdin",
            "echo @ | sed -f -",
            "echo @ | chroot /",
            "echo @ | nsenter -t 1",
            "echo @ | unshare",
            "python3 -m timeit @",
            "python3 -m code <<< @",
            "echo @ > d.awk; awk -f d.awk /dev/null",
            "echo @ > d.sed; sed -f d.sed f",
            "echo @ > d.tcl; tclsh d.tcl",
            "echo @ > d.py; python3 -m d",
            "echo @ > d.sql; sqlite3 x.db '.read d.sql'",
            "echo @ > f; tee g < f; sh g",
            "echo @ > f; read -r x < f; eval \"$x\"",
            "echo @ > d.gdb; gdb -batch -x d.gdb",
            "strace @",
            "strace -o out @",
            "unshare -r @",
            "taskset 1 @",
            "faketime now @",
            "git rebase --exec=@ HEAD",
            "git difftool --extcmd=@",
            "git grep -O@ x",
            "git clone -c core.sshCommand=@ . d",
            "git clone --upload-pack=@ . d",
            "git config alias.x @",
            "git config --global core.editor @",
            "split --filter=@ f",
            "sort --compress-program=@ f",
            "tar --info-script=@ -cf t f",
        ],
        true,
    );
    check(
        &[
            "strace -f echo @",
            "taskset -c 0 echo @",
            "git config user.name @",
            "git clone -- @ d",
            "git clone -c core.autocrlf=false @ d",
            "docker ps --filter name=@",
            "python3 -m json.tool <<< @",
            "echo @ > d.txt; awk -f d.awk d.txt",
        ],
        false,
    );
}
