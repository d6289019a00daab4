"""Running commands: the launcher, capture, time limits, environment, terminals."""
