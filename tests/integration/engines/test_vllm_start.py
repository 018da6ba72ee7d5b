"""A start of real vLLM needs no third process."""

import pytest

from app.judges.engines.vllm_build import is_cpu_build
from tests.integration.processes.server import Server

pytestmark = pytest.mark.vllm


@pytest.mark.skipif(not is_cpu_build(), reason="on a GPU vLLM forks its process")
def test_a_start_inspects_no_model_in_a_process_of_its_own(demo_server: Server) -> None:
    # vLLM writes here what such a process found out about the model's class.
    cache = demo_server.log.with_name("cache")
    assert not (cache / "modelinfos").exists()
