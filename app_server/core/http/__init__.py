"""HTTP for all that asks the web: one rule for proxies, one trust store, one decoder of event streams."""
