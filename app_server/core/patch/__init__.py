"""Patches: parse, plan as a whole, assess, write all or nothing, render as diffs."""
