"""Start-up: the process, and the order in which modules are loaded."""
