"""The events of the engine, one class each; the docstring of each states the order in which it is emitted."""
