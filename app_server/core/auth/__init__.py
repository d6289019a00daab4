"""Credentials: where they are kept, how they are refreshed, how a user logs in."""
