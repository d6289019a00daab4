"""The conversation API over the engine. Whatever knows a model or a habit of it is in this folder."""
