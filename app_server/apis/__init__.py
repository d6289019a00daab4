"""What clients speak: one folder an API, and beside the folders what all of them share."""
