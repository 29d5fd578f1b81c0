"""Requests by the OpenAPI document, drawn by Schemathesis, to a real small pair on virtual time, as every kind of caller."""
