"""Checks of the machine, the home, the configuration and what is configured, for `app-server doctor`."""
