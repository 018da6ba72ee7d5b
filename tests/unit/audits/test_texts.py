"""Texts of drawn pairs are kept while their audits are open, and no longer."""

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from app.audits.text_keeper import PairsToLabel, TextKeeper
from app.audits.texts import (
    LONGEST_TEXTS,
    DrawnTexts,
    key_of,
    read_texts,
    written_texts,
)
from app.core.comparison import Comparison, Turn
from app.judging.services import Services
from app.stores.memory import MemoryStore
from tests.serving import pair, services_of
from tests.unit.audits.drawing import EXAMPLES, audits, ids, judged, label, replica, traffic

ID = "0123456789abcdef0123456789abcdef"
SWAPPED = ID[:-1] + "e"


@asynccontextmanager
async def keeping(store: MemoryStore, **given: Any) -> AsyncIterator[Services]:
    """Services that draw every judgment and keep the texts."""
    async with services_of(store=store, audit_rate=1.0, audit_texts=True, **given) as services:
        if not await store.names():
            await services.calibrator.add("default", EXAMPLES)
        yield services


def kept_keys(store: MemoryStore) -> set[str]:
    return set(store._texts.get("default", {}))


async def page(keeper: TextKeeper, **asked: Any) -> PairsToLabel:
    given = {
        "calibration": None,
        "person": "ana",
        "after": 0,
        "limit": 64,
        "may_use": lambda _: True,
        **asked,
    }
    return await keeper.to_label(**given)


async def shown(services: Services, **asked: Any) -> list[DrawnTexts]:
    """The texts of the open audits in the order of their draws, on the sides that were judged."""
    found = await page(services.text_keeper, **asked)
    drawn = sorted(found.pairs, key=lambda pair: pair.audit.position)
    return [
        pair.texts
        if pair.texts.id == pair.audit.draw.id
        else DrawnTexts(
            id=pair.audit.draw.id,
            question=pair.texts.question,
            response_a=pair.texts.response_b,
            response_b=pair.texts.response_a,
        )
        for pair in drawn
    ]


@pytest.mark.parametrize(
    ("comparison", "question", "a", "b"),
    [
        (Comparison.of("Q?", "a", "b"), "Q?", "a", "b"),
        (
            Comparison((Turn("system", "Be brief."), Turn("user", "Q?")), ("a",), ("b",)),
            (Turn("system", "Be brief."), Turn("user", "Q?")),
            "a",
            "b",
        ),
        (
            Comparison(
                (Turn("user", "1?"), Turn("assistant", "x"), Turn("user", "2?")),
                ("a1", "a2"),
                ("b1", "b2"),
            ),
            (Turn("user", "1?"), Turn("assistant", "x"), Turn("user", "2?")),
            ("a1", "a2"),
            ("b1", "b2"),
        ),
    ],
)
def test_texts_are_read_as_they_were_written(
    comparison: Comparison, question: Any, a: Any, b: Any
) -> None:
    written = written_texts(ID, comparison)
    assert written is not None
    assert set(json.loads(written)) == {"id", "question", "response_a", "response_b"}
    expected = DrawnTexts(id=ID, question=question, response_a=a, response_b=b)
    # Both orders of a pair share the texts, which are in the order of their own id.
    assert read_texts(written, ID) == read_texts(written, SWAPPED) == expected


