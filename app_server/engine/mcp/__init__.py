"""The MCP client of a conversation: servers that start in the background, their tools, resources and failures."""
