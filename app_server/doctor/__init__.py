"""`app-server doctor`: shows what the checks of the machine and the configuration found."""
