"""A real Prometheus with the shipped configuration; only targets and intervals are replaced."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.patience import wait_until
from tests.programs import HttpServer, free_port
from tests.unit.docs.markdown import ROOT

FOLDER = ROOT / "deploy" / "prometheus"
_GROUP_INTERVAL = "interval: 1m"


class Series(NamedTuple):
    """One series of an answer: its labels, and (time, value) pairs."""

    labels: dict[str, str]
    points: list[tuple[float, float]]


class Prometheus(HttpServer):
    """A Prometheus that scrapes the given targets.

    Args:
        folder: Folder for its files.
        targets: "host:port" of each target.
        every_s: Seconds between scrapes, and between evaluations of all rules.
        config: Replaces the shipped configuration.
    """

    def __init__(
        self,
        folder: Path,
        targets: Sequence[str] = (),
        *,
        every_s: int = 1,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.every_s = every_s
        file = folder / "prometheus.yml"
        file.write_text(yaml.safe_dump(config or _shipped(folder, targets, every_s=every_s)))
        port = free_port()
        command = [
            "prometheus",
            f"--config.file={file}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=warn",
        ]
        super().__init__(folder, "prometheus", command, port=port, ready_path="/-/ready")

    def ask(self, path: str, **parameters: str | float) -> Any:
        """The `data` of an answer of its API; raises AssertionError with a refusal's reason."""
        answer = self.client.get(f"/api/v1/{path}", params=parameters).json()
        assert answer["status"] == "success", f"{parameters}: {answer.get('error')}"
        return answer["data"]

    def query(self, expression: str) -> list[Series]:
        """The current value of an expression."""
        data = self.ask("query", query=expression)
        # A scalar result is not a list of series.
        if data["resultType"] == "scalar":
            return [Series({}, [_point(data["result"])])]
        return [Series(each["metric"], [_point(each["value"])]) for each in data["result"]]

    def query_range(
        self, expression: str, *, start: float, end: float, step: float
    ) -> list[Series]:
        """The values of an expression over a time span."""
        data = self.ask("query_range", query=expression, start=start, end=end, step=step)
        return [
            Series(each["metric"], [_point(pair) for pair in each["values"]])
            for each in data["result"]
        ]

    def rules(self) -> list[dict[str, Any]]:
        """All rules, with their state and the health of the last evaluation."""
        return [rule for group in self.ask("rules")["groups"] for rule in group["rules"]]

    def wait_until(self, expression: str) -> None:
        """Returns as soon as an expression has a value."""
        wait_until(lambda: self.query(expression))


def _shipped(folder: Path, targets: Sequence[str], *, every_s: int) -> dict[str, Any]:
    interval = f"{every_s}s"
    rules = (FOLDER / "rules.yml").read_text()
    assert _GROUP_INTERVAL in rules
    (folder / "rules.yml").write_text(rules.replace(_GROUP_INTERVAL, f"interval: {interval}"))
    config: dict[str, Any] = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": interval, "evaluation_interval": interval}
    (job,) = config["scrape_configs"]
    assert job["static_configs"] == [{"targets": ["judge:9464"]}]
    job["static_configs"] = [{"targets": list(targets)}]
    return config


def _point(pair: Sequence[Any]) -> tuple[float, float]:
    return float(pair[0]), float(pair[1])
