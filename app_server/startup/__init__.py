"""Start-up: the process, the early handshake, and what is loaded when."""
