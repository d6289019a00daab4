"""The program that the user wants to be told by."""
