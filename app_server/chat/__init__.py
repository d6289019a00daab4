"""`app-server chat`: a small reference frontend in the terminal, over the client library."""
