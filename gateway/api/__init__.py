"""The HTTP API: requests in, answers and problems out, and the OpenAPI document."""
