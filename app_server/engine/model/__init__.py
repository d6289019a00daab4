"""The model client: it sends requests to providers and reads their streams as events."""
