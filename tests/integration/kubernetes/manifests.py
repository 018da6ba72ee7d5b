"""Checks of the Kubernetes manifests: schemas, and rules about the objects together.

The schemas check whether Kubernetes accepts an object. The rules check whether the objects match
each other and the service: selectors, ports, routes, settings, timeouts. A rule yields a sentence
for each fault.
"""

import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import kubernetes_validate
from pydantic import ValidationError

from app import __version__
from app.api.auth.needs import NEEDS
from app.cli import COMMANDS
from app.observability.telemetry import Telemetry
from app.settings import Settings
from tests.integration.kubernetes.kustomize import Manifest, identity, read

ROOT = Path(__file__).parents[3] / "deploy" / "kubernetes"
PROMETHEUS = ROOT.parent / "prometheus"
DEPLOYED = ("base", "overlays/single-gpu", "overlays/fleet")
# The oldest version that supports all fields in use (matchLabelKeys and unhealthyPodEvictionPolicy
# are on by default from 1.27 on), and the newest version with schemas.
KUBERNETES_VERSIONS = ("1.27", "1.37")
# Seconds that vLLM needs to stop after the last request, before the kubelet kills it.
ENGINE_ENDS_S = 15
# Shortest time of a first start, in which the model is downloaded and loaded.
LEAST_START_S = 15 * 60
# Time to fetch the weights of 7B parameters: 15 GB at 10 MB/s.
FETCH_S = 25 * 60
# Shared memory in which the workers of one judge exchange tensors.
_SHARED_GIB = 8
_WRITABLE = ("/tmp", "/dev/shm", "/cache", "/weights")
_SECRET_VARIABLES = ("SCOPE_STORE_URL", "SCOPE_OPENAI_API_KEY", "HF_TOKEN")


@dataclass(frozen=True)
class Deployed:
    """The objects of one kustomization, with shortcuts to the parts that the rules check."""

    manifests: list[Manifest]

    def of_kind(self, kind: str) -> list[Manifest]:
        return [each for each in self.manifests if each["kind"] == kind]

    def spec(self, kind: str) -> dict[str, Any]:
        """Spec of the only object of a kind."""
        (manifest,) = self.of_kind(kind)
        spec: dict[str, Any] = manifest["spec"]
        return spec

    @cached_property
    def template(self) -> dict[str, Any]:
        template: dict[str, Any] = self.spec("Deployment")["template"]
        return template

    @cached_property
    def pod(self) -> dict[str, Any]:
        pod: dict[str, Any] = self.template["spec"]
        return pod

    @cached_property
    def container(self) -> dict[str, Any]:
        (container,) = self.pod["containers"]
        assert isinstance(container, dict)
        return container

    @cached_property
    def env(self) -> dict[str, str]:
        """Environment variables with a literal value."""
        return literals(self.container)

    @cached_property
    def gpus(self) -> int:
        """Number of GPUs of a pod."""
        return int(self.container["resources"]["limits"].get("nvidia.com/gpu", 0))

    @cached_property
    def volumes(self) -> dict[str, dict[str, Any]]:
        """Volumes of the pod by name."""
        return {each["name"]: each for each in self.pod["volumes"]}

    @cached_property
    def settings(self) -> Settings:
        """Settings as the service would read them, without those from a Secret."""
        given: dict[str, Any] = {
            name.removeprefix("SCOPE_").lower(): value
            for name, value in self.env.items()
            if name.startswith("SCOPE_")
        }
        return Settings(**given)

    @cached_property
    def autoscaler(self) -> dict[str, Any] | None:
        return self.spec("HorizontalPodAutoscaler") if self.autoscaled else None

    @property
    def autoscaled(self) -> bool:
        return bool(self.of_kind("HorizontalPodAutoscaler"))

    def selects(self, selector: dict[str, str]) -> bool:
        """Whether the selector matches the judge's pods."""
        return bool(selector) and selector.items() <= self.template["metadata"]["labels"].items()


def literals(container: Manifest) -> dict[str, str]:
    """Environment variables of a container with a literal value."""
    return {each["name"]: each["value"] for each in container["env"] if "value" in each}


