"""The engine's language: turns and items, each emitted once. No API's spelling; every API renders these."""
