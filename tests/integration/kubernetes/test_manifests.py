"""The Kubernetes manifests are valid and match the service, and the checks find faults."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.integration.kubernetes.kustomize import build, read
from tests.integration.kubernetes.manifests import (
    DEPLOYED,
    ROOT,
    Deployed,
    adapter_rule,
    rule_faults,
    schema_faults,
    with_every_component,
)
from tests.integration.processes.server import Server
from tests.patience import PATIENCE_S
from tests.unit.api.problems import examples

_DOCS = ROOT.parents[1] / "docs" / "guides" / "deploy" / "kubernetes.md"
_IMAGES = sorted((ROOT.parents[1] / "docker").glob("Dockerfile*"))


@pytest.mark.parametrize("folder", [*DEPLOYED, "redis"])
def test_kubernetes_accepts_every_field(folder: str) -> None:
    assert list(schema_faults(build(ROOT / folder))) == []


def test_redis_is_the_one_of_compose_and_admits_whoever_needs_it(tmp_path: Path) -> None:
    it = Deployed(build(ROOT / "redis"))
    (container,) = it.spec("StatefulSet")["template"]["spec"]["containers"]
    composed = yaml.safe_load((ROOT.parents[1] / "docker-compose.yml").read_text())
    redis = composed["services"]["redis"]
    assert (container["image"], container["args"]) == (redis["image"], redis["command"])
    (rule,) = it.spec("NetworkPolicy")["ingress"]
    (admitted,) = rule["from"][0]["podSelector"]["matchExpressions"]
    (job,) = yaml.safe_load_all((ROOT / "restore.yaml").read_text())
    whole = Deployed(build(with_every_component(tmp_path, "fleet")))
    night = whole.spec("CronJob")["jobTemplate"]["spec"]["template"]
    pods = (whole.template, night, job["spec"]["template"])
    assert admitted["values"] == [
        pod["metadata"]["labels"]["app.kubernetes.io/name"] for pod in pods
    ]
    assert list(schema_faults([job])) == []
    # The job reads what the night has written, as the same user.
    assert job["spec"]["template"]["spec"]["volumes"] == night["spec"]["volumes"]
    assert job["spec"]["template"]["spec"]["securityContext"] == night["spec"]["securityContext"]


@pytest.mark.parametrize("folder", DEPLOYED)
def test_the_objects_match_each_other_and_the_service(folder: str) -> None:
    assert rule_faults(build(ROOT / folder)) == []


def test_the_overlays_fit_their_size() -> None:
    single, fleet = (Deployed(build(ROOT / folder)) for folder in DEPLOYED[1:])

    assert single.spec("Deployment")["replicas"] == 1
    assert single.spec("Deployment")["strategy"] == {"type": "Recreate"}
    assert fleet.autoscaled
    assert fleet.of_kind("PodDisruptionBudget")
    for overlay in (single, fleet):
        assert {each["metadata"]["namespace"] for each in overlay.manifests} == {"scope-judge"}
        assert overlay.container["resources"]["limits"]["nvidia.com/gpu"] == 1


@pytest.mark.parametrize("overlay", ["single-gpu", "fleet"])
def test_an_overlay_can_take_every_component(overlay: str, tmp_path: Path) -> None:
    folder = with_every_component(tmp_path, overlay)

    manifests = build(folder)

    it = Deployed(manifests)
    assert [*schema_faults(manifests), *rule_faults(manifests)] == []
    assert (it.gpus, it.settings.tensor_parallel, it.settings.data_parallel) == (8, 2, "auto")
    assert it.pod["runtimeClassName"] == "nvidia"
    assert it.of_kind("Ingress")
    assert it.of_kind("PodMonitor")
    assert it.of_kind("CronJob")
    assert {each["metadata"]["namespace"] for each in manifests} == {"scope-judge"}
    shm = tmp_path / "components" / "eight-gpus" / "deployment.yaml"
    shm.write_text(shm.read_text(encoding="utf-8").replace("8Gi\n", "1Gi\n"))
    faults = rule_faults(build(folder))
    assert "a_judge_on_gpus_has_what_vllm_needs: 1Gi of shared memory for 8 GPUs" in faults


def test_every_file_is_deployed() -> None:
    named = {ROOT / "prometheus-adapter.yaml", ROOT / "restore.yaml"}
    for path in ROOT.rglob("kustomization.yaml"):
        kustomization = read(path)
        named.add(path)
        named |= {path.parent / each for each in kustomization.get("resources", ())}
        named |= {path.parent / each["path"] for each in kustomization.get("patches", ())}

    assert {path for path in ROOT.rglob("*") if path.is_file()} <= named


@pytest.mark.parametrize("image", _IMAGES, ids=lambda path: path.name)
def test_the_pod_runs_as_the_image_does(image: Path) -> None:
    it, text = Deployed(build(ROOT / "base")), image.read_text(encoding="utf-8")
    uid, gid = it.pod["securityContext"]["runAsUser"], it.pod["securityContext"]["runAsGroup"]

    assert f"USER {uid}:{gid}\n" in text
    assert re.findall(r"\bHF_HOME=(\S+)", text) == [it.env["HF_HOME"]]
    assert re.findall(r"^EXPOSE (\d+)$", text, re.MULTILINE) == [it.env["SCOPE_PORT"]]


def test_the_documented_secrets_are_those_that_the_pod_reads() -> None:
    it, text = Deployed(build(ROOT / "base")), _DOCS.read_text(encoding="utf-8")
    named = {
        (ref["name"], ref["key"])
        for each in it.container["env"]
        if (ref := each.get("valueFrom", {}).get("secretKeyRef"))
    }
    (keys,) = (each["secret"]["secretName"] for each in it.pod["volumes"] if "secret" in each)
    named.add((keys, Path(it.env["SCOPE_API_KEYS_FILE"]).name))

    made = re.findall(r"create secret generic (\S+)[^\n]*? --from-(?:file|literal)=([\w.]+)", text)

    assert set(made) == named


def test_the_nightly_command_writes_a_backup_and_replaces_that_of_last_week(tmp_path: Path) -> None:
    it = Deployed(build(with_every_component(tmp_path / "manifests", "fleet")))
    (container,) = it.spec("CronJob")["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    *shell, line = container["command"]
    backups = tmp_path / "backups"
    backups.mkdir()
    store = {"SCOPE_STORE_URL": f"sqlite:///{tmp_path}/store.db"}
    with Server(tmp_path, {"SCOPE_ENGINE": "scripted", **store}) as server:
        answer = server.client.post("/calibrate", json={"examples": examples(3)})
        assert answer.status_code == 200
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        for _ in range(2):
            subprocess.run(
                [*shell, line.replace("/backups", str(backups))],
                env={**os.environ, **store, "PATH": path},
                check=True,
                timeout=PATIENCE_S,
            )

    (file,) = backups.iterdir()
    assert re.fullmatch(r"scope-judge-(Mon|Tue|Wed|Thu|Fri|Sat|Sun)\.jsonl", file.name)
    lines = file.read_text(encoding="utf-8").splitlines()
    assert [next(iter(json.loads(line))) for line in lines] == [
        "scope_judge_backup",
        "set",
        "sha256",
    ]


def test_the_adapter_keeps_the_name_of_the_metric() -> None:
    rule = adapter_rule()

    assert re.fullmatch(rule["name"]["matches"], rule["seriesQuery"].partition("{")[0])
    assert set(rule["resources"]["overrides"]) == {"namespace", "pod"}
