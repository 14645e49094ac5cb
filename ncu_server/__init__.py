"""The measuring side: an MCP server that builds, checks, times and profiles kernels."""
