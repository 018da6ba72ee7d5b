"""`make gpu`: proves on a machine with a GPU what the CPU's tests cannot show."""
