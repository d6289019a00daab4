"""What is said: the shapes of every message, and nothing that sends, stores or decides."""
