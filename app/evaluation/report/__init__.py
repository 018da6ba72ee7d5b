"""The tables of an evaluation as Markdown and CSV, and its figures."""
