"""One table of adapters drives every test of a port."""
