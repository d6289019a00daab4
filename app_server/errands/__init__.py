"""Commands that ask a server in this process for one thing, and end: logins, stored threads, MCP servers, settings."""
