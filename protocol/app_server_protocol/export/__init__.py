"""The tables of methods as files: a tool for building, which no module imports at run time."""