def test_texts_that_nobody_reads_are_not_kept() -> None:
    def of(size: int) -> str | None:
        return written_texts(ID, Comparison.of("x" * size, "a", "b"))

    assert of(LONGEST_TEXTS // 2) is not None
    assert of(LONGEST_TEXTS) is None
    # As JSON, these are six times as long.
    assert written_texts(ID, Comparison.of("裁" * (LONGEST_TEXTS // 2), "a", "b")) is None


@pytest.mark.parametrize(
    "written",
    [
        "",
        "no JSON",
        "[]",
        "{}",
        json.dumps({"id": "f" * 32, "question": "?", "response_a": "a", "response_b": "b"}),
        json.dumps({"id": "x", "question": "?", "response_a": "a", "response_b": "b"}),
        json.dumps({"id": ID, "question": "", "response_a": "a", "response_b": "b"}),
        json.dumps({"id": ID, "question": [{"role": "x"}], "response_a": "a", "response_b": "b"}),
    ],
)
def test_texts_of_another_program_or_pair_are_no_texts(written: str) -> None:
    assert read_texts(written, ID) is None


async def test_both_orders_of_a_pair_have_one_key() -> None:
    assert key_of(ID) == key_of(SWAPPED) != key_of(ID.replace("0", "2"))


async def test_drawn_pairs_are_listed_with_their_texts() -> None:
    async with keeping(MemoryStore()) as services:
        pairs = traffic(range(5))
        drawn = await ids(services, pairs)
        found = await shown(services)
        assert [each.id for each in found] == drawn
        texts = [(x.question, x.response_a, x.response_b) for x in found]
        assert texts == [
            (each.question[0].content, each.response_a[0], each.response_b[0]) for each in pairs
        ]
        assert await shown(services, calibration="other") == []
        assert await shown(services, may_use=lambda _: False) == []


async def test_without_the_setting_nothing_is_kept_and_no_draw_is_shown() -> None:
    store = MemoryStore()
    async with services_of(store=store, audit_rate=1.0) as services:
        await services.calibrator.add("default", EXAMPLES)
        await ids(services, traffic(range(2)))
        found = await page(services.text_keeper)
        assert (found.pairs, found.open, found.without_texts) == ([], 2, 2)
    assert kept_keys(store) == set()


async def test_a_draw_with_too_long_texts_is_kept_without_them() -> None:
    async with keeping(MemoryStore()) as services:
        long, short = pair(3.0, 0.0, question="x" * LONGEST_TEXTS), pair(3.0, 0.0)
        assert len(await ids(services, [long, short])) == 2
        assert [each.question for each in await shown(services)] == [short.question[0].content]


async def test_a_label_or_closing_takes_the_texts_away_whatever_the_replica_keeps() -> None:
    store = MemoryStore()
    async with keeping(store) as services:
        one, two, three = await ids(services, traffic(range(3)))
        await label(services.auditor, (one, "A"))
        assert kept_keys(store) == {key_of(two), key_of(three)}
        # Another replica, in the other order, without the setting.
        swapped = f"{int(two, 16) ^ 1:032x}"
        await label(replica(store), (swapped, "none"))
        assert kept_keys(store) == {key_of(three)}
        assert [each.id for each in await shown(services)] == [three]


async def test_a_pair_that_comes_swapped_or_under_another_criterion_keeps_its_first_texts() -> None:
    store = MemoryStore()
    async with keeping(store) as services:
        (given,) = traffic([1])
        (one,) = await ids(services, [given])
        before = await shown(services)
        await judged(services, [given.swapped], alpha=0.2)
        assert await shown(services) == before
        await label(services.auditor, (one, "A"))
        # The label serves this draw, too.
        await judged(services, [given], alpha=0.3)
        assert len(audits(services.auditor)) == 1
        assert kept_keys(store) == set()


async def test_a_draw_of_before_the_setting_gets_texts_when_it_comes_again_swapped() -> None:
    store = MemoryStore()
    (given,) = traffic([1])
    async with services_of(store=store, audit_rate=1.0) as services:
        await services.calibrator.add("default", EXAMPLES)
        (one,) = await ids(services, [given])
    async with keeping(store) as services:
        await judged(services, [given.swapped], alpha=0.2)
        (found,) = (await page(services.text_keeper)).pairs
        # The id names the order of the texts, so that a label counts for the right side.
        is_first = found.texts.response_a == given.response_a[0]
        assert int(found.texts.id, 16) == int(one, 16) ^ (not is_first)
        await label(services.auditor, (found.texts.id, "A" if is_first else "B"))
        assert [audit.label for audit in audits(services.auditor)] == ["A"]


async def test_texts_of_expired_audits_are_removed_and_those_of_open_ones_stay() -> None:
    store = MemoryStore()
    async with keeping(store) as services:
        labeled, kept = await ids(services, traffic(range(2)))
        await label(services.auditor, (labeled, "A"))
        for later, keys in ((0, {key_of(kept)}), (900, {key_of(kept)}), (1100, set[str]())):
            # Also if no service keeps texts any more.
            other = replica(store, seconds_later=later)
            await other.open()
            await other.remove_texts()
            assert kept_keys(store) == keys


async def test_texts_reach_no_log_and_no_metric(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with keeping(MemoryStore()) as services:
        secret = pair(3.0, 0.0, question="a secret question")
        (one,) = await ids(services, [secret])
        await label(services.auditor, (one, "A"))
        await services.auditor.remove_texts()
        assert "secret" not in services.telemetry.exposition()[0].decode()
    assert "secret" not in caplog.text


async def test_a_store_that_lost_the_texts_is_no_error() -> None:
    store = MemoryStore()
    async with keeping(store) as services:
        await ids(services, traffic(range(2)))
        store._texts.clear()
        assert await shown(services) == []
