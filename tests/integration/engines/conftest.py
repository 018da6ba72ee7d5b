"""A vLLM server that tests of several files ask."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.engines.vllm_server import vllm_server

# vLLM's own server, which also serves decisions of the demo judge.
_PROGRAM = ("-P", str(Path(__file__).with_name("systemone_server.py")))


@pytest.fixture(scope="package")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a server with the demo judge."""
    with vllm_server(tmp_path_factory.mktemp("vllm"), _PROGRAM) as url:
        yield url
