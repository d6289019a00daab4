"""The HTTP client for all rooms: one rule for proxies, one trust store, one decoder of event streams."""
