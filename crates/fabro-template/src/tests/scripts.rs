use super::*;

/// Every refused value of a script, a line each: the message and the fix.
fn refused(script: &str, mode: Mode) -> String {
    let template = Template::parse(script).unwrap_or_else(|error| panic!("{script}: {error}"));
    let shown = template.misplaced(mode).into_iter().map(|error| {
        assert_eq!(&script[error.span.start..][..2], "{{", "{script}");
        format!("{error}\n  {}", error.fix.as_deref().unwrap_or_default())
    });
    shown.collect::<Vec<_>>().join("\n")
}

/// The places of the refused values only.
fn places(scripts: &[&str], mode: Mode) -> String {
    let place = |script: &&str| {
        let template = Template::parse(script).unwrap();
        let errors = template.misplaced(mode);
        let shown: Vec<_> = errors.iter().map(|error| error.message.clone()).collect();
        // Rendering refuses the same.
        let rendered = template.render(Arc::new(values()), mode);
        let is_refused = matches!(rendered, Err(RenderError::Unquotable { .. }));
        assert_eq!(is_refused, !errors.is_empty(), "{script}: {rendered:?}");
        format!("{} <= {}", shown.join(" + "), script.replace('\n', "⏎"))
    };
    scripts.iter().map(place).collect::<Vec<_>>().join("\n")
}

const RUN_BY_SHELLS: &[&str] = &[
    r"echo a\ #{{ context.name }}",
    r"echo \(#{{ context.name }}",
    r"echo a\;#{{ context.name }}",
    "echo a\\\n#{{ context.name }}",
    "echo \\\n#{{ context.name }}",
    r"echo \{{ context.name }}",
    "for((i=0;i<{{ context.name }};i++)); do :; done",
    "if(({{ context.name }}>1)); then :; fi",
    "while(({{ context.name }})); do :; done",
    "((n = {{ context.name }}))",
    "echo $(({{ context.name }} + 1))",
    "echo \"$(({{ context.name }} + 1))\"",
    "echo $[{{ context.name }}]",
    "a[{{ context.name }}]=1",
    "declare a[{{ context.name }}]=1",
    "x=([{{ context.name }}]=1)",
    "echo ${a[{{ context.name }}]}",
    "echo \"${x:-{{ context.name }}}\"",
    "[[ {{ context.name }} -ge 80 ]]",
    "[[ -v {{ context.name }} && a = b ]]",
    "let n={{ context.name }}",
    "let 'n = {{ context.name }}'",
    "declare -i n={{ context.name }}",
    "declare -i n; n={{ context.name }}",
    "typeset -ri n={{ context.name }}",
    "local -n r={{ context.name }}",
    "SECONDS={{ context.name }}",
    "PS4={{ context.name }}; set -x; :",
    "test -v {{ context.name }}",
    "[ -v \"{{ context.name }}\" ]",
    "[ {{ context.name }} {{ context.name }} ]",
    "printf -v {{ context.name }} x",
    "printf {{ context.name }} x",
    "read {{ context.name }} < f",
    "unset \"a[{{ context.name }}]\"",
    "export {{ context.name }}",
    "eval {{ context.name }}",
    "eval \"$(echo {{ context.name }})\"",
    "trap '{{ context.name }}' EXIT",
    "trap \"echo {{ context.name }}\" EXIT",
    "alias x={{ context.name }}",
    ". {{ context.name }}",
    "{{ context.name }}",
    "\"{{ context.name }}\" --version",
    "{{ context.name }}=1",
    "$CMD {{ context.name }}",
    "`ls {{ context.name }}`",
    "echo $'{{ context.name }}'",
    "echo $\"{{ context.name }}\"",
    "echo ${{ context.name }}",
    "# {{ context.name }}\nls",
    "cat <<{{ context.name }}",
    "cat <<EOF\n{{ context.name }}\nEOF",
    "cat <<'EOF'\nEOF {{ context.name }}\nEOF",
    "cat <<'EOF'\n{{ context.name }}",
    "for {{ context.name }} in a; do :; done",
    "function {{ context.name }} { :; }",
    "{{ context.name }}() { :; }",
    "n={{ context.name }}; echo $((n + 1))",
    "n={{ context.name }}\nif [[ $n -gt 1 ]]; then :; fi",
    "for i in {{ context.name }}; do let x=i; done",
    "x=\"{{ context.name }}\"; bash -c \"echo $x\"",
    "echo \"it's {{ context.name }}",
    "x={{ context.name }}; echo \"${x@P}\"",
    "x={{ context.name }}; echo \"${!x}\" \"${y:-$x}\"",
    "x={{ context.name }}; echo \"${s:x:2}\" ${a[x]}",
    "f() { echo $(($1 + 1)); }; f {{ context.name }}; g {{ goal }}",
    "set -- {{ context.name }}; (( $1 > 3 ))",
    "read -r x <<< {{ context.name }}; echo $((x))",
];

