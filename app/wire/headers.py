"""Names of HTTP headers of the answers."""

# Seconds since the store last confirmed the oldest calibration of an answer; absent while it does.
AGE_HEADER = "Scope-Calibration-Age"
