"""The service as its callers see it: HTTP and the command line."""
