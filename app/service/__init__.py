"""The use cases: judging, calibration, admission, readiness; they know ports and no adapter."""
