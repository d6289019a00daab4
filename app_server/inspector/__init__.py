"""`app-server inspect`: passes a server's stdio through, and shows or records what passes.

Two processes. The one that the client started passes bytes and nothing else (`passthrough`, `tap`). The other, the
observer, gets a copy of every chunk through a pipe and does whatever takes time. Nothing of the server is imported
here: any server that speaks JSON-RPC over stdio, one message per line, can be inspected.
"""