def schema_faults(
    manifests: Iterable[Manifest], versions: Sequence[str] = KUBERNETES_VERSIONS
) -> Iterator[str]:
    """Yields schema faults; an unknown field, which Kubernetes would silently drop, is a fault."""
    for manifest in manifests:
        if manifest["apiVersion"].startswith("monitoring.coreos.com/"):
            # Not a part of Kubernetes: the operator's own resource. It was validated by hand.
            continue
        for version in versions:
            try:
                kubernetes_validate.validate(manifest, version, strict=True)
            except kubernetes_validate.ValidationError as exc:
                where = ".".join(map(str, exc.path))
                yield f"{'/'.join(identity(manifest))} {where}: {exc.message} ({version})"


def the_settings_exist(it: Deployed) -> Iterator[str]:
    known = {f"SCOPE_{name.upper()}" for name in Settings.model_fields}
    given = [each["name"] for each in it.container["env"]]
    for name in given:
        if name.startswith("SCOPE_") and name not in known:
            yield f"there is no setting {name}"
        if given.count(name) > 1:
            yield f"{name} is set twice"
    try:
        settings = it.settings
    except ValidationError as exc:
        yield f"settings: {exc}"
        return
    if settings.host != "0.0.0.0":
        yield "the service cannot be reached from outside the pod"


def the_probes_exist(it: Deployed) -> Iterator[str]:
    ports = {each["name"] for each in it.container["ports"]}
    wanted = {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}
    for name, path in wanted.items():
        asked = it.container[name]["httpGet"]
        if NEEDS.get(("GET", asked["path"])) != "nothing":
            yield f"{name}: no route {asked['path']} answers without a key"
        if asked["path"] != path:
            yield f"{name}: asks {asked['path']} and not {path}"
        if asked["port"] not in ports:
            yield f"{name}: there is no port {asked['port']}"
    # It answers within a second, and a busy machine may need another.
    if it.container["readinessProbe"]["timeoutSeconds"] <= 2:
        yield "readinessProbe: times out before /readyz has answered"


def the_start_is_long_enough(it: Deployed) -> Iterator[str]:
    probe = it.container["startupProbe"]
    start_s = probe["periodSeconds"] * probe["failureThreshold"]
    if start_s < LEAST_START_S:
        yield f"a start has {start_s} s, in which the weights are downloaded and loaded"
    fetch_s = FETCH_S if "initContainers" in it.pod else 0
    if it.spec("Deployment")["progressDeadlineSeconds"] <= start_s + fetch_s:
        yield "a rollout counts as failed while its first pod may still be loading"


def the_drain_is_long_enough(it: Deployed) -> Iterator[str]:
    command = it.container["lifecycle"]["preStop"]["exec"]["command"]
    if command[0] != "sleep":
        yield "preStop: does not wait"
        return
    needed = int(command[1]) + it.settings.drain_lag_s + it.settings.drain_s + ENGINE_ENDS_S
    if it.pod["terminationGracePeriodSeconds"] < needed:
        yield f"killed after {it.pod['terminationGracePeriodSeconds']} s, drained after {needed}"
    if it.settings.drain_s < it.settings.timeout_s:
        yield "a request that was admitted may be cut off at the end"
    if int(command[1]) < 3:
        yield "preStop: SIGTERM may come before the endpoints are gone"


def the_selectors_select(it: Deployed) -> Iterator[str]:
    deployment = it.spec("Deployment")
    found = [("Deployment", deployment["selector"]["matchLabels"])]
    found += [("Service", it.spec("Service")["selector"])]
    found += [
        (kind, it.spec(kind)[field]["matchLabels"])
        for kind, field in (("PodDisruptionBudget", "selector"), ("NetworkPolicy", "podSelector"))
        if it.of_kind(kind)
    ]
    found += [
        ("topologySpreadConstraints", each["labelSelector"]["matchLabels"])
        for each in it.pod.get("topologySpreadConstraints", ())
    ]
    for what, selector in found:
        if not it.selects(selector):
            yield f"{what}: {selector} selects none of the pods"
    if it.autoscaler is not None:
        target = it.autoscaler["scaleTargetRef"]
        (name,) = (each["metadata"]["name"] for each in it.of_kind("Deployment"))
        if (target["kind"], target["name"]) != ("Deployment", name):
            yield f"HorizontalPodAutoscaler: there is no {target}"


