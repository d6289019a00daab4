"""Files of a workspace: git, patches, searches, reads and writes for clients."""
