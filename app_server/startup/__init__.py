"""Everything about starting: the process, the handshake before anything is loaded, and what is loaded when."""
