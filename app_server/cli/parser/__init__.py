"""Subcommands: a table of them, the parsing of command lines, and a light module for each family."""
