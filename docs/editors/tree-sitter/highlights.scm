; Highlights of Fabro workflows for the grammar tree-sitter-dot.
; Made by `cargo xtask fixtures --bless` from the table of attributes.

(comment) @comment
(preproc) @comment

(keyword) @keyword

(string_literal) @string
(number_literal) @number
[(edgeop) (operator)] @operator
["{" "}" "[" "]"] @punctuation.bracket
["," ";"] @punctuation.delimiter

(node_id (id (identifier) @variable))
(subgraph id: (id (identifier) @module))
(attribute value: (id (identifier) @constant))

; Attributes of other tools are kept, and have no effect.
(attribute name: (id) @property)

((attribute name: (id) @attribute)
  (#any-of? @attribute
    "loop_restart_signature_limit" "context_fidelity_default" "context_thread_default" "manager.stop_condition"
    "stack.child_dot_source" "fallback_retry_target" "manager.poll_interval" "human.default_choice"
    "stack.child_workflow" "default_max_retries" "manager.max_cycles" "default_max_retry"
    "human.description" "default_fidelity" "default_provider" "max_tokens_total"
    "model_stylesheet" "reasoning_effort" "max_agent_turns" "max_node_visits"
    "default_thread" "on_unavailable" "output_retries" "project_memory"
    "allow_partial" "default_model" "human.preview" "output_schema"
    "question_type" "review_target" "stall_timeout" "context_tool"
    "llm_provider" "loop_restart" "max_parallel" "merge_stderr"
    "retry_policy" "retry_target" "stdin_source" "tool_command"
    "acp.command" "auto_status" "join_policy" "max_retries"
    "permissions" "acp.config" "llm_prompt" "max_tokens"
    "max_visits" "on_failure" "condition" "fallbacks"
    "goal_gate" "isolation" "llm_model" "max_items"
    "max_turns" "node_type" "selection" "thread_id"
    "duration" "fidelity" "for_each" "freeform"
    "language" "max_cost" "provider" "backend"
    "rankdir" "timeout" "import" "memory"
    "prompt" "quorum" "reason" "script"
    "status" "weight" "class" "label"
    "merge" "model" "shape" "speed"
    "tools" "goal" "show" "type"
    "rag" "as"))

((attribute
   name: (id) @_name
   value: (id (string_literal) @string.special))
  (#any-of? @_name "condition" "model_stylesheet" "manager.stop_condition"))

((attribute value: (id (identifier) @boolean))
  (#any-of? @boolean "true" "false"))
