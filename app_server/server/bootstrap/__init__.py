"""Start-up: the process, the early handshake, and the order in which modules are loaded."""
