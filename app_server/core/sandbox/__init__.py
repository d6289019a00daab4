"""What a command may touch: the plan, the probe, and the layers that enforce it."""
