"""The engine: sessions, turns, tools, the sandbox, storage. It knows no API and no client."""
