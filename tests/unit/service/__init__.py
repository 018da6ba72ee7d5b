"""The use cases, over the scripted engine."""
