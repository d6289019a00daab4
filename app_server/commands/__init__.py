"""Subcommands: a table of them, how command lines are parsed, and a light module for each family."""
