"""The APIs for clients: one folder per API, and the modules that all APIs share."""
