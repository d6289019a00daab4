"""The Agent Client Protocol, version 1: the shapes of its stable part that are sent or taken here."""
