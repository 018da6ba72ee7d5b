"""The JSON of answers about sets and audits, field by field, as it was recorded.

To record it again: `python -m tests.unit.api.answers.test_answers_of_sets`.
"""

import asyncio
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from app.judges.engines.scripted import ScriptedEngine
from tests.serving import client_of
from tests.unit.api.problems import comparison, examples
from tests.unit.api.rewards.reward_routes import script

RECORDED = Path(__file__).with_name("answers_of_sets.json")
SET = "/calibrations/default"
TIE = {**comparison(question="Tied?"), "label": "tie", "id": 7}
BAD = {**comparison(response_a="ENDLESS", id="bad"), "label": "A"}
EXAMPLES = {"examples": [*examples(), TIE, BAD, {"question": "Which?"}]}
POOL = {"comparisons": [comparison(question="Pool?"), comparison(response_a="ENDLESS", id=3)]}
TIME = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d[0-9:.]*(Z| UTC)"


def lasting(value: Any) -> Any:
    """The value without what is drawn at random or depends on the time or the release."""
    if isinstance(value, list):
        return [lasting(each) for each in value]
    if isinstance(value, dict):
        return {
            name: "*" if name in ("release", "write_id", "response_a", "response_b") else lasting(v)
            for name, v in value.items()
        }
    if isinstance(value, str):
        return re.sub(r"\b[0-9a-f]{32}\b", "ID", re.sub(TIME, "TIME", value))
    if isinstance(value, int) and value > 10**15:
        return "POSITION"
    # The last digits depend on the processor.
    return round(value, 9) if isinstance(value, float) else value


async def answers() -> dict[str, Any]:
    """The answers of the routes of sets and audits, one after the other."""
    recorded = dict[str, Any]()
    engine = ScriptedEngine(script)
    async with client_of(engine, audit_rate=1.0, audit_texts=True) as client:

        async def send(name: str, method: str, path: str, body: Any = None) -> Any:
            response = await client.request(method, path, json=body)
            assert name not in recorded
            assert response.status_code < 300, response.text
            recorded[name] = lasting(response.json())
            return response.json()

        async def judge(questions: Iterable[int]) -> list[str]:
            """The ids of the audits of pairs that were judged under two alphas."""
            pairs = [
                comparison(question=f"Traffic {number}?", alpha=alpha)
                for number in questions
                for alpha in (0.1, 0.2)
            ]
            judged = await client.post("/judge/batch", json={"comparisons": pairs})
            return list(dict.fromkeys(one["audit"]["id"] for one in judged.json()["results"]))

        await send("calibrate, dry run", "POST", "/calibrate", {**EXAMPLES, "dry_run": True})
        await send("calibrate", "POST", "/calibrate", EXAMPLES)
        scores = await send("scores", "POST", "/calibrate/scores", EXAMPLES)
        drawn = await judge(range(8))
        labels = [{"id": audit, "label": "B"} for audit in drawn[:5]]
        labels += [{"id": drawn[5], "label": "tie"}, {"id": "0" * 32, "label": "A"}]
        labels += [{"id": drawn[6], "label": "none", "reason": "unreadable"}]
        await send("labels", "POST", "/audits/labels", {"labels": labels})
        labels[0]["label"] = "A"
        await send("changed labels", "POST", "/audits/labels", {"labels": labels[:2]})
        await send("audits", "GET", "/audits")
        await send("audits, page", "GET", "/audits?limit=2")
        await send("texts", "GET", "/audits?texts=true")
        await send("monitor", "GET", f"{SET}/monitor")
        await send("absorb, dry run", "POST", f"{SET}/absorb", {"dry_run": True})
        await send("absorb", "POST", f"{SET}/absorb", {"even_if_infeasible": True})
        wrong = [{"id": audit, "label": "B"} for audit in await judge(range(10, 30))]
        await client.post("/audits/labels", json={"labels": wrong})
        await send("monitor with an alarm", "GET", f"{SET}/monitor")
        imported = {"fingerprint": scores["fingerprint"], "examples": scores["scores"]}
        dry = {**imported, "replace": True, "dry_run": True}
        await send("import, dry run", "POST", f"{SET}/examples", dry)
        await send("deletion, dry run", "DELETE", f"{SET}?dry_run=true")
        await send("resume", "POST", f"{SET}/resume", {"reason": "mended"})
        await send("trail", "GET", f"{SET}/audit-trail")
        await send("detail", "GET", f"{SET}?alpha=0.1&alpha=0.15&delta=0.2")
        await send("list", "GET", "/calibrations")
        await send("list, page", "GET", "/calibrations?limit=1")
        await send("examples", "GET", f"{SET}/examples?limit=2")
        await send("import", "POST", "/calibrations/other/examples", imported)
        await send("pool", "POST", "/calibrations/other/pool", POOL)
        await send("next", "GET", "/calibrations/other/next?alpha=0.1")
        await send("detail of a pool", "GET", "/calibrations/other")
        await send("rollback, dry run", "POST", f"{SET}/rollback", {"version": 1, "dry_run": True})
        await send("rollback", "POST", f"{SET}/rollback", {"version": 1})
        assert (await client.delete("/calibrations/other")).status_code == 204
        await send("versions", "GET", f"{SET}/versions")
        await send("versions, deleted", "GET", "/calibrations/other/versions")
        await send("usage", "GET", "/usage")
    return recorded


async def test_answers_of_sets_and_audits_have_the_recorded_fields_and_values() -> None:
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    for name, answer in (await answers()).items():
        assert answer == recorded.pop(name), name
    assert not recorded


if __name__ == "__main__":
    rows = (f"{json.dumps(name)}: {json.dumps(a)}" for name, a in asyncio.run(answers()).items())
    RECORDED.write_text("{" + ",\n".join(rows) + "}\n", encoding="utf-8")
