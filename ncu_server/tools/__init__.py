"""The MCP shell: tools, resources, prompts. No logic lives here."""
