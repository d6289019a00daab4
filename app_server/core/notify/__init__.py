"""The user's notification program."""
