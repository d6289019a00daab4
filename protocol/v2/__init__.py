"""The shapes of the thread API (0.169.0), by resource. A process that only speaks v1 does not load them."""
