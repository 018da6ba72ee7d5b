"""Whatever comes in: requests that the document describes, and bytes that nothing describes."""
