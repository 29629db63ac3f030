//! Errors of lowering, as validation reports them.

mod condition_syntax {
    use crate::tests::support::reported;

    #[test]
    fn errors_point_into_the_condition() {
        insta::assert_snapshot!(reported("condition-syntax", r#"start -> a; a -> b [condition="outcome=success &&"]; a -> exit; b -> exit"#), @r#"
        1:62 error: expected a condition, found the end
          at: "
          fix: write clauses such as outcome=success, joined by && or ||
        "#);
        insta::assert_snapshot!(reported("condition-syntax", r#"start -> a; a -> b [condition="version matches (["]; a -> exit; b -> exit"#), @r"
        1:60 error: invalid regular expression: unclosed character class
          at: ([
          fix: write clauses such as outcome=success, joined by && or ||
        ");
        insta::assert_snapshot!(reported("condition-syntax", r#"start -> a; a -> b [condition="label=\"x\" && (outcome=success"]; a -> exit; b -> exit"#), @r#"
        1:75 error: expected `&&`, `)` or `||`, found the end
          at: "
          fix: write clauses such as outcome=success, joined by && or ||
        "#);
        insta::assert_snapshot!(reported("condition-syntax", r#"start -> m -> exit; m [shape=house, stack.child_dot_source="digraph { start -> exit }", manager.stop_condition="=x"]"#), @r"
        1:125 error: expected a condition, found `=`
          at: =
          fix: write clauses such as outcome=success, joined by && or ||
        ");
        insta::assert_snapshot!(reported("condition-syntax", r#"start -> a; edge [condition="= x"]; a -> b -> exit"#), @r"
        1:42 error: expected a condition, found `=`
          at: =
          fix: write clauses such as outcome=success, joined by && or ||
        ");
        insta::assert_snapshot!(reported("condition-syntax", r#"start -> a; a -> b [condition=""]; a -> exit [condition="outcome=success"]; b -> exit"#), @"nothing");
    }
}

mod script_value {
    use crate::tests::support::{reported, reported_with};

    #[test]
    fn values_that_would_be_code_are_refused() {
        insta::assert_snapshot!(reported_with("script-value", r#"start -> a -> exit; a [language=python, script="@a.j2"]"#, &[("a.j2", "x = '{{ inputs.x }}'")], None), @r#"
        1:60 error: a.j2, line 1: a script cannot be a .j2 file with values: they would not be quoted
          at: "@a.j2"
          fix: write {{ … }} in a script without blocks, or pass values as env.NAME="{{ … }}"
        "#);
        insta::assert_snapshot!(reported_with("template-block", r#"start -> a -> exit; a [language=python, script="@a.py"]"#, &[("a.py", "{% if goal %}x = '{{ inputs.x }}'{% endif %}")], None), @r#"
        1:60 warning: `{% if goal %}` is not expanded in `script`: blocks work in prompts, stylesheets and other texts from files
          at: "@a.py"
          fix: pass the value as env.NAME="{{ … }}", and use `if` or `for` of the script's own language
        "#);
        insta::assert_snapshot!(reported("script-value", r#"start; exit; node [shape=parallelogram, script="echo $((\"{{ goal }}\"))"]; start -> a -> b -> exit"#), @r#"
        1:71 error: `goal` cannot stand in arithmetic, which shells evaluate
          at: {{ goal }}
          fix: write `{{ goal | int }}` for a whole number; for any other value set env.GOAL="{{ goal }}" on the node and use it as "$GOAL" elsewhere
        "#);
        insta::assert_snapshot!(reported("script-value", r#"start -> a -> exit; a [shape=parallelogram, language=python, script="print({{ goal }})"]"#), @r#"
        1:88 error: `goal` cannot stand in Python code outside of a string literal
          at: {{ goal }}
          fix: write `{{ goal | py }}` in place of the whole literal, or set env.GOAL="{{ goal }}" on the node and read os.environ["GOAL"]
        "#);
        insta::assert_snapshot!(reported("script-value", r#"start -> a -> exit; a [shape=parallelogram, env.N="{{ goal }}", env.M="{{ goal | int }}", script="echo $((N + M)) \"$N\""]"#), @r#"
        1:57 error: `N` holds a value, and the script evaluates `N` as code or in arithmetic
          at: env.N
          fix: end the value in `| int`, or use "$N" only as a word that is not evaluated
        "#);
        insta::assert_snapshot!(reported("script-value", r#"start -> a -> exit; a [shape=parallelogram, env.N="{{ goal }}", script="bash -c \"echo $N\""]"#), @r#"
        1:57 error: `N` holds a value, and the script evaluates `N` as code or in arithmetic
          at: env.N
          fix: end the value in `| int`, or use "$N" only as a word that is not evaluated
        "#);
        insta::assert_snapshot!(reported("script-value", r#"start -> a -> exit; a [shape=parallelogram, env.N="{{ goal }}", script="bash -c 'echo \"$N\"'; echo \"$N\" `date`; ssh h true"]"#), @"nothing");
    }
}

mod template_syntax {
    use crate::tests::support::{reported, reported_with};

    #[test]
    fn errors_point_into_the_template() {
        insta::assert_snapshot!(reported("template-syntax", r#"start -> a -> exit; a [prompt="Look: {{ context.x | nosuchfilter }}"]"#), @r"
        1:65 error: there is no filter `nosuchfilter`
          at: nosuchfilter
          fix: write {{ context.KEY }}, {{ inputs.NAME }} or {{ goal }}, with filters of Jinja
        ");
        insta::assert_snapshot!(reported("template-syntax", r#"start -> a -> exit; a [shape=parallelogram, script="echo {{ inputs.x"]"#), @r"
        1:70 error: `{{` is not closed
          at: {{
          fix: add `}}`
        ");
        insta::assert_snapshot!(reported_with("template-syntax", r#"start -> a -> exit; a [prompt="@a.j2"]"#, &[("a.j2", "one
{% if goal %}
")], None), @r#"
        1:43 error: a.j2, line 2: unexpected end of input, expected end of block
          at: "@a.j2"
          fix: close each {% if %} with {% endif %}, each {% for %} with {% endfor %}
        "#);
        insta::assert_snapshot!(reported("template-syntax", r#"start -> a -> exit; a [shape=parallelogram, script="docker ps --format '{{.Names}}' {{ other }}"]"#), @"nothing");
    }

    #[test]
    fn a_goal_reads_inputs_only() {
        insta::assert_snapshot!(reported("template-syntax", r#"graph [goal="Fix {{ context.issue }} {{ goal }} {{ context.x | default('') }} {{ inputs.y }} $goal"]; start -> b -> exit; b [prompt="{{ goal }} $goal"]"#), @r"
        1:33 error: `issue` is read in the goal, before any stage can write it
          at: context.issue
          fix: read an input instead: {{ inputs.NAME }}
        1:53 error: a goal cannot read `goal`, which is itself
          at: goal
          fix: write the text, or read an input: {{ inputs.NAME }}
        ");
    }
}

mod output_schema {
    use crate::tests::support::{reported, reported_with};

    #[test]
    fn a_schema_is_a_json_object() {
        insta::assert_snapshot!(reported("output-schema", r#"start -> a -> exit; a [output_schema="{\"type\": \"object\",}"]"#), @r#"
        1:73 error: the schema is not JSON: trailing comma
          at: }
          fix: write `routing`, a JSON Schema such as {"type": "object"}, or @ and the path of one
        "#);
        insta::assert_snapshot!(reported("output-schema", r#"start -> a -> exit; a [output_schema="[1]"]"#), @r#"
        1:51 error: the schema is not a JSON object
          at: [1]
          fix: write `routing`, a JSON Schema such as {"type": "object"}, or @ and the path of one
        "#);
        insta::assert_snapshot!(reported_with("output-schema", r#"start -> a -> exit; a [output_schema="@out.json"]"#, &[("out.json", r#"{
  "type" "object"
}"#)], None), @r#"
        1:50 error: out.json, line 2: the schema is not JSON: expected `:`
          at: "@out.json"
          fix: write `routing`, a JSON Schema such as {"type": "object"}, or @ and the path of one
        "#);
        insta::assert_snapshot!(reported("output-schema", r#"start -> a -> exit; a [output_schema="{\"properties\": {\"n\": {\"type\": \"int\"}}}"]"#), @r#"
        1:51 error: the schema is wrong at /properties/n/type: "int" is none of "array", "boolean", "integer", "null", "number", "object", "string"
          at: {\"properties\": {\"n\": {\"type\": \"int\"}}}
          fix: correct it there; the keywords are those of JSON Schema, draft 2020-12 unless `$schema` names another
        "#);
        insta::assert_snapshot!(reported_with("output-schema", r#"start -> a -> exit; a [output_schema="@out.json"]"#, &[("out.json", r#"{"$ref": "https://example.com/s.json"}"#)], None), @r#"
        1:50 error: out.json, line 1: the schema refers to `https://example.com/s.json` at /$ref, but nothing outside of the schema itself is read: copy it into `$defs`
          at: "@out.json"
          fix: copy what it refers to into `$defs`, and write #/$defs/NAME
        "#);
        insta::assert_snapshot!(reported("output-schema", r##"start -> a -> exit; a [output_schema="{\"$ref\": \"#/$defs/a\"}"]"##), @r##"
        1:51 error: the schema refers to `#/$defs/a` at /$ref, which is not there
          at: {\"$ref\": \"#/$defs/a\"}
          fix: define it in `$defs`, or correct the reference
        "##);
        insta::assert_snapshot!(reported("output-schema", r#"start -> a -> b -> exit; a [output_schema=routing]; b [output_schema="{\"type\": \"object\"}"]"#), @"nothing");
        insta::assert_snapshot!(reported("output-schema", r#"start -> a -> exit; a [output_schema="@gone.json"]"#), @"nothing");
    }
}
