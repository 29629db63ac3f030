//! Model providers for tests: scripted OpenAI- and Anthropic-compatible servers on real sockets.
