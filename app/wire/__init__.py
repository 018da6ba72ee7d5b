"""JSON in and out: pydantic models that HTTP, files and Ray share."""
