"""One file for each topic; its attacks are in its `ATTACKS`."""
