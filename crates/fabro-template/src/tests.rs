mod flows;
mod scripts;
mod shells;

use std::fmt::Write as _;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{Mode, ReadTarget, RenderError, Template, Values, Vars};

fn values() -> Values {
    let context = json!({
        "tests_passed": true, "score": 91, "half": 0.5, "nothing": null, "name": "O'Neil & co",
        "command.output": "line 1\nline 2", "output.audit": {"score": 7, "tags": ["x", {"n": 1}]},
        "a.b": "flat", "a": {"b": "path", "c": "deep"}, "map": {"z": 1, "a": [null, "\"q\""]},
        "context.odd": "literal", "cmd": "$(touch x) `y` \"z\" \\",
    });
    let inputs = json!({"repo": "demo", "cfg": {"level": 3}, "n.m": "dotted"});
    Values {
        goal: "Fix it".to_owned(),
        inputs: serde_json::from_value(inputs).unwrap(),
        context: serde_json::from_value(context).unwrap(),
    }
}

fn render(text: &str, mode: Mode) -> Result<String, RenderError> {
    let template = Template::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    template.render(Arc::new(values()), mode)
}

#[track_caller]
fn check(mode: Mode, cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        assert_eq!(render(text, mode).as_deref(), Ok(*expected), "{text}");
    }
}

