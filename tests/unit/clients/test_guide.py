"""The Python of the guides runs as it is written, against the service with the scripted judge."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.docs import markdown
from tests.unit.docs.markdown import DOCS


def test_the_examples_of_the_guide_to_audits_run(
    audited_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run("audits.md", audited_url)
    assert capsys.readouterr().out.splitlines() == ["1 0 0 ()"]


def run(page: str, url: str, *, pandas: bool = False) -> None:
    """Runs all Python of a guide as one program, with pandas or without."""
    names: dict[str, Any] = {"__name__": "guide"}
    for block in markdown.blocks((DOCS / "guides" / page).read_text(encoding="utf-8")):
        if block.language == "python" and ("import pandas" in block.text) == pandas:
            exec(block.text.replace("http://127.0.0.1:8000", url), names)
    names["client"].close()


def test_the_examples_of_the_guide_to_the_client_run(
    service_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run("client.md", service_url)
    printed = capsys.readouterr().out
    assert "p_bar = 0." in printed or "no verdict: " in printed
    assert "2 0 " in printed, "both examples are new"


def test_the_example_with_pandas_runs_on_tables_of_excel(
    service_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pandas = pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    rows: list[Any] = [(f"{n}?", f"quality={1 + n / 100}", "quality=0", "A") for n in range(300)]
    rows += [("300?", "quality=3", "quality=1", None), ("301?", 8, 9, "tie")]
    columns = ["question", "response_a", "response_b", "label"]
    table = pandas.DataFrame(rows, columns=columns).assign(note="mine")
    table.to_excel("labeled.xlsx", index=False)
    table.iloc[290:302].to_excel("rest.xlsx", index=False)
    run("client.md", service_url, pandas=True)
    added, *counts = capsys.readouterr().out.splitlines()
    assert added == "300 0", "one row has no label, and one is a tie"
    assert any(line.split()[:2] == ["A", "NaN"] for line in counts)
    judged = pandas.read_excel("judged.xlsx")
    assert list(judged.columns) == [*columns, "note", "verdict", "reason"]


def test_the_example_of_a_pool_labels_until_the_threshold_is_known(
    service_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pairs = [
        {"question": f"{n}?", "response_a": f"quality={1 + n / 100}", "response_b": "quality=0"}
        for n in range(100)
    ]
    monkeypatch.chdir(tmp_path)
    Path("unlabeled.jsonl").write_text("\n".join(map(json.dumps, pairs)), encoding="utf-8")
    monkeypatch.setattr("builtins.input", lambda _: "A")
    run("labeling.md", service_url)
    words = capsys.readouterr().out.splitlines()[-1]
    print(words)
