"""What runs in the launcher's process and its children: the standard library and itself only, as `python -I -S`."""
