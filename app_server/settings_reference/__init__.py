"""Writes docs/configuration-reference.md from the code that reads the settings.

`python -m app_server.settings_reference` is a tool for developers, not part of the server.
"""
