"""The Kubernetes manifests are valid, and match each other and the service."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from app import __version__
from app.api.access import NEEDS
from app.observability.telemetry import Telemetry
from app.settings import Settings
from tests.integration.kubernetes.kustomize import (
    ROOT,
    Manifest,
    adapter_rule,
    build,
    literals,
    read,
    the,
)
from tests.integration.processes.server import Server
from tests.patience import PATIENCE_S
from tests.unit.api.problems import examples

DEPLOYED = ("base", "overlays/single-gpu", "overlays/fleet")
# The oldest version that supports all fields in use (matchLabelKeys and unhealthyPodEvictionPolicy
# are on by default from 1.27 on), and the newest version with schemas.
KUBERNETES_VERSIONS = ("1.27", "1.37")
# Seconds that vLLM needs to stop after the last request, before the kubelet kills it.
ENGINE_ENDS_S = 15
_DOCS = ROOT.parents[1] / "docs" / "guides" / "deploy" / "kubernetes.md"
_IMAGES = sorted((ROOT.parents[1] / "docker").glob("Dockerfile*"))


def with_every_component(folder: Path, overlay: str) -> Path:
    """Copies the manifests; returns an overlay there with all optional components."""
    shutil.copytree(ROOT, folder, dirs_exist_ok=True)
    file = folder / "overlays" / overlay / "kustomization.yaml"
    text = file.read_text(encoding="utf-8")
    listed = re.findall(r"^  (?:# )?- \.\./\.\./components/(\S+)$", text, re.MULTILINE)
    assert set(listed) == {each.name for each in (ROOT / "components").iterdir()}
    file.write_text(text.replace("  # - ../../components/", "  - ../../components/"))
    return file.parent


@pytest.fixture(params=[*DEPLOYED, "every component, single-gpu", "every component, fleet"])
def manifests(request: pytest.FixtureRequest, tmp_path: Path) -> list[Manifest]:
    _, component, overlay = request.param.rpartition("every component, ")
    return build(with_every_component(tmp_path, overlay) if component else ROOT / request.param)


def validate(manifests: list[Manifest]) -> None:
    """Refuses what Kubernetes would, and an unknown field, which it would silently drop."""
    for manifest in manifests:
        # The operator's own resource is no part of Kubernetes.
        if not manifest["apiVersion"].startswith("monitoring.coreos.com/"):
            for version in KUBERNETES_VERSIONS:
                kubernetes_validate.validate(manifest, version, strict=True)


def template_of(manifests: list[Manifest]) -> dict[str, Any]:
    template: dict[str, Any] = the("Deployment", manifests)["template"]
    return template


def judge_of(manifests: list[Manifest]) -> dict[str, Any]:
    """The judge's container."""
    (container,) = template_of(manifests)["spec"]["containers"]
    assert isinstance(container, dict)
    return container


def settings_of(manifests: list[Manifest]) -> Settings:
    """Settings as the service would read them, without those from a Secret."""
    names = [each["name"] for each in judge_of(manifests)["env"] if each["name"][:6] == "SCOPE_"]
    assert {name[6:].lower() for name in names} <= set(Settings.model_fields)
    given = literals(judge_of(manifests))
    values: dict[str, Any] = {
        name[6:].lower(): value for name, value in given.items() if name[:6] == "SCOPE_"
    }
    return Settings(**values)


def test_kubernetes_accepts_every_field(manifests: list[Manifest]) -> None:
    validate(manifests)


def test_the_pod_matches_the_service(manifests: list[Manifest]) -> None:
    pod, judge = template_of(manifests)["spec"], judge_of(manifests)
    settings, deployment = settings_of(manifests), the("Deployment", manifests)
    assert settings.host == "0.0.0.0"
    ports = {each["name"]: each["containerPort"] for each in judge["ports"]}
    assert ports == {"http": settings.port, "metrics": settings.metrics_port}
    probes = {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}
    for name, path in probes.items():
        assert judge[name]["httpGet"] == {"path": path, "port": "http"}
        assert NEEDS["GET", path] == "nothing"
    # /readyz answers within a second, and a busy machine may need another.
    assert judge["readinessProbe"]["timeoutSeconds"] > 2
    start = judge["startupProbe"]
    start_s = start["periodSeconds"] * start["failureThreshold"]
    # The model is downloaded and loaded.
    assert start_s >= 15 * 60
    assert deployment["progressDeadlineSeconds"] > start_s
    sleep, lag_s = judge["lifecycle"]["preStop"]["exec"]["command"]
    assert (sleep, int(lag_s) >= 3) == ("sleep", True)
    drained_s = int(lag_s) + settings.drain_lag_s + settings.drain_s + ENGINE_ENDS_S
    assert pod["terminationGracePeriodSeconds"] >= drained_s
    # A request that was admitted is not cut off at the end.
    assert settings.drain_s >= settings.timeout_s
    assert re.fullmatch(rf"scope-judge:{re.escape(__version__)}-(cpu|gpu)", judge["image"])


