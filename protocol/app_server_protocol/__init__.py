"""The protocol: the types of all messages, without I/O and without decisions."""