def the_ports_agree(it: Deployed) -> Iterator[str]:
    ports = {each["name"]: each["containerPort"] for each in it.container["ports"]}
    listening = {"http": it.settings.port, "metrics": it.settings.metrics_port}
    if ports != listening:
        yield f"the service listens on {listening}, the container names {ports}"
    for port in it.spec("Service")["ports"]:
        if port["targetPort"] not in ports:
            yield f"Service: the container has no port {port['targetPort']}"
        if port["targetPort"] == "metrics":
            yield "Service: leads clients to the metrics"
    notes = it.template["metadata"]["annotations"]
    if notes["prometheus.io/port"] != str(it.settings.metrics_port):
        yield "Prometheus scrapes another port"
    if ("GET", notes["prometheus.io/path"]) not in NEEDS:
        yield "Prometheus scrapes a route that does not exist"
    if it.settings.metrics == "open":
        yield "clients read /metrics without a key"


def the_network_is_closed_but_for_what_is_needed(it: Deployed) -> Iterator[str]:
    policy = it.spec("NetworkPolicy")
    if set(policy["policyTypes"]) != {"Ingress", "Egress"}:
        yield "NetworkPolicy: leaves a direction open"
    entered = [port["port"] for rule in policy["ingress"] for port in rule["ports"]]
    if sorted(entered) != sorted(each["name"] for each in it.container["ports"]):
        yield f"NetworkPolicy: lets in to the ports {entered}"
    for rule in policy["ingress"]:
        if not rule.get("from") or not all(rule["from"]):
            yield "NetworkPolicy: lets everybody in"
        pods = [
            each.get("podSelector", {}).get("matchLabels", {}).get("app.kubernetes.io/name")
            for each in rule["from"]
        ]
        to_metrics = "metrics" in [each["port"] for each in rule["ports"]]
        if to_metrics != (pods == ["prometheus"]):
            yield "NetworkPolicy: Prometheus alone must reach the metrics, and nothing else"
    out = {
        (port["protocol"], port["port"])
        for rule in policy["egress"]
        if all(rule["to"])
        for port in rule["ports"]
    }
    if out != {("UDP", 53), ("TCP", 53), ("TCP", 6379), ("TCP", 443)}:
        yield f"NetworkPolicy: lets out to {sorted(out)}"


def the_ingress_leads_to_the_service_with_tls(it: Deployed) -> Iterator[str]:
    if not it.of_kind("Ingress"):
        return
    (ingress,) = it.of_kind("Ingress")
    service = {each["name"] for each in it.spec("Service")["ports"]}
    (name,) = (each["metadata"]["name"] for each in it.of_kind("Service"))
    covered = {host for each in ingress["spec"].get("tls", ()) for host in each["hosts"]}
    for rule in ingress["spec"]["rules"]:
        if rule["host"] not in covered:
            yield f"Ingress: there is no TLS for {rule['host']}"
        for path in rule["http"]["paths"]:
            backend = path["backend"]["service"]
            if backend["name"] != name or backend["port"]["name"] not in service:
                yield f"Ingress: there is no {backend}"
    limits = {key.rpartition("/")[2]: value for key, value in _notes(ingress).items()}
    if int(limits["proxy-body-size"].removesuffix("m")) * 2**20 < it.settings.max_body_bytes:
        yield "Ingress: refuses bodies that the service accepts"
    if int(limits["proxy-read-timeout"]) <= it.settings.timeout_s:
        yield "Ingress: gives up before the service does"


def _notes(manifest: Manifest) -> dict[str, str]:
    notes: dict[str, str] = manifest["metadata"]["annotations"]
    return notes