def test_the_objects_match_each_other(manifests: list[Manifest]) -> None:
    template, judge = template_of(manifests), judge_of(manifests)
    labels = template["metadata"]["labels"].items()
    selectors = [
        the("Deployment", manifests)["selector"]["matchLabels"],
        the("Service", manifests)["selector"],
        the("NetworkPolicy", manifests)["podSelector"]["matchLabels"],
    ]
    kinds = {each["kind"] for each in manifests}
    if "PodDisruptionBudget" in kinds:
        selectors.append(the("PodDisruptionBudget", manifests)["selector"]["matchLabels"])
    if "PodMonitor" in kinds:
        monitor = the("PodMonitor", manifests)
        selectors.append(monitor["selector"]["matchLabels"])
        config = read(ROOT.parent / "prometheus" / "prometheus.kubernetes.yml")
        assert [each["port"] for each in monitor["podMetricsEndpoints"]] == ["metrics"]
        # The operator makes the job's name from this label of the pods.
        job = dict(labels)[monitor["jobLabel"]]
        assert job == config["scrape_configs"][0]["job_name"]
    assert all(selector and selector.items() <= labels for selector in selectors)
    # Clients do not reach the metrics.
    assert [each["targetPort"] for each in the("Service", manifests)["ports"]] == ["http"]
    policy = the("NetworkPolicy", manifests)
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
    entered = {port["port"] for rule in policy["ingress"] for port in rule["ports"]}
    assert entered == {each["name"] for each in judge["ports"]}
    assert all(rule["from"] and all(rule["from"]) for rule in policy["ingress"])
    for rule in policy["ingress"]:
        pods = [
            peer["podSelector"]["matchLabels"] for peer in rule["from"] if "podSelector" in peer
        ]
        is_prometheus = pods == [{"app.kubernetes.io/name": "prometheus"}]
        assert is_prometheus == ("metrics" in [port["port"] for port in rule["ports"]])
    assert {port["port"] for rule in policy["egress"] for port in rule["ports"]} == {53, 6379, 443}
    if "Ingress" in kinds:
        ingress = the("Ingress", manifests)
        covered = {host for each in ingress["tls"] for host in each["hosts"]}
        assert {rule["host"] for rule in ingress["rules"]} == covered
    claims = {
        each["metadata"]["name"] for each in manifests if each["kind"] == "PersistentVolumeClaim"
    }
    volumes = {each["name"]: each for each in template["spec"]["volumes"]}
    mounted = {each["mountPath"]: each["name"] for each in judge["volumeMounts"]}
    assert set(mounted.values()) == set(volumes)
    for volume in volumes.values():
        assert volume.get("persistentVolumeClaim", {}).get("claimName") in {*claims, None}
    for init in template["spec"].get("initContainers", ()):
        for name in ("SCOPE_MODEL", "SCOPE_REVISION", "HOME", "HF_HOME"):
            assert literals(init)[name] == literals(judge)[name]
    if "CronJob" in kinds:
        pod = the("CronJob", manifests)["jobTemplate"]["spec"]["template"]["spec"]
        (backup,) = pod["containers"]
        assert backup["env"] == [x for x in judge["env"] if x["name"] == "SCOPE_STORE_URL"]
        assert backup["securityContext"] == judge["securityContext"]


def test_the_autoscaler_follows_a_metric_that_there_is_before_requests_are_refused(
    manifests: list[Manifest],
) -> None:
    if "HorizontalPodAutoscaler" not in {each["kind"] for each in manifests}:
        assert the("Deployment", manifests).get("replicas", 1) == 1
        # A second pod would wait for a second GPU.
        gpus = judge_of(manifests)["resources"]["limits"].get("nvidia.com/gpu")
        assert gpus is None or the("Deployment", manifests)["strategy"] == {"type": "Recreate"}
        return
    scaler, settings = the("HorizontalPodAutoscaler", manifests), settings_of(manifests)
    (metric,) = scaler["metrics"]
    name = metric["pods"]["metric"]["name"]
    assert f"# TYPE {name} gauge\n" in Telemetry.on_own_registry().exposition()[0].decode()
    assert name == adapter_rule()["name"]["as"]
    assert 0 < float(metric["pods"]["target"]["averageValue"]) <= settings.max_pending / 2
    assert settings.replicas == scaler["maxReplicas"] > scaler["minReplicas"]
    # With replicas, every apply would undo the autoscaler's decision.
    assert "replicas" not in the("Deployment", manifests)
    assert the("PodDisruptionBudget", manifests)["maxUnavailable"] < scaler["minReplicas"]


