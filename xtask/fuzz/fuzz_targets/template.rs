//! Any text: reading and rendering a template end, and what it reads is in the text.
#![no_main]

use std::sync::Arc;

use fabro_template::{Mode, Template, Values};
use libfuzzer_sys::fuzz_target;
use serde_json::json;

fuzz_target!(|text: &str| {
    if text.len() > fabro_fuzz::MAX_INPUT {
        return;
    }
    let vars = Arc::new(Values {
        goal: "it's \"done\"".to_owned(),
        inputs: [("a".to_owned(), json!({"b": [1, "x", null]}))].into(),
        context: [("a.b".to_owned(), Arc::new(json!("c")))].into(),
    });
    for template in [Template::parse(text), Template::parse_jinja(text)].into_iter().flatten() {
        assert!(
            template.reads().iter().all(|read| text.get(read.span.start..read.span.end).is_some())
        );
        for mode in [Mode::Prompt, Mode::Text, Mode::Shell, Mode::Python] {
            // Jinja files are refused in scripts, so a plain one may fail to render.
            if let Ok(rendered) = template.render(vars.clone(), mode)
                && template.is_plain()
            {
                assert_eq!(rendered, text);
            }
        }
    }
});