def the_operator_scrapes_as_our_own_configuration_does(it: Deployed) -> Iterator[str]:
    if not it.of_kind("PodMonitor"):
        return
    monitor = it.spec("PodMonitor")
    ports = {each["name"] for each in it.container["ports"]}
    (endpoint,) = monitor["podMetricsEndpoints"]
    config = read(PROMETHEUS / "prometheus.kubernetes.yml")
    (job,) = config["scrape_configs"]
    if not it.selects(monitor["selector"]["matchLabels"]):
        yield "PodMonitor: selects none of the pods"
    if endpoint["port"] != "metrics" or endpoint["port"] not in ports:
        yield f"PodMonitor: scrapes the port {endpoint['port']}"
    if ("GET", endpoint["path"]) not in NEEDS:
        yield f"PodMonitor: there is no route {endpoint['path']}"
    if endpoint["interval"] != config["global"]["scrape_interval"]:
        yield "PodMonitor: has another interval"
    # The operator makes the job's name from this label of the pods.
    if it.template["metadata"]["labels"].get(monitor["jobLabel"]) != job["job_name"]:
        yield "PodMonitor: the alerts know the job by another name"
    instance = [
        (each["source_labels"], each["target_label"])
        for each in job["relabel_configs"]
        if each.get("target_label") == "instance"
    ]
    theirs = [(each["sourceLabels"], each["targetLabel"]) for each in endpoint["relabelings"]]
    if theirs != instance:
        yield "PodMonitor: gives instances another name"


def the_backup_runs_as_the_judge_does(it: Deployed) -> Iterator[str]:
    if not it.of_kind("CronJob"):
        return
    template = it.spec("CronJob")["jobTemplate"]["spec"]["template"]
    pod = template["spec"]
    (container,) = pod["containers"]
    line = re.fullmatch(
        r'exec scope-judge (\S+) --overwrite "(/\w+)/[^"]+"', container["command"][-1]
    )
    if line is None or line[1] not in COMMANDS:
        yield f"CronJob: there is no command {container['command']}"
        return
    store = [each for each in it.container["env"] if each["name"] == "SCOPE_STORE_URL"]
    if container["env"] != store:
        yield "CronJob: does not back up the judge's store"
    for field in ("securityContext", "image", "imagePullPolicy"):
        if container[field] != it.container[field]:
            yield f"CronJob: has another {field} than the judge"
    for field in ("securityContext", "enableServiceLinks", "serviceAccountName"):
        if pod[field] != it.pod[field]:
            yield f"CronJob: has another {field} than the judge"
    if it.spec("Service")["selector"].items() <= template["metadata"]["labels"].items():
        yield "CronJob: the Service sends requests to its pods"
    claims = {each["metadata"]["name"] for each in it.of_kind("PersistentVolumeClaim")}
    volumes = {
        each["name"]: each["persistentVolumeClaim"]["claimName"]
        for each in pod["volumes"]
        if "persistentVolumeClaim" in each
    }
    kept = {each["mountPath"]: volumes.get(each["name"]) for each in container["volumeMounts"]}
    if kept.get(line[2]) not in claims:
        yield f"CronJob: {line[2]} is lost with the pod"


def a_disruption_leaves_replicas(it: Deployed) -> Iterator[str]:
    if it.autoscaler is None:
        if it.of_kind("PodDisruptionBudget"):
            yield "PodDisruptionBudget: with one replica it forbids to drain the node"
        return
    least, budget = it.autoscaler["minReplicas"], it.spec("PodDisruptionBudget")
    left = budget["minAvailable"] if "minAvailable" in budget else least - budget["maxUnavailable"]
    if left < 1:
        yield "PodDisruptionBudget: all may go at once"
    if left >= least:
        yield f"PodDisruptionBudget: {left} of {least} must stay, so that no node can be drained"


def the_autoscaler_follows_a_metric_that_there_is(it: Deployed) -> Iterator[str]:
    if it.autoscaler is None:
        return
    (metric,) = it.autoscaler["metrics"]
    name = metric["pods"]["metric"]["name"]
    exposition = Telemetry.on_own_registry().exposition()[0].decode()
    if f"# TYPE {name} gauge\n" not in exposition:
        yield f"HorizontalPodAutoscaler: there is no gauge {name}"
    if name != adapter_rule()["name"]["as"]:
        yield f"HorizontalPodAutoscaler: the adapter has no rule for {name}"
    # At most half of the admission limit: otherwise the service answers 429 before it scales up.
    if not 0 < float(metric["pods"]["target"]["averageValue"]) <= it.settings.max_pending / 2:
        yield "HorizontalPodAutoscaler: the target is not reached before 429"
    if it.settings.replicas != it.autoscaler["maxReplicas"]:
        yield f"SCOPE_REPLICAS is {it.settings.replicas}: {it.autoscaler['maxReplicas']} may run"
    if it.autoscaler["minReplicas"] >= it.autoscaler["maxReplicas"]:
        yield "HorizontalPodAutoscaler: there is nothing to scale"
    if "replicas" in it.spec("Deployment"):
        yield "Deployment: with replicas, every apply would undo the autoscaler's decision"
    down = it.autoscaler["behavior"]["scaleDown"]
    if (
        min(each["periodSeconds"] for each in down["policies"])
        < it.pod["terminationGracePeriodSeconds"]
    ):
        yield "HorizontalPodAutoscaler: removes a pod before the last one has drained"


