"""The HTTP client of the whole server: one rule for proxies, one trust store, one decoder of event streams."""
