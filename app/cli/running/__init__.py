"""A run over the rows of files: rows in, rows out, resume, Ctrl-C."""
