"""Patches: parsed, planned as a whole, judged, written all or nothing, shown as diffs."""