def test_the_pod_is_restricted_and_secrets_are_only_named(manifests: list[Manifest]) -> None:
    pod, judge = template_of(manifests)["spec"], judge_of(manifests)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert judge["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    assert (pod["enableServiceLinks"], pod["automountServiceAccountToken"]) == (False, False)
    assert not pod.keys() & {"hostNetwork", "hostPID", "hostIPC"}
    assert "Secret" not in {each["kind"] for each in manifests}
    assert not literals(judge).keys() & {"SCOPE_STORE_URL", "SCOPE_OPENAI_API_KEY", "HF_TOKEN"}


def test_redis_is_the_one_of_compose_and_admits_whoever_needs_it(tmp_path: Path) -> None:
    redis = build(ROOT / "redis")
    (job,) = yaml.safe_load_all((ROOT / "restore.yaml").read_text())
    validate([*redis, job])
    (container,) = the("StatefulSet", redis)["template"]["spec"]["containers"]
    composed = yaml.safe_load((ROOT.parents[1] / "docker-compose.yml").read_text())
    theirs = composed["services"]["redis"]
    assert (container["image"], container["args"]) == (theirs["image"], theirs["command"])
    (rule,) = the("NetworkPolicy", redis)["ingress"]
    (admitted,) = rule["from"][0]["podSelector"]["matchExpressions"]
    whole = build(with_every_component(tmp_path, "fleet"))
    night = the("CronJob", whole)["jobTemplate"]["spec"]["template"]
    pods = (template_of(whole), night, job["spec"]["template"])
    assert admitted["values"] == [
        pod["metadata"]["labels"]["app.kubernetes.io/name"] for pod in pods
    ]
    # The job reads what the night has written, as the same user.
    for field in ("volumes", "securityContext"):
        assert job["spec"]["template"]["spec"][field] == night["spec"][field]


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
    base, text = build(ROOT / "base"), image.read_text(encoding="utf-8")
    user, env = template_of(base)["spec"]["securityContext"], literals(judge_of(base))
    assert f"USER {user['runAsUser']}:{user['runAsGroup']}\n" in text
    assert re.findall(r"\bHF_HOME=(\S+)", text) == [env["HF_HOME"]]
    assert re.findall(r"^EXPOSE (\d+)$", text, re.MULTILINE) == [env["SCOPE_PORT"]]


def test_the_documented_secrets_are_those_that_the_pod_reads() -> None:
    base, text = build(ROOT / "base"), _DOCS.read_text(encoding="utf-8")
    named = {
        (ref["name"], ref["key"])
        for each in judge_of(base)["env"]
        if (ref := each.get("valueFrom", {}).get("secretKeyRef"))
    }
    volumes = template_of(base)["spec"]["volumes"]
    (keys,) = (each["secret"]["secretName"] for each in volumes if "secret" in each)
    named.add((keys, Path(literals(judge_of(base))["SCOPE_API_KEYS_FILE"]).name))
    made = re.findall(r"create secret generic (\S+)[^\n]*? --from-(?:file|literal)=([\w.]+)", text)
    assert set(made) == named


def test_the_nightly_command_writes_a_backup_and_replaces_that_of_last_week(tmp_path: Path) -> None:
    whole = build(with_every_component(tmp_path / "manifests", "fleet"))
    (container,) = the("CronJob", whole)["jobTemplate"]["spec"]["template"]["spec"]["containers"]
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
    keys = [next(iter(json.loads(line))) for line in lines]
    assert keys == ["scope_judge_backup", "set", "sha256"]


def test_the_adapter_keeps_the_name_of_the_metric() -> None:
    rule = adapter_rule()
    assert re.fullmatch(rule["name"]["matches"], rule["seriesQuery"].partition("{")[0])
    assert set(rule["resources"]["overrides"]) == {"namespace", "pod"}
