"""scope-judge: verdicts of an LLM judge, accepted only where they are calibrated to be right."""

__version__ = "0.3.0"
