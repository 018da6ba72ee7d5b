"""Past one machine: the service on Ray Serve, and bulk judging with Ray Data."""
