"""The table of methods as files: a tool for building, which nothing imports at run time."""
