"""`app-server exec`: one prompt without a person, for scripts and CI."""
