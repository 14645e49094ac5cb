"""What both MCP servers share: answers to what cannot be used, refusals in a sentence, one bearer token."""
