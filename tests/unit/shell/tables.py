"""Tables of commands: entries are separated by a bar between blanks, or by a line's end."""


def entries(table: str) -> list[str]:
    return [entry.strip() for line in table.splitlines() for entry in line.split(" | ") if entry.strip()]
