"""The renderer of these tests agrees with a real kustomize, if one is installed."""

import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.kubernetes.kustomize import (
    MERGE_KEYS,
    KustomizeError,
    Manifest,
    build,
    each_list,
    identity,
)
from tests.integration.kubernetes.manifests import DEPLOYED, ROOT, with_every_component
from tests.patience import PATIENCE_S


@cache
def _kustomize() -> tuple[str, ...] | None:
    """The command of a kustomize 5 or later; older versions do not support components."""
    for command in (["kustomize", "version"], ["kubectl", "version", "--client"]):
        if shutil.which(command[0]) is None:
            continue
        said = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        version = re.search(r"(?:Kustomize Version: |^)v(\d+)\.", said.stdout, re.MULTILINE)
        if version and int(version[1]) >= 5:
            return ("kustomize", "build") if command[0] == "kustomize" else ("kubectl", "kustomize")
    return None


def _by_identity(manifests: list[Manifest]) -> dict[tuple[str, str], Manifest]:
    """Manifests by identity, with sorted lists where Kubernetes ignores the order."""

    def sort(field: str, items: list[Any]) -> None:
        if field in MERGE_KEYS:
            items.sort(key=lambda item: str(item.get(MERGE_KEYS[field], json.dumps(item))))

    manifests = json.loads(json.dumps(manifests))
    each_list(manifests, sort)
    return {identity(manifest): manifest for manifest in manifests}


@pytest.mark.parametrize("folder", DEPLOYED)
def test_a_real_kustomize_renders_the_same(folder: str) -> None:
    _compare(ROOT / folder)


@pytest.mark.parametrize("overlay", ["single-gpu", "fleet"])
def test_a_real_kustomize_renders_the_components_the_same(overlay: str, tmp_path: Path) -> None:
    _compare(with_every_component(tmp_path, overlay))


def _compare(folder: Path) -> None:
    command = _kustomize()
    if command is None:
        pytest.skip("kustomize 5 or later is not installed")
    said = subprocess.run(
        [*command, str(folder)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    assert said.stderr == ""  # kustomize warns there of deprecated fields

    theirs = list(yaml.safe_load_all(said.stdout))

    assert _by_identity(build(folder)) == _by_identity(theirs)


@pytest.mark.parametrize(
    "line",
    [
        "namePrefix: a-",
        "commonLabels: {a: b}",
        "patches: [{path: a.yaml, target: {kind: Service}}]",
        "kind: Kustomization",  # a repeated key
    ],
)
def test_the_renderer_refuses_unsupported_features(tmp_path: Path, line: str) -> None:
    text = f"kind: Kustomization\n{line}\n"
    (tmp_path / "kustomization.yaml").write_text(text, encoding="utf-8")

    with pytest.raises(KustomizeError):
        build(tmp_path)
