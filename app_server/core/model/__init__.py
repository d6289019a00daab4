"""The model client: requests to providers, their streams as events."""
