"""The layers of the Linux sandbox, as the launcher runs them: standard library only, no threads."""
