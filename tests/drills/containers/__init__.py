"""docker/ and docker-compose.yml: read in `make test`, built and run in `make containers`."""
