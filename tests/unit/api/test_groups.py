"""Groups through HTTP: declared ones are taken, and any other group is an error."""

from typing import Any

import httpx
import pytest

from tests.serving import client_of
from tests.unit.api.problems import calibrated, comparison, examples, problem


async def test_a_judgment_takes_a_declared_group_only() -> None:
    async with client_of(groups="math,code") as client:
        await calibrated(client)
        for fields in ({}, {"group": None}, {"group": "math"}):
            answer = await client.post("/judge", json=comparison(**fields))
            assert answer.json()["verdict"] == "A", answer.text
        refused = await client.post("/judge", json=comparison(group="maths"))
        body = problem(refused, "invalid_request")
        assert "code, math" in body["detail"]
        assert body["errors"][0]["field"] == "group"


async def test_an_undeclared_group_fails_its_row_of_a_batch_only() -> None:
    async with client_of(groups="math") as client:
        await calibrated(client)
        rows = [comparison(group=group) for group in ("math", "maths", None, "two words")]
        answer = (await client.post("/judge/batch", json={"comparisons": rows})).json()
        failed = ["error" in each for each in answer["results"]]
        assert failed == [False, True, False, True]
        # The group of the batch is that of comparisons without one.
        body = {"comparisons": rows[:3], "group": "maths"}
        answer = (await client.post("/judge/batch", json=body)).json()
        assert ["error" in each for each in answer["results"]] == [False, True, True]


async def test_without_an_alpha_a_group_has_no_effect() -> None:
    async with client_of() as client:
        answer = await client.post("/judge", json=comparison(alpha=None, group="anything"))
        assert answer.json()["verdict"] == "A", answer.text


@pytest.mark.parametrize("group", ["", "two words", "m\u00e4th", "x" * 65, "a/b", 5, ["math"]])
async def test_a_group_that_is_not_a_name_is_refused(group: Any) -> None:
    async with client_of(groups="math") as client:
        await calibrated(client)
        problem(await client.post("/judge", json=comparison(group=group)), "invalid_request")


def rows(n: int, group: str | None, *, right: bool = True) -> list[dict[str, Any]]:
    """Labelled examples of a group with questions of their own."""
    return [
        {**each, "question": f"{group}: {each['question']}", "group": group}
        for each in examples(n, right=right)
    ]


async def calibrate(client: httpx.AsyncClient, posted: list[Any], **fields: Any) -> Any:
    response = await client.post("/calibrate", json={"examples": posted, **fields})
    assert response.status_code == 200, response.text
    return response.json()


async def test_a_set_declares_groups_beside_those_of_the_settings() -> None:
    async with client_of(groups="code") as client:
        await calibrate(client, rows(60, None))
        for group in ("math", "code"):
            answer = await calibrate(client, rows(2, group), groups=["math"])
            assert (answer["added"], answer["failed"]) == (2, 0)
        # Declared groups stay declared.
        answer = await calibrate(client, [*rows(3, "math"), *rows(1, "maths")])
        assert (answer["added"], answer["failed"]) == (3, 1)
        assert "code, math" in answer["errors"][0]["error"]["detail"]
        assert [(each["group"], each["n"]) for each in answer["groups"]] == [
            ("code", 2),
            ("math", 5),
        ]
        for group in ("math", "code"):
            judged = await client.post("/judge", json=comparison(group=group))
            assert judged.json()["threshold_of"] == "all"


@pytest.mark.parametrize(
    "names",
    [
        [f"g{k}" for k in range(17)],
        ["all"],
        ["two words"],
        [""],
        [5],
        "math",
        [f"g{k}" for k in range(16)],
    ],
)
async def test_too_many_groups_and_names_that_are_not_valid_are_refused(names: Any) -> None:
    async with client_of(groups="code") as client:
        body = {"examples": rows(2, None), "groups": names}
        refused = problem(await client.post("/calibrate", json=body), "invalid_request")
        assert refused["errors"][0]["field"].startswith("groups")


async def test_a_group_with_enough_pairs_is_judged_by_its_own_threshold() -> None:
    """Math is always wrong, and would be accepted by the threshold of the whole set."""
    async with client_of(groups="math,code,art") as client:
        posted = [*rows(300, None), *rows(100, "math", right=False), *rows(99, "code")]
        whole = await calibrate(client, posted)
        assert {each["threshold_of"] for each in whole["groups"]} == {"all"}
        answer = await calibrate(client, rows(300, None), by_group=True)
        assert answer["by_group"] is True
        assert [
            (each["group"], each["n"], each["threshold_of"], each["more_pairs"])
            for each in answer["groups"]
        ] == [("code", 99, "all", 1), ("math", 100, "math", 0)]
        judged = {}
        for group in (None, "math", "code", "art"):
            pair = comparison(group=group, alpha=0.25)
            judged[group] = (await client.post("/judge", json=pair)).json()
        assert [judged[group]["threshold_of"] for group in judged] == ["all", "math", "all", "all"]
        assert judged["math"]["reason"] == "infeasible"
        assert judged["math"]["calibration"]["n"] == 499
        assert judged[None]["threshold"] == judged["code"]["threshold"] is not None
        detail = (await client.get("/calibrations/default")).json()
        shown = {
            (row["group"], row["alpha"]): row
            for row in detail["group_rows"]
            if row["alpha"] == 0.25
        }
        math, code = shown["math", 0.25], shown["code", 0.25]
        assert (math["threshold"], math["threshold_of"]) == (None, "math")
        assert (math["accepted"], math["error"], math["error_interval"]) == (0, None, None)
        assert (code["threshold"], code["errors"]) == (judged["code"]["threshold"], 0)
        assert code["error_interval"][0] == 0.0 < code["error_interval"][1]
        # The trail has the thresholds, and a rollback takes the choice back.
        versions = (await client.get("/calibrations/default/versions")).json()["versions"]
        assert [each["by_group"] for each in versions] == [True, False]
        assert "marginal:0.10:math" in versions[0]["thresholds_after"]
        back = await client.post("/calibrations/default/rollback", json={"version": 1})
        assert back.json()["by_group"] is False


