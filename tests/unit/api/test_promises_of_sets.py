"""Promises about calibration sets, asked over HTTP alone."""

import re
from typing import Any

import httpx

from tests.serving import client_of
from tests.unit.api.problems import comparison, examples, problem


def pair(number: int, quality: float) -> dict[str, Any]:
    return comparison(
        question=f"Question {number}?", response_a=f"quality={quality:.6f}", response_b="quality=0"
    )


async def made(client: httpx.AsyncClient, name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    answer = await client.post("/calibrate", json={"calibration": name, "examples": rows})
    found: dict[str, Any] = answer.raise_for_status().json()
    return found


async def test_the_error_of_a_partly_labeled_set_names_a_criterion_that_works() -> None:
    # The judge is sure of the first 150 pairs, which are labeled, and unsure of the others.
    sure = [pair(i, 2 + i / 100) for i in range(150)]
    unsure = [pair(i, 0.1 + i / 10_000) for i in range(150, 300)]
    async with client_of() as client:
        pool = {"comparisons": sure + unsure}
        (await client.post("/calibrations/default/pool", json=pool)).raise_for_status()
        wrong = [{**row, "label": "B"} for row in unsure[-100:]]
        labeled = [{**row, "label": "A"} for row in sure]
        await made(client, "default", labeled + wrong)
        refused = problem(await client.post("/judge", json=sure[0]), "labels_missing")
        criterion = re.search(
            r'"guarantee": "(pac)", "alpha": ([\d.]+), "delta": ([\d.]+)', refused["detail"]
        )
        assert criterion is not None, refused["detail"]
        guarantee, alpha, delta = criterion.groups()
        asked = {"guarantee": guarantee, "alpha": float(alpha), "delta": float(delta)}
        answer = await client.post("/judge", json={**sure[0], **asked})
        assert answer.json()["verdict"] == "A"


async def test_sets_are_listed_in_pages() -> None:
    async with client_of() as client:
        names = sorted(f"set-{i}" for i in range(7))
        for name in reversed(names):
            await made(client, name, examples(3))
        listed, after = list[str](), ""
        sizes = list[int]()
        while True:
            page = (await client.get(f"/calibrations?limit=3&after={after}")).json()
            listed += [each["name"] for each in page["calibrations"]]
            sizes.append(len(page["calibrations"]))
            if page["next_after"] is None:
                break
            after = page["next_after"]
        assert (listed, sizes) == (names, [3, 3, 1])
