"""Credentials: storage, refresh and login."""
