[
  (block)
  (subgraph)
  (attr_list)
] @fold