async def test_a_preview_shows_the_effects_on_groups_with_thresholds_of_their_own() -> None:
    """Math is always wrong: by itself it has no verdicts."""
    async with client_of(groups="math,code") as client:
        await calibrate(client, [*rows(300, None), *rows(100, "math", right=False)])
        await client.post("/judge", json=comparison(alpha=0.3))
        asked = {"by_group": True, "dry_run": True}
        added = await calibrate(client, rows(120, "code"), **asked)
        shown = {each["group"]: each for each in added["effects"]}
        assert list(shown) == [None, "code", "math"]
        # There are no pairs of the group code before, and math is judged by all before.
        coverage = {
            group: (each["before"]["coverage"], each["after"]["coverage"])
            for group, each in shown.items()
        }
        assert coverage[None][0] == coverage["math"][0] == 1.0
        assert (coverage["code"], coverage["math"][1]) == ((0.0, 1.0), 0.0)
        assert shown["math"]["before"]["empirical_risk"] == 1.0
        assert [each["becomes_infeasible"] for each in shown.values()] == [False, False, True]
        assert "alpha 0.3 (marginal) in the group math gets no more verdicts" in added["note"]
        # Without thresholds of their own, groups have no rows.
        whole = await calibrate(client, rows(120, "code"), dry_run=True)
        assert [each["group"] for each in whole["effects"]] == [None]

        replaced = {"examples": [*rows(300, None), *rows(101, "math", right=False)]}
        body = {**replaced, "by_group": True, "replace": True}
        refused = problem(await client.post("/calibrate", json=body), "becomes_infeasible")
        assert "in the group math" in refused["detail"]


async def test_groups_move_with_the_examples_of_a_set() -> None:
    async with client_of(groups="math") as client:
        await calibrate(client, rows(3, "math"))
        page = (await client.get("/calibrations/default/examples")).json()
        assert {each["group"] for each in page["examples"]} == {"math"}
        assert (page["groups"], page["by_group"]) == (["math"], False)
    async with client_of() as client:
        body = {"fingerprint": page["fingerprint"], "examples": page["examples"]}
        path = "/calibrations/default/examples"
        problem(await client.post(path, json=body), "invalid_request")
        answer = await client.post(path, json={**body, "groups": page["groups"]})
        assert [each["group"] for each in answer.json()["groups"]] == ["math"]
        again = (await client.get(path)).json()
        assert again["examples"] == page["examples"]


async def test_a_pool_keeps_groups_and_an_undeclared_one_fails_its_pair() -> None:
    async with client_of(groups="math") as client:
        pairs = [{**each, "label": None} for each in (*rows(3, "math"), *rows(1, "maths"))]
        for pair in pairs:
            del pair["label"]
        path = "/calibrations/default/pool"
        answer = (await client.post(path, json={"comparisons": pairs})).json()
        assert (answer["added"], answer["failed"], answer["digests"][3]) == (3, 1, None)
        page = (await client.get("/calibrations/default/examples")).json()
        assert [each["group"] for each in page["examples"]] == ["math"] * 3


async def test_rewards_are_of_the_group_of_their_question() -> None:
    async with client_of(audit_rate=1.0, groups="math,code") as client:
        await calibrate(client, rows(60, None))
        one = {"question": "G?", "responses": ["quality=3", "quality=2"]}
        body = {"groups": [one, {**one, "question": "H?", "group": "math"}], "group": "code"}
        assert (await client.post("/rewards/groups", json=body)).status_code == 200
        reference = {"question": "R?", "reference": "quality=0", "responses": ["quality=3"]}
        for path, sent in (("group", {**one, "question": "I?"}), ("reference", reference)):
            response = await client.post(f"/rewards/{path}", json={**sent, "group": "math"})
            assert response.status_code == 200, response.text
        audits = (await client.get("/audits")).json()["audits"]
        assert [each["group"] for each in audits] == ["code", "math", "math", "math"]
        wrong = await client.post("/rewards/group", json={**one, "group": "maths"})
        problem(wrong, "invalid_request")


async def test_a_label_of_an_audit_takes_its_group_into_the_set() -> None:
    async with client_of(audit_rate=1.0, groups="math") as client:
        await calibrate(client, rows(60, None))
        judged = await client.post("/judge", json=comparison(group="math"))
        label = {"id": judged.json()["audit"]["id"], "label": "A"}
        await client.post("/audits/labels", json={"labels": [label]})
        answer = await client.post("/calibrations/default/absorb", json={"all": True})
        assert [(each["group"], each["n"]) for each in answer.json()["groups"]] == [("math", 1)]
