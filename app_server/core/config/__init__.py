"""Configuration: what the layers say, merged into one immutable `Config`."""
