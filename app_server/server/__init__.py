"""The server process: transport, JSON-RPC, conversations, the APIs, the daemon, the proxy."""
