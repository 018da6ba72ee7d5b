"""JSON requests: pydantic models that HTTP, files and Ray share."""
