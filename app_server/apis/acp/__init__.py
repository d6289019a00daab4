"""The Agent Client Protocol over the engine. Whatever knows a shape or a habit of it is in this folder."""
