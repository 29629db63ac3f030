//! Templates in prompts and scripts: only {{ goal }}, {{ inputs }} and {{ context }} are rendered.
