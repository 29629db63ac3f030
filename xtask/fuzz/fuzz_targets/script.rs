//! Any script with values in it: reading it ends, what is accepted renders, and two values are as
//! good as one.
#![no_main]

use std::sync::Arc;

use fabro_template::{Mode, Template, Values};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if text.len() > fabro_fuzz::MAX_INPUT || text.contains(['\0', '{']) {
        return;
    }
    let script = text.replace('@', "{{ goal }}");
    let Ok(template) = Template::parse(&script) else { return };
    let vars = Arc::new(Values { goal: "v".to_owned(), ..Values::default() });
    for mode in [Mode::Shell, Mode::Python] {
        let misplaced = template.misplaced(mode);
        assert!(
            misplaced.iter().all(|error| script[error.span.start..error.span.end] == *"{{ goal }}")
        );
        let rendered = template.render(vars.clone(), mode);
        // A value may still be the line that ends a here-document.
        assert!(rendered.is_err() || misplaced.is_empty(), "{rendered:?}");
        assert!(rendered.is_ok() || !misplaced.is_empty() || script.contains("<<"), "{rendered:?}");
    }
});
