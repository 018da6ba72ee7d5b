"""Fuzzing of every input: requests from the OpenAPI document, and bytes that it rules out."""
