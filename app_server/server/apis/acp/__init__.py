"""The Agent Client Protocol over the engine. All code that knows a shape or a habit of this protocol is
in this folder.
"""
