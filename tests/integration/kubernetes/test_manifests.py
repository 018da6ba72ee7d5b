"""The Kubernetes manifests are valid and match the service, and the checks find faults."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.integration.kubernetes.kustomize import build, read
from tests.integration.kubernetes.manifests import (
    DEPLOYED,
    KUBERNETES_VERSIONS,
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


@pytest.mark.parametrize("folder", DEPLOYED)
def test_kubernetes_accepts_every_field(folder: str) -> None:
    assert list(schema_faults(build(ROOT / folder))) == []


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
    assert (it.gpus, it.settings.tensor_parallel) == (2, 2)
    assert it.pod["runtimeClassName"] == "nvidia"
    assert it.of_kind("Ingress")
    assert it.of_kind("PodMonitor")
    assert it.of_kind("CronJob")
    assert {each["metadata"]["namespace"] for each in manifests} == {"scope-judge"}
    shm = tmp_path / "components" / "two-gpus" / "deployment.yaml"
    shm.write_text(shm.read_text(encoding="utf-8").replace("8Gi\n", "1Gi\n"))
    faults = rule_faults(build(folder))
    assert "a_judge_on_gpus_has_what_vllm_needs: 1Gi of shared memory for 2 GPUs" in faults


def test_every_file_is_deployed() -> None:
    named = {ROOT / "prometheus-adapter.yaml"}
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


class Break(NamedTuple):
    """One way to break a manifest, and a part of the reported fault."""

    file: str
    old: str
    new: str
    fault: str


_READY = "timeoutSeconds: {}\n            failureThreshold: 2"
_POD, _SERVICE, _NETWORK = "base/deployment.yaml", "base/service.yaml", "base/networkpolicy.yaml"
_GPU, _FLEET = "components/gpu/deployment.yaml", "overlays/fleet/deployment.yaml"
_INGRESS = "components/ingress/ingress.yaml"
_BACKUP = "components/backup/cronjob.yaml"
_MONITOR = "components/pod-monitor/podmonitor.yaml"
_HPA, _PDB = "overlays/fleet/autoscaler.yaml", "overlays/fleet/disruptions.yaml"

_BREAKS = (
    Break(_POD, "failureThreshold: 360", "failureTreshold: 360", "'failureTreshold' was unexp"),
    Break(_POD, "periodSeconds: 10", "periodSeconds: ten", "'ten' is not of type 'integer'"),
    Break(_POD, 'value: "8000"', "value: 8000", "8000 is not of type 'string'"),
    Break(_POD, "path: /readyz", "path: /ready", "no route /ready answers"),
    Break(_POD, "path: /readyz", "path: /info", "no route /info answers without a key"),
    Break(_POD, "path: /healthz", "path: /readyz", "livenessProbe: asks /readyz"),
    Break(_POD, "port: http\n", "port: https\n", "there is no port https"),
    Break(_POD, _READY.format(5), _READY.format(1), "times out before /readyz"),
    Break(_POD, "failureThreshold: 360", "failureThreshold: 6", "a start has 30 s"),
    Break(_POD, "DeadlineSeconds: 3600", "DeadlineSeconds: 600", "counts as failed"),
    Break(_POD, "PeriodSeconds: 160", "PeriodSeconds: 30", "killed after 30 s"),
    Break(_POD, 'command: ["sleep", "5"]', 'command: ["true"]', "preStop: does not wait"),
    Break(_POD, 'value: "120"', 'value: "30"', "may be cut off"),
    Break(_POD, "SCOPE_METRICS_PORT", "SCOPE_METRIC_PORT", "no setting SCOPE_METRIC_PORT"),
    Break(_POD, 'value: "9464"', 'value: "many"', "metrics_port"),
    Break(_POD, 'io/port: "9464"', 'io/port: "8000"', "Prometheus scrapes another port"),
    Break(_POD, "containerPort: 9464", "containerPort: 9090", "the container names"),
    Break(_POD, "SCOPE_DRAIN_LAG_S\n              value: \"5\"",
          "SCOPE_METRICS\n              value: open", "clients read /metrics without a key"),
    Break(_POD, "HF_TOKEN\n", "HF_TOKEN\n              value: hf_x\n", "HF_TOKEN has a literal"),
    Break(_POD, "readOnly: true\n", "readOnly: true\n              subPath: k\n", "a changed key"),
    Break(_POD, "enableServiceLinks: false", "hostNetwork: false", "enableServiceLinks"),
    Break(_POD, "runAsNonRoot: true", "runAsNonRoot: false", "runAsNonRoot"),
    Break(_POD, "mountPath: /cache", "mountPath: /cached", "/cache cannot be written"),
    Break(_POD, "claimName: scope-judge-weights", "claimName: other", "there is no claim other"),
    Break(_SERVICE, "  selector:\n    app.", "  selector:\n    ", "Service: {'kubernetes.io/name'"),
    Break(_SERVICE, "targetPort: http", "targetPort: https", "no port https"),
    Break(_SERVICE, "targetPort: http", "targetPort: metrics", "leads clients to the metrics"),
    Break(_NETWORK, "    - from:\n", "    - from:\n        - {}\n", "lets everybody in"),
    Break(_NETWORK, "port: 53", "port: 54", "lets out to"),
    Break(_NETWORK, "port: metrics", "port: http", "lets in to the ports"),
    Break(_NETWORK, "app.kubernetes.io/name: prometheus", "app: prometheus", "Prometheus alone"),
    Break(_INGRESS, "    - host: judge", "    - host: other", "there is no TLS for other"),
    Break(_INGRESS, "name: http", "name: metrics", "Ingress: there is no"),
    Break(_INGRESS, "pathType: Prefix", "pathTyp: Prefix", "'pathType' is a required"),
    Break(_INGRESS, "body-size: 2m", "body-size: 1m", "refuses bodies that the service accepts"),
    Break(_INGRESS, '"130"', '"60"', "gives up before the service does"),
    Break(_BACKUP, "scope-judge backup", "scope-judge back", "there is no command"),
    Break(_BACKUP, "name: scope-judge-store", "name: other", "does not back up the judge's store"),
    Break(_BACKUP, "name: scope-judge-backup\n        spec", "name: scope-judge\n        spec",
          "the Service sends requests"),
    Break(_BACKUP, "/backups/scope", "/tmp/scope", "/tmp is lost with the pod"),
    Break(_BACKUP, "claimName: scope-judge-backups", "claimName: other", "lost with the pod"),
    Break(_BACKUP, "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false",
          "CronJob: has another securityContext"),
    Break(_MONITOR, "- port: metrics", "- port: http", "scrapes the port http"),
    Break(_MONITOR, "path: /metrics", "path: /metric", "there is no route /metric"),
    Break(_MONITOR, "interval: 15s", "interval: 60s", "has another interval"),
    Break(_MONITOR, "jobLabel: app.kubernetes.io/name", "jobLabel: app", "by another name"),
    Break(_MONITOR, "__meta_kubernetes_pod_name", "__meta_kubernetes_pod_ip", "another name"),
    Break(_MONITOR, "matchLabels:\n      app", "matchLabels:\n      ap", "selects none"),
    Break(_GPU, "nvidia.com/gpu: 1", "nvidia.com/gpu: 2", "2 GPUs for a judge that uses 1"),
    Break(_GPU, 'cpu: "4"', 'cpu: "2"', "fewer than 3 cores for 1 GPUs"),
    Break(_GPU, "emptyDir: null\n          ", "", "compiled kernels are lost"),
    Break(_GPU, '"fetch"]', '"serve"]', "does not fetch"),
    Break(_GPU, "value: /weights", "value: /tmp", "has another HF_HOME"),
    Break(_GPU, "# As below.\n            - name: SCOPE_MODEL", "- name: X", "SCOPE_MODEL"),
    Break("overlays/fleet/cache.yaml", "ReadWriteMany", "ReadWriteOnce", "cannot share"),
    Break("overlays/fleet/weights.yaml", "ReadWriteMany", "ReadWriteOnce", "cannot share"),
    Break(_FLEET, "maxUnavailable: 0", "maxUnavailable: 1", "before a new one is ready"),
    Break(_FLEET, "minReadySeconds: 10", "replicas: 3", "every apply would undo"),
    Break(_FLEET, 'value: "8"', 'value: "4"', "SCOPE_REPLICAS is 4: 8 may run"),
    Break(_PDB, "maxUnavailable: 1", "minAvailable: 2", "no node can be drained"),
    Break(_PDB, "maxUnavailable: 1", "maxUnavailable: 2", "all may go at once"),
    Break(_HPA, "name: scope_pending_comparisons", "name: scope_pending", "no gauge scope_pending"),
    Break(_HPA, 'averageValue: "60"', 'averageValue: "4096"', "not reached before 429"),
    Break(_HPA, "name: scope-judge\n  min", "name: judge\n  min", "HorizontalPodAutoscaler: there"),
    Break(_HPA, "periodSeconds: 180", "periodSeconds: 60", "before the last one has drained"),
)  # fmt: skip


@pytest.mark.parametrize("how", _BREAKS, ids=lambda how: how.new.split("\n")[0].strip())
def test_the_checks_find_a_broken_manifest(tmp_path: Path, how: Break) -> None:
    broken = shutil.copytree(ROOT, tmp_path / "kubernetes")
    text = (broken / how.file).read_text(encoding="utf-8")
    assert how.old in text
    (broken / how.file).write_text(text.replace(how.old, how.new), encoding="utf-8")
    before = shutil.copytree(ROOT, tmp_path / "intact")
    for root in (before, broken):
        # The components that change the pod have a test of their own.
        file = root / "overlays" / "fleet" / "kustomization.yaml"
        taken = re.sub(r"# (- \S+/(ingress|pod-monitor|backup))\n", r"\1\n", file.read_text())
        file.write_text(taken)
    intact = build(before / "overlays" / "fleet")

    manifests = build(broken / "overlays" / "fleet")

    changed = [each for each in manifests if each not in intact]
    faults = [*schema_faults(changed, KUBERNETES_VERSIONS[-1:]), *rule_faults(manifests)]
    assert any(how.fault in fault for fault in faults), faults
