"""The command line, and what people use: one package a command."""