def updates_fit_the_hardware(it: Deployed) -> Iterator[str]:
    strategy = it.spec("Deployment")["strategy"]
    at_once = strategy["type"] == "RollingUpdate" or it.autoscaled
    modes = {
        each["metadata"]["name"]: each["spec"]["accessModes"]
        for each in it.of_kind("PersistentVolumeClaim")
    }
    for volume in it.pod["volumes"]:
        claim = volume.get("persistentVolumeClaim", {}).get("claimName")
        if claim is not None and claim not in modes:
            yield f"there is no claim {claim}"
        elif claim is not None and at_once and modes[claim] != ["ReadWriteMany"]:
            yield f"pods on several nodes cannot share {claim}"
    if at_once and strategy.get("rollingUpdate", {}).get("maxUnavailable") != 0:
        yield "an update removes a replica before a new one is ready"
    if not at_once and strategy["type"] != "Recreate":
        yield "an update waits for a second GPU"
    each, copies = it.settings.tensor_parallel, it.settings.data_parallel
    used = it.gpus // each * each if copies == "auto" else each * copies
    if it.gpus and it.gpus != used:
        yield f"{it.gpus} GPUs for a judge that uses {used}"


def a_judge_on_gpus_has_what_vllm_needs(it: Deployed) -> Iterator[str]:
    if not it.gpus:
        return
    # One core for the service, one for the scheduler, one for each worker.
    if int(it.container["resources"]["requests"]["cpu"]) < 2 + it.gpus:
        yield f"fewer than {2 + it.gpus} cores for {it.gpus} GPUs"
    shared = it.volumes["shm"]["emptyDir"]["sizeLimit"]
    if it.gpus > 1 and int(shared.removesuffix("Gi")) < _SHARED_GIB:
        yield f"{shared} of shared memory for {it.gpus} GPUs"
    mounts = {each["mountPath"]: each["name"] for each in it.container["volumeMounts"]}
    cache = it.volumes[mounts[it.env["HOME"]]]
    if cache.keys() != {"name", "persistentVolumeClaim"}:
        yield "compiled kernels are lost with the pod"
    yield from _faults_of_fetching(it, it.pod["initContainers"])


def _faults_of_fetching(it: Deployed, containers: list[Manifest]) -> Iterator[str]:
    """Yields how the init container differs from the judge that it fetches the weights for."""
    (fetching,) = containers
    if fetching["command"] != ["scope-judge", "fetch"]:
        yield f"the init container does not fetch: {fetching['command']}"
    theirs = literals(fetching)
    for name in ("SCOPE_MODEL", "SCOPE_REVISION", "HOME", "HF_HOME"):
        if theirs.get(name) != it.env[name]:
            yield f"the init container has another {name} than the judge"
    for field in ("image", "securityContext"):
        if fetching[field] != it.container[field]:
            yield f"the init container has another {field} than the judge"
    mounts = [each for each in it.container["volumeMounts"] if each in fetching["volumeMounts"]]
    if not {"/weights", "/cache", "/tmp"} <= {each["mountPath"] for each in mounts}:
        yield "the init container writes to other volumes than the judge reads"


def secrets_are_only_named(it: Deployed) -> Iterator[str]:
    if it.of_kind("Secret"):
        yield "a Secret is committed"
    for each in it.container["env"]:
        if each["name"] in _SECRET_VARIABLES and each.keys() != {"name", "valueFrom"}:
            yield f"{each['name']} has a literal value instead of a Secret"
    volumes = {each["name"]: each["secret"] for each in it.pod["volumes"] if "secret" in each}
    folder = str(Path(it.env["SCOPE_API_KEYS_FILE"]).parent)
    mounts = [each for each in it.container["volumeMounts"] if each["mountPath"] == folder]
    if len(mounts) != 1 or mounts[0]["name"] not in volumes:
        yield f"no Secret is mounted at {folder}"
    elif "subPath" in mounts[0] or not mounts[0].get("readOnly"):
        yield "a changed key file would not reach a running pod"


