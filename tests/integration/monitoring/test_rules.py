"""promtool checks the rules, and each alert links to a section that exists."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.monitoring.prometheus import FOLDER
from tests.unit.docs.markdown import anchors

ROOT = FOLDER.parents[1]


def promtool(*words: str) -> None:
    program = shutil.which("promtool")
    assert program, "These tests need promtool on PATH (apt: prometheus)."
    done = subprocess.run([program, *words], cwd=FOLDER, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load((FOLDER / "rules.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"] if "alert" in rule]


ALERTS = [pytest.param(alert, id=alert["alert"]) for alert in alerts()]
SCENES = [
    scene["name"] for scene in yaml.safe_load((FOLDER / "rules_test.yml").read_text())["tests"]
]


def test_the_configuration_is_one_that_prometheus_reads() -> None:
    promtool("check", "config", "prometheus.yml")


def test_the_configuration_for_kubernetes_is_one_that_prometheus_reads(tmp_path: Path) -> None:
    config = yaml.safe_load((FOLDER / "prometheus.kubernetes.yml").read_text())
    (job,) = config["scrape_configs"]
    # Debian's Prometheus is built without the discovery of pods, and refuses it.
    assert job.pop("kubernetes_sd_configs") == [{"role": "pod"}]
    shutil.copy(FOLDER / "rules.yml", tmp_path)
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    promtool("check", "config", str(tmp_path / "prometheus.yml"))


def test_the_rules_are_ones_that_prometheus_reads() -> None:
    promtool("check", "rules", "rules.yml")


def test_in_every_scene_exactly_the_alerts_fire_that_it_names() -> None:
    promtool("test", "rules", "rules_test.yml")


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_has_a_scene_where_it_fires_and_one_where_it_is_silent(
    alert: dict[str, Any],
) -> None:
    subjects = [name.partition(":") for name in SCENES]
    mine = [rest for subject, _, rest in subjects if alert["alert"] in re.split(r"\W+", subject)]
    assert any("fire" in rest for rest in mine)
    assert any("silent" in rest for rest in mine)


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_says_what_to_do_and_where_it_is_described(alert: dict[str, Any]) -> None:
    assert alert["labels"]["severity"] in ("info", "warning", "critical")
    about = alert["annotations"]
    assert set(about) == {"summary", "description", "runbook"}
    path, _, anchor = about["runbook"].partition("#")
    assert anchor in anchors((ROOT / path).read_text())
    assert f"`{alert['alert']}`" in (ROOT / "docs/guides/monitoring.md").read_text()