#[track_caller]
fn check_jinja(text: &str, expected: &str) {
    let template = Template::parse_jinja(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(
        template.render(Arc::new(values()), Mode::Prompt).as_deref(),
        Ok(expected),
        "{text}"
    );
}

/// An error as it is shown: the text, a mark under the place, the message and the fix.
#[track_caller]
fn error(parsed: Result<Template, crate::SyntaxError>, text: &str) -> String {
    let error = parsed.expect_err("should not parse");
    let width = text[error.span.start..error.span.end].chars().count().max(1);
    let indent = text[..error.span.start].chars().count();
    let mut shown = format!("{text}\n{:indent$}{} {error}", "", "^".repeat(width));
    if let Some(fix) = &error.fix {
        write!(shown, "; {fix}").unwrap();
    }
    shown
}

#[track_caller]
fn ours(text: &str) -> String {
    error(Template::parse(text), text)
}

#[track_caller]
fn jinja(text: &str) -> String {
    error(Template::parse_jinja(text), text)
}

#[track_caller]
fn fails(text: &str, mode: Mode) -> String {
    render(text, mode).expect_err("should fail").to_string()
}

#[test]
fn only_our_tags_are_expressions() {
    let same = [
        "plain",
        "",
        "docker ps --format '{{.Names}}'",
        "{{ .goal }} {{ $inputs }} {{# context }} {{goals}} {{ goal_1 }} {{ range .Items }}",
        "{% if x %} {# no #} } }} {{ {",
        "{{ 'goal' }}",
    ];
    for text in same {
        let template = Template::parse(text).unwrap();
        assert!(template.is_plain() && template.reads().is_empty(), "{text}");
        check(Mode::Shell, &[(text, text)]);
    }
    check(
        Mode::Prompt,
        &[
            ("{{goal}}", "Fix it"),
            ("{{{ goal }}}", "{Fix it}"),
            ("a {{- goal -}} b {{+ goal }}", "aFix itb Fix it"),
            ("{{ (goal) | upper }}", "FIX IT"),
            ("{{ goal ~ '}}' }}", "Fix it}}"),
            ("{{ {{ goal }}", "{{ Fix it"),
        ],
    );
}

#[test]
fn values_become_text() {
    check(
        Mode::Prompt,
        &[
            ("{{ context.tests_passed }}", "true"),
            ("{{ context.score }} {{ context.half }}", "91 0.5"),
            ("[{{ context.nothing }}]", "[]"),
            ("{{ context.map }}", r#"{"z":1,"a":[null,"\"q\""]}"#),
            ("{{ context.score + 1 }}", "92"),
            ("{{ context.name | upper | replace('&', 'and') }}", "O'NEIL and CO"),
            ("{{ context.command.output | lines | last }}", "line 2"),
            ("{{ context.tests_passed and 'ok' or 'no' }}", "ok"),
            ("{{ goal if context.score > 90 else inputs.repo }}", "Fix it"),
            ("{{ context.map.a | tojson }}", r#"[null, "\"q\""]"#),
        ],
    );
}

#[test]
fn dotted_names_are_flat_keys_then_paths() {
    check(
        Mode::Text,
        &[
            ("{{ context.command.output }}", "line 1\nline 2"),
            ("{{ context[\"command.output\"] }}", "line 1\nline 2"),
            ("{{ context['command']['output'] }}", "line 1\nline 2"),
            ("{{ context.a.b }} {{ context.a.c }}", "flat deep"),
            ("{{ context.output.audit.tags[1].n }}", "1"),
            ("{{ context.output.audit.tags.0 }}", "x"),
            ("{{ context.output.audit.tags[-1].n }}", "1"),
            ("{{ context.odd }}", "literal"),
            ("{{ inputs.repo }} {{ inputs.cfg.level }} {{ inputs.n.m }}", "demo 3 dotted"),
            ("{{ context[inputs.repo] | default('computed') }}", "computed"),
            ("{{ context.a.x.y | default('none') }}", "none"),
            ("{{ inputs.nope is defined }}", "false"),
        ],
    );
}

#[test]
fn dollar_goal_is_for_prompts() {
    let text = "$goal, $goals, ${goal}, '$goal' {{ context.score }}";
    check(Mode::Prompt, &[(text, "Fix it, $goals, ${goal}, 'Fix it' 91")]);
    check(Mode::Text, &[(text, text.replace("{{ context.score }}", "91").as_str())]);
    check_jinja("{% if true %}$goal{% endif %} $goals", "Fix it $goals");
    assert!(!Template::parse("$goal").unwrap().is_plain());
}

#[test]
fn shell_values_are_quoted_for_their_place() {
    check(
        Mode::Shell,
        &[
            ("echo {{ context.name }}", r"echo 'O'\''Neil & co'"),
            ("echo '{{ context.name }}'", r"echo 'O'\''Neil & co'"),
            ("echo \"{{ context.name }}\"", "echo \"O'Neil & co\""),
            ("echo \"{{ context.cmd }}\"", r#"echo "\$(touch x) \`y\` \"z\" \\""#),
            ("echo {{ context.score }}", "echo '91'"),
            ("echo {{ context.nothing }}", "echo ''"),
            ("echo {{ context.cmd | raw }}", "echo $(touch x) `y` \"z\" \\"),
            ("echo {{ context.map | tojson }}", r#"echo '{"z": 1, "a": [null, "\"q\""]}'"#),
            ("echo {{ goal | raw | upper }}", "echo 'FIX IT'"),
            ("x=$((1 + {{ context.score | int }}))", "x=$((1 + 91))"),
            ("x=\"$(cat {{ goal }})\"", "x=\"$(cat 'Fix it')\""),
            ("# don't\nls {{ goal }}", "# don't\nls 'Fix it'"),
            ("echo a#b ${#x} $# \\' {{ goal }}", "echo a#b ${#x} $# \\' 'Fix it'"),
            (
                "cat <<'E'\n{{ context.cmd }} $(x) {{ goal }}\nE\necho {{ goal }}",
                "cat <<'E'\n$(touch x) `y` \"z\" \\ $(x) Fix it\nE\necho 'Fix it'",
            ),
            (
                "cat <<-'E'\n\t{{ context.cmd }}\n\tE\necho {{ goal }}",
                "cat <<-'E'\n\t$(touch x) `y` \"z\" \\\n\tE\necho 'Fix it'",
            ),
            ("case $1 in a) ls {{ goal }};; esac", "case $1 in a) ls 'Fix it';; esac"),
            (
                "cat <<<{{ goal }}; echo $((1 << 2)) {{ goal }}",
                "cat <<<'Fix it'; echo $((1 << 2)) 'Fix it'",
            ),
        ],
    );
    check(
        Mode::Python,
        &[("print({{ goal | tojson }}, {{ context.score | int }})", "print(\"Fix it\", 91)")],
    );
}

#[test]
fn values_that_cannot_be_quoted_are_refused() {
    for (text, place) in [
        ("`ls {{ goal }}`", "inside backticks"),
        ("echo ${{ inputs.repo }}", "after a `$`"),
        ("echo \"${{ inputs.repo }}\"", "after a `$`"),
        ("echo \\{{ goal }}", "after a backslash"),
        ("echo $'{{ goal }}'", "inside `$'…'`, which not every shell knows"),
        ("echo \"${x:-{{ goal }}}\"", "inside `${…}`"),
        ("echo $(({{ goal }}))", "in arithmetic, which shells evaluate"),
        ("cat <<{{ goal }}", "as the end of a here-document"),
        (
            "cat <<'EOF'\n{{ inputs.repo | replace('demo', 'EOF') }}\nEOF",
            "in a here-document, for it holds a line that begins like the end of it",
        ),
    ] {
        match render(text, Mode::Shell) {
            Err(RenderError::Unquotable { place: told, .. }) => assert_eq!(told, place, "{text}"),
            other => panic!("{text}: {other:?}"),
        }
    }
}

#[test]
fn what_is_missing_is_named() {
    insta::assert_snapshot!(fails("{{ context.a.x }}", Mode::Prompt), @r#"the context has no key `a.x`; write it in an earlier stage, or give a default: `{{ context.a.x | default("") }}`"#);
    insta::assert_snapshot!(fails("{{ context.nope | upper }}", Mode::Prompt), @r#"the context has no key `nope`; write it in an earlier stage, or give a default: `{{ context.nope | default("") }}`"#);
    insta::assert_snapshot!(fails("{{ context.ok | default('') }}{{ inputs.nope + 1 }}", Mode::Prompt), @"there is no input `nope`; set it under [run.inputs]");
    insta::assert_snapshot!(fails("{{ goal + 1 }}", Mode::Prompt), @"`goal + 1` cannot be rendered: tried to use + operator on unsupported types string and number");
    insta::assert_snapshot!(fails("{{ goal | replace }}", Mode::Prompt), @"`goal | replace` cannot be rendered: missing argument");
    insta::assert_snapshot!(fails("echo `{{ goal }}`", Mode::Shell), @r#"`goal` cannot stand inside backticks; set env.GOAL="{{ goal }}" on the node and write "$GOAL", or write `{{ goal | int }}` for a whole number"#);
}

#[test]
fn parse_errors_point_and_help() {
    insta::assert_snapshot!(ours("see {{ goal"), @r"
    see {{ goal
        ^^ `{{` is not closed; add `}}`
    ");
    insta::assert_snapshot!(ours("see {{ goal | uper }}"), @r"
    see {{ goal | uper }}
                  ^^^^ there is no filter `uper`
    ");
    insta::assert_snapshot!(ours("see {{ goal is fine }}"), @r"
    see {{ goal is fine }}
                   ^^^^ there is no test `fine`
    ");
    insta::assert_snapshot!(ours("see {{ context }}"), @r#"
    see {{ context }}
           ^^^^^^^ `context` is not a value; name one of its keys: `context.KEY` or `context["KEY"]`
    "#);
    insta::assert_snapshot!(ours("see {{ context.x ~ score }}"), @r"
    see {{ context.x ~ score }}
                       ^^^^^ there is no `score` in templates; read `goal`, `inputs.score` or `context.score`, or quote a text
    ");
    insta::assert_snapshot!(ours("see {{ context.x y }}"), @r"
    see {{ context.x y }}
                     ^ unexpected input after expression
    ");
    insta::assert_snapshot!(ours("see {{ goal ~ 'x }}"), @r"
    see {{ goal ~ 'x }}
                  ^ the quote is not closed
    ");
    insta::assert_snapshot!(jinja("a {% if context.x %} b"), @r"
    a {% if context.x %} b
                        ^^ unexpected end of input, expected end of block; close each {% if %} with {% endif %}, each {% for %} with {% endfor %}
    ");
    insta::assert_snapshot!(jinja("a {% include 'b' %}"), @r"
    a {% include 'b' %}
         ^^^^^^^ `include` cannot read other files here; put the text into this file
    ");
    insta::assert_snapshot!(jinja("a {{ repo }}"), @r"
    a {{ repo }}
         ^^^^ there is no `repo` in templates; read `goal`, `inputs.repo` or `context.repo`, or quote a text
    ");
    insta::assert_snapshot!(jinja("a {# b"), @r"
    a {# b
      ^^ the comment is not closed; add `#}`
    ");
    insta::assert_snapshot!(jinja("{% for k in inputs %}{% endfor %}"), @r#"
    {% for k in inputs %}{% endfor %}
                ^^^^^^ `inputs` is not a value; name one of its keys: `inputs.KEY` or `inputs["KEY"]`
    "#);
}

#[test]
fn reads_are_told() {
    let template = Template::parse(
        "{{ goal }} {{ inputs.a.b }} {{ context['x.y'] | default(context.z) }} {{ context[goal] }} \
         {{ context.q if context.q else inputs.r is defined }} {{ context.list.pop() }}",
    )
    .unwrap();
    let shown: Vec<_> = template
        .reads()
        .iter()
        .map(|read| {
            let name = match &read.target {
                ReadTarget::Goal => "goal".to_owned(),
                ReadTarget::Input(name) => format!("input {name}"),
                ReadTarget::Context(key) => format!("context {key}"),
            };
            format!("{name}{} at {}", if read.optional { "?" } else { "" }, read.span.start)
        })
        .collect();
    insta::assert_snapshot!(shown.join("\n"), @r"
    goal at 3
    input a.b at 14
    context x.y? at 31
    context z at 56
    goal at 81
    context q? at 93
    context q? at 106
    input r? at 121
    context list at 147
    ");
}

#[test]
fn files_are_whole_jinja() {
    check_jinja(
        "{% for tag in context.output.audit.tags %}{{ loop.index }}{{ tag }};{% endfor %}",
        "1x;2{\"n\":1};",
    );
    check_jinja(
        "{% if context.nope %}a{% else %}b{% endif %}{# c #}{% raw %}{{ x }}{% endraw %}",
        "b{{ x }}",
    );
    check_jinja("{% set s = context.command.output %}{{ s | length }}\n", "13\n");
    check_jinja("{%- macro m(x) -%}<{{ x }}>{%- endmacro -%}{{ m(context.a.b) }}", "<flat>");
    check_jinja("{{ dict(context=1)['context'] }}{{ context['na' ~ 'me'] }}", "1O'Neil & co");
    let shell = Template::parse_jinja("{{ goal }}").unwrap();
    let result = shell.render(Arc::new(values()), Mode::Shell);
    assert_eq!(result, Err(RenderError::JinjaScript));
    assert!(Template::parse_jinja("text").unwrap().is_plain());
    let missing = Template::parse_jinja("{{ context.gone.x }}").unwrap();
    let result = missing.render(Arc::new(values()), Mode::Prompt);
    assert_eq!(result, Err(RenderError::MissingContext { key: "gone.x".to_owned() }));
}

/// A context with one large value and one that cannot be read.
struct Large;

impl Vars for Large {
    fn goal(&self) -> &'static str {
        ""
    }

    fn input(&self, _name: &str) -> Option<Value> {
        None
    }

    fn context(&self, key: &str) -> Result<Option<Arc<Value>>, String> {
        match key {
            "log" => Ok(Some(Arc::new(json!("x".repeat((128 << 10) + 1))))),
            "blob" => Err("the blob is damaged".to_owned()),
            _ => Ok(None),
        }
    }

    fn path(&self, key: &str) -> Option<String> {
        (key == "log").then(|| "/run/blobs/1.json".to_owned())
    }
}

#[test]
fn large_and_unreadable_values_fail() {
    let render = |text, mode| Template::parse(text).unwrap().render(Arc::new(Large), mode);
    assert_eq!(render("{{ context.log }}", Mode::Prompt).unwrap().len(), 131_073);
    insta::assert_snapshot!(render("echo {{ context.log }}", Mode::Shell).unwrap_err(), @"`context.log` has 131073 bytes, and a script takes at most 131072 of one value; read it from the file /run/blobs/1.json");
    assert_eq!(render("echo {{ context.log | length }}", Mode::Shell).unwrap(), "echo '131073'");
    insta::assert_snapshot!(render("{{ context.blob | default('') }}", Mode::Python).unwrap_err(), @"the context key `blob` cannot be read: the blob is damaged");
    let many = "{{ context.log }}".repeat(300);
    assert_eq!(render(&many, Mode::Prompt), Err(RenderError::OutputTooLarge { limit: 32 << 20 }));
}

#[test]
fn what_a_template_keeps_is_bounded_too() {
    let render =
        |text: &str| Template::parse_jinja(text).unwrap().render(Arc::new(Large), Mode::Prompt);
    let text = "x".repeat(1 << 20);
    let loops = format!("{{% for i in range(9) %}}\n  {text}{{% endfor %}}");
    let kept = |body: &str| format!("{{% set kept %}}{body}{{% endset %}}{{{{ kept | length }}}}");
    assert_eq!(render(&kept(&loops)).unwrap(), "9437211");
    let trimmed = loops.replacen("%}", "-%}", 1);
    assert_eq!(render(&kept(&trimmed)).unwrap(), "9437184");
    let many = [
        kept(&loops.replace("(9)", "(100000)")),
        format!(
            "{{% macro m() %}}{text}{{% endmacro %}}{{% for i in range(1000) %}}{{% set _ = m() %}}{{% endfor %}}"
        ),
        "{% set kept %}{% for i in range(100000) %}{{ context.log }}{% endfor %}{% endset %}"
            .to_owned(),
        format!(
            "{{% for i in range(1000) %}}{{% filter upper %}}{{% raw %}}{text}{{% endraw %}}{{% endfilter %}}{{% endfor %}}"
        ),
    ];
    for template in many {
        let error = render(&template).unwrap_err().to_string();
        assert!(
            error.contains("writes more than 268435456 bytes") || error.contains("has more than"),
            "{error}"
        );
    }
}

#[test]
fn hostile_templates_are_refused_or_bounded() {
    let deep = |open: &str, close: &str| {
        format!("{{{{ goal ~ {}1{} }}}}", open.repeat(150), close.repeat(150))
    };
    assert!(Template::parse(&deep("(", ")")).is_err());
    assert!(Template::parse(&deep("-", "")).is_ok());
    let long = format!("{{{{ goal{} }}}}", "~goal".repeat(100_000));
    assert!(
        Template::parse(&long).unwrap_err().message.starts_with("the expression has more than")
    );
    let chain = format!("{{{{ goal{} }}}}", "~goal".repeat(190));
    assert_eq!(render(&chain, Mode::Text).unwrap().len(), 191 * 6);
    let elifs = format!("{{% if goal %}}{}{{% endif %}}", "{% elif goal %}".repeat(100_000));
    assert!(Template::parse_jinja(&elifs).is_err());
    let elifs = format!("{{% if goal %}}{}{{% endif %}}", "{% elif goal %}".repeat(100));
    assert!(Template::parse_jinja(&elifs).is_ok());
    let ifs = "{% if goal %}".repeat(100_000);
    assert!(Template::parse_jinja(&ifs).is_err());
    // Neither of these is linear by itself: finding the end of a raw block, and the place of a name.
    let raw = format!("{{% raw %}}{}{{%- endraw -%}}{{{{ goal }}}}", "{% ".repeat(100_000));
    assert!(Template::parse_jinja(&raw).is_ok());
    let unclosed = "{% raw %}".repeat(100_000);
    let error = Template::parse_jinja(&unclosed).unwrap_err();
    assert_eq!((error.message.as_str(), error.span.start), ("`{% raw %}` is not closed", 0));
    let unknown: Vec<_> = (0..20_000).map(|name| format!("{{{{ a{name} }}}}")).collect();
    assert!(Template::parse_jinja(&unknown.concat()).is_err());
    let text = "{{ \"".repeat(100_000);
    assert!(Template::parse(&text).unwrap().is_plain());
    let nested = "{% for a in range(9000) %}{% for b in range(9000) %}{% endfor %}{% endfor %}";
    let endless = Template::parse_jinja(nested).unwrap();
    let result = endless.render(Arc::new(values()), Mode::Text);
    assert!(matches!(result, Err(RenderError::Evaluation { .. })), "{result:?}");
    let script = format!("{}{{{{ goal }}}}", "(".repeat(100_000));
    assert!(matches!(render(&script, Mode::Shell), Err(RenderError::Unquotable { .. })));
}

#[test]
fn no_filter_grows_without_bounds() {
    let failed = |expression: &str| {
        let template = Template::parse(&format!("{{{{ {expression} }}}}")).unwrap();
        template.render(Arc::new(Large), Mode::Prompt).unwrap_err().to_string()
    };
    let log = "context.log";
    for expression in [
        format!("{log} | replace('x', {log})"),
        format!("{log} | replace('', {log})"),
        format!("{log} | list | join({log})"),
        format!("{log} | indent(2000000000)"),
        format!("{log} | replace('x', '\\n') | indent(1000)"),
        format!("{log} | list | tojson(indent=1000)"),
        format!("{log} | list | tojson(indent=1000000000)"),
        format!("{log} | list | batch(1000000000, 'x')"),
        format!("{log} | slice(1000000000) | list"),
        format!("({log} * 100) | list"),
        format!("({log} * 100) | split('')"),
        format!("(({log} * 100) | replace('x', '\\n')) | lines"),
        format!("({log} * 100) ~ 'x'"),
        format!("({log} * 400) | string"),
        "goal ~ '%1000000000d' | format(1)".to_owned(),
        "goal ~ '%.1000000000f' | format(1)".to_owned(),
        "goal ~ '%*d' | format(1000000000, 1)".to_owned(),
        format!("(goal ~ '%(a)s' * 1000) | format(a={log})"),
        "(goal ~ '%(a)1000000000d') | format(a=1)".to_owned(),
        format!("{log} and [{log}] * 1000"),
        format!("{log} and ([{log}] * 1000) | pprint"),
    ] {
        let error = failed(&expression);
        assert!(
            ["has more than", "is indented by at most", "a width is"]
                .iter()
                .any(|it| error.contains(it)),
            "{expression}: {error}"
        );
    }
    let file = |text: &str| {
        let template = Template::parse_jinja(text).unwrap();
        template.render(Arc::new(Large), Mode::Prompt)
    };
    for doubled in ["x ~ x", "x + x", "(x) ~ (x)", "(x ~ '') ~ x"] {
        let text =
            format!("{{% set x = 'a' %}}{}", format!("{{% set x = {doubled} %}}").repeat(60));
        let error = file(&text).unwrap_err().to_string();
        assert!(error.contains("before `~` or `+` has more than"), "{doubled}: {error}");
    }
    let called = "{% macro m(x) %}{{ m(x ~ x) }}{% endmacro %}{{ m('a') }}";
    assert!(file(called).unwrap_err().to_string().contains("before `~` or `+`"));
}

#[test]
fn bounded_filters_work_as_before() {
    for expression in [
        "goal | replace('o', '0') | indent(2, true)",
        "goal ~ 1e+2 ~ (-1 + 1) ~ [1, 2] ~ {'a': 1 + 2}",
        "(goal | list | length) + 1e+2 + 1+ 2",
        "'%-8s|%05.1f|100%%' | format(goal, 2.25)",
        "'%(a)s %(b)05d %(a)s' | format(a=goal, b=7)",
        "goal | list | batch(2, '-') | list",
        "goal | list | slice(2) | tojson(indent=1)",
        "(goal ~ ' b') | split | join(', ')",
        "[[goal, 1], {'b': none}] | tojson",
        "(goal ~ '\\n b') | lines | map('upper') | join",
    ] {
        let text = format!("{{{{ (goal and {expression}) }}}}");
        let ours = Template::parse(&text).unwrap().render(Arc::new(values()), Mode::Prompt);
        let mut plain = minijinja::Environment::new();
        plain.set_undefined_behavior(minijinja::UndefinedBehavior::SemiStrict);
        plain.set_formatter(|out, _, value| Ok(out.write_str(&crate::text::text_of(value)?)?));
        let goal = minijinja::context! { goal => values().goal() };
        let theirs = plain.render_str(&text, goal);
        assert_eq!(ours.unwrap(), theirs.unwrap(), "{expression}");
    }
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in r#"(\{\{|\}\}|\{%|%\}|goal|context|inputs|[.a|"'\[\]() -]|é|\$goal){0,16}"#) {
        for parsed in [Template::parse(&text), Template::parse_jinja(&text)] {
            match parsed {
                Ok(template) => {
                    for mode in [Mode::Prompt, Mode::Shell] {
                        let _ = template.render(Arc::new(values()), mode);
                    }
                    for read in template.reads() {
                        prop_assert!(text.get(read.span.start..read.span.end).is_some());
                    }
                }
                Err(error) => prop_assert!(text.get(error.span.start..error.span.end).is_some()),
            }
        }
    }

    #[test]
    fn text_without_tags_is_untouched(text in r#"[a-z{}%#$'"\\<(\n ]{0,24}"#) {
        prop_assume!(!text.contains("{{ goal"));
        if let Ok(template) = Template::parse(&text) {
            prop_assert_eq!(template.render(Arc::new(values()), Mode::Shell).unwrap(), text.clone());
        }
    }

    #[test]
    fn a_quoted_value_reads_back(value in "[^\0]*") {
        let mut values = values();
        values.context.insert("v".to_owned(), Arc::new(json!(value)));
        let script = Template::parse("echo {{ context.v }}").unwrap().render(Arc::new(values), Mode::Shell);
        let script = script.unwrap();
        let inner = script.strip_prefix("echo '").and_then(|text| text.strip_suffix('\'')).unwrap();
        prop_assert_eq!(inner.replace(r"'\''", "'"), value);
    }
}

#[test]
fn python_literals() {
    let context = json!({
        "all": {"a": [null, true, false, 1, -2.5], "t": "it's \"q\" \\ \n\u{1}\u{2028}é😀"},
        "on": true,
        "nothing": null,
        "text": "None",
    });
    let values = Values {
        context: serde_json::from_value(context).unwrap(),
        inputs: [("n".to_owned(), json!(3))].into(),
        ..Values::default()
    };
    let render =
        |text: &str, mode| Template::parse(text).unwrap().render(Arc::new(values.clone()), mode);
    let python = |text: &str| render(text, Mode::Python).unwrap();
    assert_eq!(
        python("x = {{ context.all | py }}"),
        "x = {\"a\": [None, True, False, 1, -2.5], \"t\": \"it's \\\"q\\\" \\\\ \\n\\u0001\u{2028}é😀\"}"
    );
    assert_eq!(python("{{ context.on | py }} {{ context.nothing | py }}"), "True None");
    assert_eq!(python("{{ context.text | py }} {{ inputs.n | py }}"), "\"None\" 3");
    assert_eq!(python("{{ (context.text ~ 1) | raw | py }}"), "\"None1\"");
    assert_eq!(
        render("python3 x.py {{ context.on | py }}", Mode::Shell).unwrap(),
        "python3 x.py 'True'"
    );
    assert_eq!(render("echo {{ context.text | py }}", Mode::Shell).unwrap(), "echo '\"None\"'");
    let missing = render("{{ context.gone | py }}", Mode::Python).unwrap_err();
    assert_eq!(missing, crate::RenderError::MissingContext { key: "gone".to_owned() });
}

#[test]
fn one_expression_is_a_value() {
    let value = |text: &str| Template::parse(text).unwrap().value(Arc::new(values()));
    assert_eq!(value("{{ context.map }}").unwrap(), values().context["map"].as_ref().clone());
    assert_eq!(value("{{ context.score }}").unwrap(), json!(91));
    assert_eq!(value("{{ context.score + 1 }}").unwrap(), json!(92));
    assert_eq!(value("{{ goal }}").unwrap(), json!("Fix it"));
    assert_eq!(value("{{ context.score | raw }}").unwrap(), json!("91"));
    assert_eq!(value(" {{ context.score }}").unwrap(), json!(" 91"));
    assert_eq!(value("plain $goal").unwrap(), json!("plain $goal"));
    assert!(value("{{ context.gone }}").unwrap_err().to_string().contains("gone"));
}
