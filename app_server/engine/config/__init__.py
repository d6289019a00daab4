"""Configuration: the layers of settings, merged into one immutable `Config`."""
