"""One module a command: `add_arguments` describes it to its parser, `run` runs it and imports what that needs.

A module is loaded when its command is named, so it imports nothing that is slow. `cli.command_table` has the names.
"""
