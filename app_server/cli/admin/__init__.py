"""Commands that run one operation on a server in this process, and end: logins, stored threads, MCP servers,
settings.
"""
