"""Tables of commands. Entries are separated by a bar between blanks, or by a line's end."""


def entries(table: str) -> list[str]:
    return [entry.strip() for line in table.splitlines() for entry in line.split(" | ") if entry.strip()]


def scripts(table: str) -> list[str]:
    """Return scripts, in which bars are pipes. They are separated by ` // `, or by a line's end; ⏎ is a newline."""
    found = (script.strip() for line in table.splitlines() for script in line.split(" // "))
    return [script.replace("⏎", "\n") for script in found if script]
