"""Known attacks on judges: texts that try to change a verdict, and their effect on a judge."""
