; Scripts of command nodes are shell scripts, unless they say otherwise.
((attribute
   name: (id) @_name
   value: (id (string_literal) @injection.content))
  (#eq? @_name "script")
  (#set! injection.language "bash")
  (#offset! @injection.content 0 1 0 -1))

((comment) @injection.content
  (#set! injection.language "comment"))
