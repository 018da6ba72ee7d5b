"""A real Prometheus scrapes the real service; every query of the dashboard and the rules runs."""

import importlib.util
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from deploy.grafana import make_dashboard
from tests.integration.monitoring import dashboard
from tests.integration.monitoring.prometheus import FOLDER, Prometheus
from tests.integration.monitoring.traffic import MixedTraffic
from tests.integration.processes.server import Server
from tests.patience import PATIENCE_S, wait_until

# Enough scrapes for several samples in every rate.
_SCRAPES = 5
_RATE_INTERVAL_S = 4

# Panels and legends that may be empty in a healthy service with the scripted judge.
MAY_BE_EMPTY = {
    # No engine call failed.
    ("Engine, store, stale judgments", "engine: {{code}}"),
    # Has data only if the version changed within the interval.
    ("Calibration changed", ""),
}


class Scraped(NamedTuple):
    """Prometheus and the service after the traffic.

    Args:
        prometheus: A Prometheus that has scraped the service.
        exposition: The service's /metrics.
        began: Start of the traffic in seconds since 1970.
    """

    prometheus: Prometheus
    exposition: str
    began: float

    @property
    def names(self) -> set[str]:
        """All sample names of the service."""
        families = text_string_to_metric_families(self.exposition)
        return {sample.name for family in families for sample in family.samples}


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    folder = tmp_path_factory.mktemp("monitoring")
    settings = {"SCOPE_ENGINE": "scripted", "SCOPE_STORE_URL": "memory://", "SCOPE_AUDIT_RATE": "1"}
    service = Server(folder, settings)
    # Prometheus starts first: it needs five seconds until it scrapes its targets.
    with (
        Prometheus(folder / "prometheus", [f"127.0.0.1:{service.port}"]) as prometheus,
        service,
        MixedTraffic(service.url) as traffic,
    ):
        began = time.time()
        traffic.calibrate(300)
        traffic.send_every_kind()
        # Enough requests that the drift watch can compare the traffic with the labeled pairs.
        for _ in range(12):
            traffic.judge_and_label()
        prometheus.wait_until('up{job="scope-judge"} == 1')
        deadline = time.monotonic() + PATIENCE_S
        # On a slow machine the scrapes may come before a label of an accepted verdict. Queries over
        # a span end up to a second before now, so the label must be two seconds old.
        enough = (f"sum_over_time(up[1m]) >= {_SCRAPES}", "scope_monitor_audited offset 2s > 0")
        while not all(map(prometheus.query, enough)):
            assert time.monotonic() < deadline
            traffic.judge_and_label()
        exposition = httpx.get(service.url + "/metrics").text
        yield Scraped(prometheus, exposition, began)


def vllm_names() -> set[str]:
    """Every sample name that the installed vLLM's logger can export, read from its source."""
    found = importlib.util.find_spec("vllm")
    assert found is not None
    assert found.submodule_search_locations is not None
    folder = Path(found.submodule_search_locations[0])
    source = (folder / "v1/metrics/loggers.py").read_text()
    defined = set(re.findall(r'name="(vllm:\w+)"', source))
    return defined | {f"{name}_total" for name in defined}


def rule_expressions() -> list[str]:
    groups = yaml.safe_load((FOLDER / "rules.yml").read_text())["groups"]
    return [rule["expr"] for group in groups for rule in group["rules"]]


def test_every_query_of_the_dashboard_has_data(scraped: Scraped) -> None:
    times = {"start": scraped.began, "end": time.time(), "step": 1}
    empty = []
    for query in dashboard.queries(rate_interval_s=_RATE_INTERVAL_S):
        found = scraped.prometheus.query_range(query.expression, **times)
        if not found and not re.search(r"\bvllm:", query.expression):
            empty.append((query.panel, query.legend))
    assert set(empty) <= MAY_BE_EMPTY


def test_all_rules_are_evaluated_and_no_alert_fires_in_a_healthy_service(
    scraped: Scraped,
) -> None:
    prometheus = scraped.prometheus
    wait_until(lambda: all(rule["health"] != "unknown" for rule in prometheus.rules()))
    rules = scraped.prometheus.rules()
    assert len(rules) == len(rule_expressions())
    assert [rule.get("lastError") for rule in rules if rule["health"] != "ok"] == []
    alerts = [rule for rule in rules if rule["type"] == "alerting"]
    assert {rule["name"]: rule["state"] for rule in alerts if rule["state"] != "inactive"} == {}


def test_every_metric_that_is_asked_for_exists(scraped: Scraped) -> None:
    recorded = {rule["name"] for rule in scraped.prometheus.rules() if rule["type"] == "recording"}
    known = scraped.names | vllm_names() | recorded | {"up", "ALERTS"}
    # A metric family without samples yet still has a TYPE line.
    known |= set(re.findall(r"^# TYPE (\w+)", scraped.exposition, re.M))
    asked = [query.expression for query in dashboard.queries(rate_interval_s=_RATE_INTERVAL_S)]
    for expression in [*asked, *rule_expressions()]:
        assert dashboard.metric_names(expression) <= known


def test_the_dashboard_matches_its_source() -> None:
    assert make_dashboard.dashboard() == json.loads(dashboard.FILE.read_text())
