//! Tools of MCP servers, over stdio and HTTP.
