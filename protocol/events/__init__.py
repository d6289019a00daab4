"""What the engine says, one class per event; each docstring holds the event's ordering law."""