#[test]
fn values_that_shells_would_run_are_refused() {
    insta::assert_snapshot!(places(RUN_BY_SHELLS, Mode::Shell), @r#"
    `context.name` cannot stand in a word with an escaped space, line end or sign before it <= echo a\ #{{ context.name }}
    `context.name` cannot stand in a word with an escaped space, line end or sign before it <= echo \(#{{ context.name }}
    `context.name` cannot stand in a word with an escaped space, line end or sign before it <= echo a\;#{{ context.name }}
    `context.name` cannot stand in a word with an escaped space, line end or sign before it <= echo a\⏎#{{ context.name }}
    `context.name` cannot stand after a `#` that begins a joined line <= echo \⏎#{{ context.name }}
    `context.name` cannot stand after a backslash <= echo \{{ context.name }}
    `context.name` cannot stand in arithmetic, which shells evaluate <= for((i=0;i<{{ context.name }};i++)); do :; done
    `context.name` cannot stand in arithmetic, which shells evaluate <= if(({{ context.name }}>1)); then :; fi
    `context.name` cannot stand in arithmetic, which shells evaluate <= while(({{ context.name }})); do :; done
    `context.name` cannot stand in arithmetic, which shells evaluate <= ((n = {{ context.name }}))
    `context.name` cannot stand in arithmetic, which shells evaluate <= echo $(({{ context.name }} + 1))
    `context.name` cannot stand in arithmetic, which shells evaluate <= echo "$(({{ context.name }} + 1))"
    `context.name` cannot stand in arithmetic, which shells evaluate <= echo $[{{ context.name }}]
    `context.name` cannot stand in a subscript, which shells evaluate <= a[{{ context.name }}]=1
    `context.name` cannot stand in a subscript, which shells evaluate <= declare a[{{ context.name }}]=1
    `context.name` cannot stand in an array with attributes or computed subscripts <= x=([{{ context.name }}]=1)
    `context.name` cannot stand inside `${…}` <= echo ${a[{{ context.name }}]}
    `context.name` cannot stand inside `${…}` <= echo "${x:-{{ context.name }}}"
    `context.name` cannot stand in a numeric or `-v` test inside `[[ … ]]`, which shells evaluate <= [[ {{ context.name }} -ge 80 ]]
    `context.name` cannot stand in a numeric or `-v` test inside `[[ … ]]`, which shells evaluate <= [[ -v {{ context.name }} && a = b ]]
    `context.name` cannot stand in the arguments of `let`, which evaluates them <= let n={{ context.name }}
    `context.name` cannot stand in the arguments of `let`, which evaluates them <= let 'n = {{ context.name }}'
    `context.name` cannot stand in a declaration that is not `NAME=…` with a fixed name, or that sets attributes <= declare -i n={{ context.name }}
    `context.name` cannot stand in the variable `n`, which the script evaluates <= declare -i n; n={{ context.name }}
    `context.name` cannot stand in a declaration that is not `NAME=…` with a fixed name, or that sets attributes <= typeset -ri n={{ context.name }}
    `context.name` cannot stand in a declaration that is not `NAME=…` with a fixed name, or that sets attributes <= local -n r={{ context.name }}
    `context.name` cannot stand in a variable that the shell evaluates <= SECONDS={{ context.name }}
    `context.name` cannot stand in a variable that the shell evaluates <= PS4={{ context.name }}; set -x; :
    `context.name` cannot stand in `test -v`, which evaluates subscripts <= test -v {{ context.name }}
    `context.name` cannot stand in `[ -v`, which evaluates subscripts <= [ -v "{{ context.name }}" ]
    `context.name` cannot stand in this place of a test, where it may be read as an operator + `context.name` cannot stand in this place of a test, where it may be read as an operator <= [ {{ context.name }} {{ context.name }} ]
    `context.name` cannot stand in `printf -v`, which evaluates subscripts <= printf -v {{ context.name }} x
    `context.name` cannot stand where it may be read as an option of `printf` <= printf {{ context.name }} x
    `context.name` cannot stand in the arguments of `read`, which evaluates them <= read {{ context.name }} < f
    `context.name` cannot stand in the arguments of `unset`, which evaluates them <= unset "a[{{ context.name }}]"
    `context.name` cannot stand in a declaration that is not `NAME=…` with a fixed name, or that sets attributes <= export {{ context.name }}
    `context.name` cannot stand in the arguments of `eval`, which evaluates them <= eval {{ context.name }}
    `context.name` cannot stand in the arguments of `eval`, which evaluates them <= eval "$(echo {{ context.name }})"
    `context.name` cannot stand in the arguments of `trap`, which evaluates them <= trap '{{ context.name }}' EXIT
    `context.name` cannot stand in the arguments of `trap`, which evaluates them <= trap "echo {{ context.name }}" EXIT
    `context.name` cannot stand in a script that defines aliases <= alias x={{ context.name }}
    `context.name` cannot stand in the arguments of `.`, which evaluates them <= . {{ context.name }}
    `context.name` cannot stand as the name of a command <= {{ context.name }}
    `context.name` cannot stand as the name of a command <= "{{ context.name }}" --version
    `context.name` cannot stand as the name of a command <= {{ context.name }}=1
    `context.name` cannot stand in a command whose name is not fixed, for it may evaluate it <= $CMD {{ context.name }}
    `context.name` cannot stand inside backticks <= `ls {{ context.name }}`
    `context.name` cannot stand inside `$'…'`, which not every shell knows <= echo $'{{ context.name }}'
    `context.name` cannot stand inside `$"…"` <= echo $"{{ context.name }}"
    `context.name` cannot stand after a `$` <= echo ${{ context.name }}
    `context.name` cannot stand in a comment <= # {{ context.name }}⏎ls
    `context.name` cannot stand as the end of a here-document <= cat <<{{ context.name }}
    `context.name` cannot stand in a here-document that the shell expands <= cat <<EOF⏎{{ context.name }}⏎EOF
    `context.name` cannot stand in a line that begins like the end of the here-document <= cat <<'EOF'⏎EOF {{ context.name }}⏎EOF
    `context.name` cannot stand in a script where `<<` is not closed <= cat <<'EOF'⏎{{ context.name }}
    `context.name` cannot stand as the name of a variable or a function <= for {{ context.name }} in a; do :; done
    `context.name` cannot stand as the name of a variable or a function <= function {{ context.name }} { :; }
    `context.name` cannot stand as the name of a variable or a function <= {{ context.name }}() { :; }
    `context.name` cannot stand in the variable `n`, which the script evaluates <= n={{ context.name }}; echo $((n + 1))
    `context.name` cannot stand in the variable `n`, which the script evaluates <= n={{ context.name }}⏎if [[ $n -gt 1 ]]; then :; fi
    `context.name` cannot stand in the variable `i`, which the script evaluates <= for i in {{ context.name }}; do let x=i; done
    `context.name` cannot stand in the variable `x`, which the script evaluates <= x="{{ context.name }}"; bash -c "echo $x"
    `context.name` cannot stand in a script where `"` is not closed <= echo "it's {{ context.name }}
    `context.name` cannot stand in the variable `x`, which the script evaluates <= x={{ context.name }}; echo "${x@P}"
    `context.name` cannot stand in the variable `x`, which the script evaluates <= x={{ context.name }}; echo "${!x}" "${y:-$x}"
    `context.name` cannot stand in the variable `x`, which the script evaluates <= x={{ context.name }}; echo "${s:x:2}" ${a[x]}
    `context.name` cannot stand in the arguments of `f`, for the script evaluates `$1` and the like <= f() { echo $(($1 + 1)); }; f {{ context.name }}; g {{ goal }}
    `context.name` cannot stand in the arguments of `set`, for the script evaluates `$1` and the like <= set -- {{ context.name }}; (( $1 > 3 ))
    `context.name` cannot stand in the variable `x`, which the script evaluates <= read -r x <<< {{ context.name }}; echo $((x))
    "#);
}

const RUN_BY_INTERPRETERS: &[&str] = &[
    "bash -c \"echo {{ context.name }}\"",
    "sh -c 'echo {{ context.name }}'",
    "sh -ec 'echo {{ context.name }}'",
    "/bin/ba''sh -c {{ context.name }}",
    "bash {{ context.name }}",
    "bash -x {{ context.name }} a",
    "ssh host \"ls {{ context.name }}\"",
    "python3 -c \"print('{{ context.name }}')\"",
    "python -W ignore -c 'x = {{ context.name }}'",
    "perl -e 'print \"{{ context.name }}\"'",
    "perl -ne print {{ context.name }}",
    "ruby -e \"puts {{ context.name }}\"",
    "node -e \"x({{ context.name }})\"",
    "awk '{ print \"{{ context.name }}\" }' f",
    "awk -f {{ context.name }} f",
    "sed \"s/a/{{ context.name }}/\" f",
    "sed -e p -e {{ context.name }} f",
    "sed p {{ context.name }}",
    "ls | xargs sh -c 'echo {{ context.name }}'",
    "ls | xargs {{ context.name }}",
    "find . -exec sh -c 'echo {{ context.name }}' \\;",
    "find . -exec {{ context.name }} {} +",
    "env -S \"{{ context.name }}\"",
    "env {{ context.name }}",
    "env A=1 bash -c {{ context.name }}",
    "env BASH_ENV={{ context.name }} bash f",
    "su -c \"{{ context.name }}\" bob",
    "sudo -u bob {{ context.name }}",
    "timeout -s KILL 5 sh -c \"{{ context.name }}\"",
    "docker exec box sh -c \"cd {{ context.name }}\"",
    "watch {{ context.name }}",
    "parallel echo {{ context.name }} ::: a",
    "exec {{ context.name }}",
    "command {{ context.name }}",
    "bash <<'EOF'\necho {{ context.name }}\nEOF",
    "python3 - <<'EOF'\nprint('{{ context.name }}')\nEOF",
    "bash -s <<< {{ context.name }}",
    "echo {{ context.name }} | bash",
    "echo {{ context.name }} | tee f | sudo sh",
    "{ echo a; echo {{ context.name }}; } | sh -s",
    "cat <<'EOF' | sh\n{{ context.name }}\nEOF",
    "cat <<'EOF' |\n{{ context.name }}\nEOF\nsh",
    "echo {{ context.name }} | docker exec -i box sh",
    "echo {{ context.name }} | xargs -I{} sh -c 'echo {}'",
    "docker exec -i box bash -s <<'EOF'\necho {{ context.name }}\nEOF",
    "echo {{ context.name }} > >(bash)",
    "bash <(echo {{ context.name }})",
    "source <(echo {{ context.name }})",
    "git rebase --exec \"{{ context.name }}\" main",
    "git -c alias.x={{ context.name }} x",
    "sqlite3 db \"select '{{ context.name }}'\"",
    "tmux send-keys \"{{ context.name }}\" Enter",
    "mytool --eval={{ context.name }}",
];

#[test]
fn values_that_interpreters_would_run_are_refused() {
    insta::assert_snapshot!(places(RUN_BY_INTERPRETERS, Mode::Shell), @r#"
    `context.name` cannot stand in a script of `bash`, which evaluates it <= bash -c "echo {{ context.name }}"
    `context.name` cannot stand in a script of `sh`, which evaluates it <= sh -c 'echo {{ context.name }}'
    `context.name` cannot stand in a script of `sh`, which evaluates it <= sh -ec 'echo {{ context.name }}'
    `context.name` cannot stand in a script of `bash`, which evaluates it <= /bin/ba''sh -c {{ context.name }}
    `context.name` cannot stand in a script of `bash`, which evaluates it <= bash {{ context.name }}
    `context.name` cannot stand in a script of `bash`, which evaluates it <= bash -x {{ context.name }} a
    `context.name` cannot stand in a script of `ssh`, which evaluates it <= ssh host "ls {{ context.name }}"
    `context.name` cannot stand in a script of `python3`, which evaluates it <= python3 -c "print('{{ context.name }}')"
    `context.name` cannot stand in a script of `python`, which evaluates it <= python -W ignore -c 'x = {{ context.name }}'
    `context.name` cannot stand in a script of `perl`, which evaluates it <= perl -e 'print "{{ context.name }}"'
    `context.name` cannot stand in a script of `perl`, which evaluates it <= perl -ne print {{ context.name }}
    `context.name` cannot stand in a script of `ruby`, which evaluates it <= ruby -e "puts {{ context.name }}"
    `context.name` cannot stand in a script of `node`, which evaluates it <= node -e "x({{ context.name }})"
    `context.name` cannot stand in a script or an option of `awk` <= awk '{ print "{{ context.name }}" }' f
    `context.name` cannot stand in a script or an option of `awk` <= awk -f {{ context.name }} f
    `context.name` cannot stand in a script or an option of `sed` <= sed "s/a/{{ context.name }}/" f
    `context.name` cannot stand in a script or an option of `sed` <= sed -e p -e {{ context.name }} f
    `context.name` cannot stand where it may be read as an option of `sed`: write `--` before the files <= sed p {{ context.name }}
    `context.name` cannot stand in a script of `sh`, which evaluates it <= ls | xargs sh -c 'echo {{ context.name }}'
    `context.name` cannot stand as the name of a command <= ls | xargs {{ context.name }}
    `context.name` cannot stand in a script of `sh`, which evaluates it <= find . -exec sh -c 'echo {{ context.name }}' \;
    `context.name` cannot stand as the name of a command <= find . -exec {{ context.name }} {} +
    `context.name` cannot stand in a script of `env`, which evaluates it <= env -S "{{ context.name }}"
    `context.name` cannot stand as the name of a command <= env {{ context.name }}
    `context.name` cannot stand in a script of `bash`, which evaluates it <= env A=1 bash -c {{ context.name }}
    `context.name` cannot stand in a script of `env`, which evaluates it <= env BASH_ENV={{ context.name }} bash f
    `context.name` cannot stand in a script of `su`, which evaluates it <= su -c "{{ context.name }}" bob
    `context.name` cannot stand as the name of a command <= sudo -u bob {{ context.name }}
    `context.name` cannot stand in a script of `sh`, which evaluates it <= timeout -s KILL 5 sh -c "{{ context.name }}"
    `context.name` cannot stand in a script of `sh`, which evaluates it <= docker exec box sh -c "cd {{ context.name }}"
    `context.name` cannot stand in a script of `watch`, which evaluates it <= watch {{ context.name }}
    `context.name` cannot stand in a script of `parallel`, which evaluates it <= parallel echo {{ context.name }} ::: a
    `context.name` cannot stand as the name of a command <= exec {{ context.name }}
    `context.name` cannot stand as the name of a command <= command {{ context.name }}
    `context.name` cannot stand in the input of `bash`, which runs it <= bash <<'EOF'⏎echo {{ context.name }}⏎EOF
    `context.name` cannot stand in the input of `python3`, which runs it <= python3 - <<'EOF'⏎print('{{ context.name }}')⏎EOF
    `context.name` cannot stand in the input of `bash`, which runs it <= bash -s <<< {{ context.name }}
    `context.name` cannot stand in what is piped to `bash`, which runs it <= echo {{ context.name }} | bash
    `context.name` cannot stand in what is piped to `sh`, which runs it <= echo {{ context.name }} | tee f | sudo sh
    `context.name` cannot stand in what is piped to `sh`, which runs it <= { echo a; echo {{ context.name }}; } | sh -s
    `context.name` cannot stand in what is piped to `sh`, which runs it <= cat <<'EOF' | sh⏎{{ context.name }}⏎EOF
    `context.name` cannot stand in what is piped to `sh`, which runs it <= cat <<'EOF' |⏎{{ context.name }}⏎EOF⏎sh
    `context.name` cannot stand in what is piped to `sh`, which runs it <= echo {{ context.name }} | docker exec -i box sh
    `context.name` cannot stand in what is piped to `xargs`, which runs it <= echo {{ context.name }} | xargs -I{} sh -c 'echo {}'
    `context.name` cannot stand in the input of `bash`, which runs it <= docker exec -i box bash -s <<'EOF'⏎echo {{ context.name }}⏎EOF
    `context.name` cannot stand in a command with `>(…)` <= echo {{ context.name }} > >(bash)
    `context.name` cannot stand in a script of `bash`, which evaluates it <= bash <(echo {{ context.name }})
    `context.name` cannot stand in the arguments of `source`, which evaluates them <= source <(echo {{ context.name }})
    `context.name` cannot stand in a script or an option of `git` <= git rebase --exec "{{ context.name }}" main
    `context.name` cannot stand in a script or an option of `git` <= git -c alias.x={{ context.name }} x
    `context.name` cannot stand in a script of `sqlite3`, which evaluates it <= sqlite3 db "select '{{ context.name }}'"
    `context.name` cannot stand in a script of `tmux`, which evaluates it <= tmux send-keys "{{ context.name }}" Enter
    `context.name` cannot stand in a script or an option of `mytool` <= mytool --eval={{ context.name }}
    "#);
}

#[test]
fn honest_scripts_are_accepted() {
    let accepted = [
        "echo \"{{ context.name }}\"",
        "VAR={{ context.name }}; export OTHER=\"{{ goal }}\"",
        "A={{ context.name }} B=\"x {{ goal }}\" make test",
        "git commit -m \"{{ goal }}\" -m '{{ context.name }}'",
        "x=$(cmd \"{{ context.name }}\"); y=\"$(cmd '{{ goal }}')\"",
        "[ \"{{ context.name }}\" = \"y\" ] && [ -n \"{{ goal }}\" ]",
        "[ {{ context.score }} -ge 80 ] || test \"$x\" != {{ context.name }}",
        "[[ \"{{ context.name }}\" == y && -n {{ goal }} ]]",
        "[[ {{ context.name }} =~ ^(a|b)[0-9]+$ ]] && echo {{ goal }}",
        "case {{ context.name }} in a|b) echo {{ goal }};; *) echo \"no: {{ goal }}\";; esac",
        "for i in {{ context.name }} \"{{ goal }}\"; do echo \"$i: {{ goal }}\"; done",
        "if [ -f \"{{ context.name }}\" ]; then cat \"{{ context.name }}\"; elif true; then :; else exit 1; fi",
        "while read -r line; do echo \"$line {{ goal }}\"; done < \"{{ context.name }}\"",
        "until false; do break; done; echo {{ goal }}",
        "cat > f <<'EOF'\n{{ context.name }} and $(more) {{ goal }}\nEOF\necho {{ goal }}",
        "cat <<'A' > \"{{ context.name }}\" && cat <<\\B\n{{ goal }}\nA\n{{ goal }}'\nB\necho {{ goal }}",
        "git commit -m \"$(cat <<'EOF'\n{{ goal }}\n\nby (me)\nEOF\n)\"; echo {{ goal }}",
        "cat <<EOF > f\nplain $HOME\nEOF\necho {{ goal }}",
        "cargo test -p {{ inputs.repo }} 2>&1 | tee \"{{ context.name }}.log\" | grep -v \"{{ goal }}\"",
        "curl -sS -H \"X: {{ context.name }}\" \"https://x/{{ inputs.repo }}?a=b&c\" -d @- <<< {{ goal }}",
        "set -euo pipefail\ncd {{ inputs.repo }} && ls",
        "set -- {{ context.name }}; echo \"$1\" # done",
        "log() { echo \"[$(date)] $*\"; }\nlog \"{{ context.name }}\"",
        "function f { local x=\"{{ context.name }}\"; echo \"${x%.*}\" \"${#x}\" $#; }; f {{ goal }}",
        "( cd x && ls {{ context.name }} ) & wait\necho {{ goal }}",
        "! grep -q \"{{ context.name }}\" f || { echo {{ goal }}; exit 1; }",
        "a=(one {{ context.name }} \"{{ goal }}\"); a+=({{ goal }}); echo \"${a[@]}\" ${!a[@]}",
        "declare -A m=([k]=\"{{ context.name }}\"); readonly R={{ goal }}",
        "bash script.sh {{ context.name }} --goal=\"{{ goal }}\"",
        "bash -c 'echo \"$1\"' _ \"{{ context.name }}\"",
        "python3 script.py {{ context.name }} | python3 -c 'import sys; print(sys.stdin.read())' {{ goal }}",
        "python3 -m http.server --directory {{ context.name }}",
        "echo {{ context.name }} | python3 x.py; echo {{ goal }} | jq -r .a | sort",
        "awk -v name={{ context.name }} '{ print name }' \"{{ goal }}\"",
        "jq --arg name {{ context.name }} '.name = $name' f.json",
        "sed -n 's/a/b/p' -- {{ context.name }}; sed -i.bak p ./{{ inputs.repo }}",
        "perl script.pl {{ context.name }}; node x.js --a={{ goal }}",
        "find {{ inputs.repo }} -name \"{{ context.name }}\" -exec grep {{ goal }} {} \\; -type f \\( -name {{ goal }} \\)",
        "ls | xargs -n1 grep -- {{ context.name }}",
        "sudo -u bob env A={{ context.name }} timeout 5 make {{ inputs.repo }}",
        "timeout {{ context.score }} make; nice -n 5 nohup ./run {{ goal }}",
        "docker run --rm -e A={{ context.name }} image test {{ goal }}",
        "command -v {{ context.name }} >/dev/null 2>&1",
        "./tools/run.sh {{ context.name }}; \"$HOME\"/bin/tool {{ goal }}; ~/bin/x {{ goal }} || true",
        "make \\\n  A={{ context.name }} \\\n  B={{ goal }}",
        "echo {\\\"a\\\": \\\"{{ context.name }}\\\"}",
        "echo a#{{ context.name }} $FOO{{ goal }} \"$FOO{{ goal }}\" ~/{{ goal }}/*.txt",
        "printf '%s\\n' {{ context.name }} && echo 'it'\\''s' {{ goal }}",
        "exit {{ context.score }}",
        "echo $((1 << 2)) $((x * (y + 1))) {{ goal }}; ((i++)); for ((i = 0; i < 3; i++)); do echo {{ goal }}; done",
        "x=$((y)); z={{ context.name }}; echo \"$z\"",
        "z={{ context.name }}; echo \"${z:-a}\" \"${z%.*}\" \"${z//:/x}\" \"${#z}\" \"${y:=$z}\"",
        "f() { echo \"$1\"; }; f {{ context.name }}; read -r a <<< {{ goal }}; echo \"$a\"",
        "diff <(sort {{ context.name }}) <(sort {{ goal }})",
        "test -z \"${CI:-}\" && echo `date` \"${x#'a'}\" {{ goal }}",
        "echo $'a\\tb' {{ goal }}; x=$(case a in a) echo {{ goal }};; esac)",
        "echo {1..3} {a,{{ goal }}} && trap 'rm -f x' EXIT",
        "coverage={{ context.score | int }}; if (( coverage < 80 )); then exit 1; fi",
        "echo $(({{ context.score | int }} + 1)); [[ {{ context.score | float }} -gt 3 ]]; cat <<E\n{{ context.score | int }}\nE",
        "for i in {1..{{ context.score | int }}}; do :; done",
        "{{ context.name | raw }} x; bash -c '{{ context.name | raw }}'",
    ];
    let refused: Vec<_> = accepted
        .iter()
        .map(|script| (script, refused(script, Mode::Shell)))
        .filter(|(_, refused)| !refused.is_empty())
        .map(|(script, refused)| format!("{script}\n  {refused}"))
        .collect();
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

#[test]
fn refusals_say_what_to_do() {
    let shown = |script: &str| refused(script, Mode::Shell);
    insta::assert_snapshot!(shown("(( {{ context.audit.score }} > 1 ))"), @r#"
    `context.audit.score` cannot stand in arithmetic, which shells evaluate
      write `{{ context.audit.score | int }}` for a whole number; for any other value set env.SCORE="{{ context.audit.score }}" on the node and use it as "$SCORE" elsewhere
    "#);
    insta::assert_snapshot!(shown("bash -c \"echo {{ inputs.repo | upper }}\""), @r#"
    `inputs.repo | upper` cannot stand in a script of `bash`, which evaluates it
      set env.REPO="{{ inputs.repo | upper }}" on the node and read the variable inside that script, in single quotes: '… "$REPO" …'; or write `{{ inputs.repo | upper | int }}` for a whole number
    "#);
    insta::assert_snapshot!(shown("cat <<EOF\n{{ goal }}\nEOF"), @r#"
    `goal` cannot stand in a here-document that the shell expands
      quote the end of the here-document (<<'EOF'), or set env.GOAL="{{ goal }}" on the node and write $GOAL
    "#);
    insta::assert_snapshot!(shown("{{ inputs.cmd }}"), @r#"
    `inputs.cmd` cannot stand as the name of a command
      set env.CMD="{{ inputs.cmd }}" on the node and write "$CMD" if the value may decide what runs; a value that is code is piped through `raw`
    "#);
    insta::assert_snapshot!(shown("echo `ls {{ inputs.dir }}`"), @r#"
    `inputs.dir` cannot stand inside backticks
      set env.DIR="{{ inputs.dir }}" on the node and write "$DIR", or write `{{ inputs.dir | int }}` for a whole number
    "#);
    insta::assert_snapshot!(shown("cat <<{{ goal }}"), @r#"
    `goal` cannot stand as the end of a here-document
      write a fixed text there; set env.GOAL="{{ goal }}" on the node and use it as "$GOAL" elsewhere
    "#);
    insta::assert_snapshot!(refused("x = {{ context.a }}", Mode::Python), @r#"
    `context.a` cannot stand in Python code outside of a string literal
      write `{{ context.a | py }}` in place of the whole literal, or set env.A="{{ context.a }}" on the node and read os.environ["A"]
    "#);
}

#[test]
fn python_takes_values_in_literals() {
    insta::assert_snapshot!(places(&[
        "print({{ context.name }})",
        "if {{ context.name }} > 3: pass",
        "x = 1 # {{ context.name }}",
        "x = r'{{ context.name }}'",
        "x = b'{{ context.name }}'",
        "x = f'{len({{ context.name }})}'",
        "x = '\\{{ context.name }}'",
        "x = '\\x4{{ context.name }}'",
        "eval('{{ context.name }}')",
        "os.system('ls {{ context.name }}')",
        "subprocess.run(['bash', '-c', 'ls {{ context.name }}'])",
        "subprocess.run(f'ls {{ context.name }}', shell=True)",
        "x = 'a\n' + '{{ context.name }}'",
        "x = '''{{ context.name }}",
        "# {{ context.name | py }}",
        "os.system({{ context.name | py }})",
        "os.system('ls {{ context.name | py }}')",
        "x = {{ context.name | py }}; exec(x)",
        "subprocess.run(['sh', '-c', {{ context.name | py }}])",
    ], Mode::Python), @r"
    `context.name` cannot stand in Python code outside of a string literal <= print({{ context.name }})
    `context.name` cannot stand in Python code outside of a string literal <= if {{ context.name }} > 3: pass
    `context.name` cannot stand in a comment <= x = 1 # {{ context.name }}
    `context.name` cannot stand in a raw or bytes literal, which has no escapes for every value <= x = r'{{ context.name }}'
    `context.name` cannot stand in a raw or bytes literal, which has no escapes for every value <= x = b'{{ context.name }}'
    `context.name` cannot stand in the braces of an f-string, which are code <= x = f'{len({{ context.name }})}'
    `context.name` cannot stand after a backslash <= x = '\{{ context.name }}'
    `context.name` cannot stand after a backslash <= x = '\x4{{ context.name }}'
    `context.name` cannot stand in a text for `eval(…)`, which runs it <= eval('{{ context.name }}')
    `context.name` cannot stand in a text for `system(…)`, which runs it <= os.system('ls {{ context.name }}')
    `context.name` cannot stand in a script for another interpreter, which evaluates it <= subprocess.run(['bash', '-c', 'ls {{ context.name }}'])
    `context.name` cannot stand in a text for `run(…)`, which runs it <= subprocess.run(f'ls {{ context.name }}', shell=True)
    `context.name` cannot stand after a literal of Python that cannot be followed <= x = 'a⏎' + '{{ context.name }}'
    `context.name` cannot stand after a literal of Python that cannot be followed <= x = '''{{ context.name }}
    `context.name | py` cannot stand in a comment <= # {{ context.name | py }}
    `context.name | py` cannot stand in a text for `system(…)`, which runs it <= os.system({{ context.name | py }})
    `context.name | py` cannot stand in a text for `system(…)`, which runs it <= os.system('ls {{ context.name | py }}')
    `context.name | py` cannot stand in a variable that `exec(…)` runs <= x = {{ context.name | py }}; exec(x)
    `context.name | py` cannot stand in a script for another interpreter, which evaluates it <= subprocess.run(['sh', '-c', {{ context.name | py }}])
    ");
    let accepted = [
        "print('{{ context.name }}', \"{{ goal }}\", '''{{ goal }}''')",
        "x = {{ context.map | py }}; y = {{ context.map | tojson }}; z = {{ context.score | int }}",
        "f'{{ context.name }} {x} {{{y!r:>{w}}}}' u\"{{ goal }}\" '\\x41{{ goal }}' '\\n{{ goal }}'",
        "subprocess.run(['git', 'commit', '-m', '{{ goal }}']) # it's",
        "json.loads('''{{ context.map }}''')",
        "{{ context.name | raw }}",
    ];
    for script in accepted {
        assert_eq!(refused(script, Mode::Python), "", "{script}");
    }
    let mut values = values();
    let hostile = "'\"\\\n{x}'''\r\0é\u{2028}";
    values.context.insert("v".to_owned(), Arc::new(json!(hostile)));
    let script = Template::parse("'{{ context.v }}' f\"\"\"{{ context.v }}\"\"\"").unwrap();
    insta::assert_snapshot!(script.render(Arc::new(values), Mode::Python).unwrap(), @r#"'\'"\\\n{x}\'\'\'\r\x00é ' f"""'\"\\\n{{x}}'''\r\x00é """"#);
}

#[test]
fn values_decide_at_last_when_they_are_there() {
    let render = |script: &str, value: &str| {
        let mut values = values();
        values.context.insert("v".to_owned(), Arc::new(json!(value)));
        let template = Template::parse(script).unwrap();
        match template.render(Arc::new(values), Mode::Shell) {
            Ok(script) => script,
            Err(error) => error.to_string(),
        }
    };
    insta::assert_snapshot!(render("cat <<'EOF'\n{{ context.v }}\nEOF", "a\nEOF\nrm x"), @r#"`context.v` cannot stand in a here-document, for it holds a line that begins like the end of it; set env.V="{{ context.v }}" on the node and write "$V", or write `{{ context.v | int }}` for a whole number"#);
    insta::assert_snapshot!(render("cat <<'EOF'\nE{{ context.v }}\nEOF", "OF"), @r#"`context.v` cannot stand in a here-document, for it holds a line that begins like the end of it; set env.V="{{ context.v }}" on the node and write "$V", or write `{{ context.v | int }}` for a whole number"#);
    insta::assert_snapshot!(render("cat <<-'EOF'\n\t{{ context.v }}\n\tEOF", "a\n\tb"), @r#"`context.v` cannot stand in a here-document with `<<-`, for its lines begin with tabs, which the shell removes; set env.V="{{ context.v }}" on the node and write "$V", or write `{{ context.v | int }}` for a whole number"#);
    insta::assert_snapshot!(render("echo {{ context.v }}", "a\0b"), @"`context.v` cannot stand in a script, for it holds a NUL character, which no command can take; correct it, or write the value to a file and read it there");
    insta::assert_snapshot!(render("echo \"$X{{ context.v }}\"", "Y"), @r#"echo "$X""Y""#);
    insta::assert_snapshot!(render("echo $(({{ context.v }} - 1))", "-5"), @"echo $(((-5) - 1))");
    insta::assert_snapshot!(render("echo {1..{{ context.v | int }}} {{ context.v | int }}>f", "5"), @"echo {1..5} '5'>f");
    insta::assert_snapshot!(render("{{ context.v | raw }} {{ goal }}", "bash -c"), @r#"`goal` cannot stand in a script of `bash`, which evaluates it; set env.GOAL="{{ goal }}" on the node and read the variable inside that script, in single quotes: '… "$GOAL" …'; or write `{{ goal | int }}` for a whole number"#);
    insta::assert_snapshot!(render("{{ context.v | raw }} {{ goal }}", "echo 'a"), @"`goal` cannot stand in a script where `'` is not closed; correct it, or write the value to a file and read it there");
}
