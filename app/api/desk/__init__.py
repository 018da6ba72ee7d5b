"""The desk: the page at /desk where people try a judge and look after its calibration sets."""
