"""The commands' connection to a service."""

from app.cli.service_client import connected
from tests.serving import application_of
from tests.unit.api.problems import comparison
from tests.unit.cli.listening import listening


def test_comparisons_that_are_too_large_together_are_judged_in_parts() -> None:
    items = [comparison(id=i, response_b=f"quality=0 {'x' * 500}") for i in range(40)]
    items[7] = comparison(id=7, response_b="x" * 10_000)
    with listening(application_of(max_body_bytes=8000)) as url, connected(url) as service:
        results = service.judge(items, {"alpha": None}, ())
    assert [result.get("id") for result in results if "error" not in result] == [
        i for i in range(40) if i != 7
    ]
    assert results[7]["error"]["code"] == "body_too_large"


def test_comparisons_with_too_many_criteria_together_are_judged_in_parts() -> None:
    items = [comparison(id=i, alpha=round(0.2 + i / 200, 4)) for i in range(100)]
    with listening(application_of()) as url, connected(url) as service:
        examples = [{**comparison(question=f"Q{i}?"), "label": "A"} for i in range(60)]
        service.change_once("/calibrate", {"examples": examples})
        results = service.judge(items, {}, ())
    assert [(result["id"], result["alpha"]) for result in results] == [
        (item["id"], item["alpha"]) for item in items
    ]
