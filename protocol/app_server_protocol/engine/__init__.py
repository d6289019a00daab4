"""The engine's vocabulary: turns and items, each emitted once. It has no API's spelling; every API converts it."""
