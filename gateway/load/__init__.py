"""`twinlog load`: a file or a real table, streamed into the pair through the client."""
