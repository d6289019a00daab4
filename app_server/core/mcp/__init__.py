"""MCP servers as a conversation uses them: started in the background, their tools, resources and faults."""
