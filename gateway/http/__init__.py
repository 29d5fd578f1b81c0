"""Sockets and uvicorn: the server, its protocol with the hot path, the FastAPI app, and calls of the other site."""
