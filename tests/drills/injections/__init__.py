"""Known attacks on judges: texts that try to turn a verdict, and what they do to the demo judge."""