def the_pod_is_restricted(it: Deployed) -> Iterator[str]:
    """Yields deviations from the Pod Security Standard `restricted` with a read-only root."""
    pod, container = it.pod["securityContext"], it.container["securityContext"]
    held = {
        "runAsNonRoot": pod.get("runAsNonRoot") is True,
        "runAsUser": pod.get("runAsUser") == 10001,
        "seccompProfile": pod.get("seccompProfile") == {"type": "RuntimeDefault"},
        "allowPrivilegeEscalation": container.get("allowPrivilegeEscalation") is False,
        "capabilities": container.get("capabilities") == {"drop": ["ALL"]},
        "readOnlyRootFilesystem": container.get("readOnlyRootFilesystem") is True,
        "enableServiceLinks": it.pod.get("enableServiceLinks") is False,
        "automountServiceAccountToken": it.pod.get("automountServiceAccountToken") is False,
        "host": not it.pod.keys() & {"hostNetwork", "hostPID", "hostIPC"},
    }
    yield from (f"{name} is not as it must be" for name, holds in held.items() if not holds)
    accounts = {each["metadata"]["name"] for each in it.of_kind("ServiceAccount")}
    if it.pod["serviceAccountName"] not in accounts:
        yield f"there is no ServiceAccount {it.pod['serviceAccountName']}"
    names = {each["name"] for each in it.pod["volumes"]}
    mounts = {each["mountPath"]: each["name"] for each in it.container["volumeMounts"]}
    yield from (f"{path} cannot be written" for path in _WRITABLE if path not in mounts)
    yield from (f"there is no volume {name}" for name in set(mounts.values()) ^ names)


def the_image_is_a_placeholder_of_this_version(it: Deployed) -> Iterator[str]:
    if not re.fullmatch(rf"scope-judge:{re.escape(__version__)}-(cpu|gpu)", it.container["image"]):
        yield f"the image is {it.container['image']}"


RULES: tuple[Callable[[Deployed], Iterator[str]], ...] = (
    the_settings_exist,
    the_probes_exist,
    the_start_is_long_enough,
    the_drain_is_long_enough,
    the_selectors_select,
    the_ports_agree,
    the_network_is_closed_but_for_what_is_needed,
    the_ingress_leads_to_the_service_with_tls,
    the_operator_scrapes_as_our_own_configuration_does,
    the_backup_runs_as_the_judge_does,
    a_disruption_leaves_replicas,
    the_autoscaler_follows_a_metric_that_there_is,
    updates_fit_the_hardware,
    a_judge_on_gpus_has_what_vllm_needs,
    secrets_are_only_named,
    the_pod_is_restricted,
    the_image_is_a_placeholder_of_this_version,
)


def with_every_component(folder: Path, overlay: str) -> Path:
    """Copies the manifests; returns an overlay there with all optional components."""
    shutil.copytree(ROOT, folder, dirs_exist_ok=True)
    file = folder / "overlays" / overlay / "kustomization.yaml"
    text = file.read_text(encoding="utf-8")
    listed = re.findall(r"^  (?:# )?- \.\./\.\./components/(\S+)$", text, re.MULTILINE)
    assert set(listed) == {each.name for each in (ROOT / "components").iterdir()}
    file.write_text(text.replace("  # - ../../components/", "  - ../../components/"))
    return file.parent


def rule_faults(manifests: list[Manifest]) -> list[str]:
    """The faults that the rules find; a field that a rule needs and does not find is a fault."""
    it = Deployed(manifests)
    faults = []
    for rule in RULES:
        try:
            faults += [f"{rule.__name__}: {fault}" for fault in rule(it)]
        except (KeyError, ValidationError) as exc:
            faults.append(f"{rule.__name__}: {exc!r}")
    return faults


def adapter_rule() -> dict[str, Any]:
    """The only rule in the configuration of prometheus-adapter."""
    (rule,) = read(ROOT / "prometheus-adapter.yaml")["rules"]["custom"]
    assert isinstance(rule, dict)
    return rule
