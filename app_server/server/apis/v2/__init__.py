"""The thread API over the engine. All code that knows a shape or a habit of this API is in this folder."""
