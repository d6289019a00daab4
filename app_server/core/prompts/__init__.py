"""Prompts that the user keeps as files."""
