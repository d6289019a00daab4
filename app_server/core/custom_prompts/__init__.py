"""Custom prompts: files of the user."""
