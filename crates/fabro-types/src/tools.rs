/// The names of the tools that agents have without any settings, in order.
#[rustfmt::skip]
pub const OWN_TOOLS: [&str; 17] = [
    "append_workflow_context", "apply_patch", "close_agent", "edit_file", "get_workflow_context",
    "glob", "grep", "list_dir", "read_file", "send_input", "shell", "spawn_agent", "use_skill",
    "wait", "web_fetch", "web_search", "write_file",
];

/// The names in a node's attribute `tools`: between them are commas, white space or both.
///
/// ```
/// let names = fabro_types::tool_names("read_file, grep\nmcp__docs__search,");
/// assert_eq!(names.collect::<Vec<_>>(), ["read_file", "grep", "mcp__docs__search"]);
/// ```
pub fn tool_names(list: &str) -> impl Iterator<Item = &str> {
    list.split(|c: char| c == ',' || c.is_whitespace()).filter(|name| !name.is_empty())
}

/// Those of the names in such a list that are neither of our tools nor of those of an MCP server: a
/// tool that settings declare, or a slip.
pub fn unknown_tools(list: &str) -> impl Iterator<Item = &str> {
    tool_names(list).filter(|name| !OWN_TOOLS.contains(name) && !name.starts_with("mcp__"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_names_are_in_order() {
        assert!(super::OWN_TOOLS.is_sorted());
    }
}
