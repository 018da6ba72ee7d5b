"""docker/ and docker-compose.yml: checked in `make test`, built and run in `make containers`."""
