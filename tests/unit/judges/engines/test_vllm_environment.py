"""The environment of vLLM."""

import os

import pytest

from app.judges.engines.vllm_start import set_environment


@pytest.mark.parametrize(("length", "folder"), [(70, None), (71, "/tmp")])
def test_sockets_have_a_short_path_and_stay_in_the_temporary_folder_if_they_fit(
    length: int, folder: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", {})
    monkeypatch.setattr("tempfile.tempdir", "/" + "d" * (length - 1))
    set_environment()
    assert os.environ.get("VLLM_RPC_BASE_PATH") == folder


def test_a_folder_for_sockets_that_the_user_has_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"VLLM_RPC_BASE_PATH": "/run/judge"})
    monkeypatch.setattr("tempfile.tempdir", "/" + "d" * 100)
    set_environment()
    assert os.environ["VLLM_RPC_BASE_PATH"] == "/run/judge"
