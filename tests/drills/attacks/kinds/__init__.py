"""One file a topic; each has its attacks in `ATTACKS`."""
