"""Hooks: commands of the user or a trusted project, and callbacks of a client, that run at events of a thread."""
