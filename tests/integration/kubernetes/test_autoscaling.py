"""The autoscaler's metric reaches prometheus-adapter's query through a real Prometheus."""

from pathlib import Path
from typing import Any

from tests.integration.kubernetes.kustomize import (
    ROOT,
    Manifest,
    adapter_rule,
    build,
    literals,
    read,
    the,
)
from tests.integration.monitoring.prometheus import FOLDER, Prometheus
from tests.integration.processes.server import Server
from tests.programs import free_port

_POD = "scope-judge-7d9c5b7f4-x2x5k"


def _discovered(container: Manifest, *, port: int, name: str, app: str) -> dict[str, Any]:
    """A target of Prometheus as the discovery of pods makes it, before relabeling."""
    (named,) = (each for each in container["ports"] if each["name"] == "metrics")
    pod = {
        "name": name,
        "phase": "Running",
        "label_app_kubernetes_io_name": app,
        "container_port_name": named["name"],
        "container_port_number": str(named["containerPort"]),
    }
    labels = {f"__meta_kubernetes_pod_{label}": value for label, value in pod.items()}
    labels["__meta_kubernetes_namespace"] = "scope-judge"
    return {"targets": [f"127.0.0.1:{port}"], "labels": labels}


def _scraping(pods: list[dict[str, Any]]) -> Manifest:
    """The shipped configuration for a cluster, with a static list of pods."""
    (job,) = read(FOLDER / "prometheus.kubernetes.yml")["scrape_configs"]
    del job["kubernetes_sd_configs"]
    return {"scrape_configs": [job | {"static_configs": pods, "scrape_interval": "1s"}]}


def _filled(template: str, pods: str) -> str:
    """The query of a rule, filled in for pods as prometheus-adapter does."""
    values = {
        "<<.Series>>": "scope_pending_comparisons",
        "<<.LabelMatchers>>": f'namespace="scope-judge",pod=~"{pods}"',
        "<<.GroupBy>>": "pod",
    }
    for mark, value in values.items():
        assert mark in template
        template = template.replace(mark, value)
    return template


def test_the_adapter_finds_each_judge_and_its_pending_comparisons(tmp_path: Path) -> None:
    rule, deployed = adapter_rule(), build(ROOT / "overlays" / "fleet")
    (judge,) = the("Deployment", deployed)["template"]["spec"]["containers"]
    keys = tmp_path / "keys.json"
    keys.write_text('{"keys": []}', encoding="utf-8")
    settings = {name: value for name, value in literals(judge).items() if name.startswith("SCOPE_")}
    settings |= {"SCOPE_ENGINE": "scripted", "SCOPE_STORE_URL": "memory://"}
    port = free_port()
    settings |= {"SCOPE_API_KEYS_FILE": str(keys), "SCOPE_DRAIN_LAG_S": "0"}
    settings |= {"SCOPE_METRICS_PORT": str(port)}

    with Server(tmp_path, settings):
        pods = [
            _discovered(judge, port=port, name=_POD, app="scope-judge"),
            _discovered(judge, port=port, name="redis-0", app="redis"),
        ]
        with Prometheus(tmp_path / "prometheus", config=_scraping(pods)) as prometheus:
            prometheus.wait_until("scope_pending_comparisons")
            series = prometheus.ask("series", **{"match[]": rule["seriesQuery"]})
            answer = prometheus.query(_filled(rule["metricsQuery"], f"{_POD}|redis-0"))

    assert {(each["namespace"], each["pod"]) for each in series} == {("scope-judge", _POD)}
    assert [(each.labels, each.points[0][1]) for each in answer] == [({"pod": _POD}, 0.0)]
