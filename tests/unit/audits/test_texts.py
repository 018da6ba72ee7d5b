"""Texts of drawn pairs are kept while their audits are open, and no longer."""

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from app.audits.entries import pair_of
from app.audits.keeping import remove_texts
from app.audits.listing import page_to_label
from app.audits.texts import LONGEST_TEXTS, read_texts, written_texts
from app.core.comparison import Comparison, Role, Turn
from app.judging.services import Services
from app.stores.memory import MemoryStore
from scope_judge import records
from tests.serving import pair, services_of
from tests.unit.audits.drawing import EXAMPLES, audits, ids, judged, label, replica, traffic

ID = "0123456789abcdef0123456789abcdef"


@asynccontextmanager
async def keeping(store: MemoryStore, **given: Any) -> AsyncIterator[Services]:
    """Services that draw every judgment and keep the texts."""
    async with services_of(store=store, audit_rate=1.0, audit_texts=True, **given) as services:
        if not await store.names():
            await services.calibrator.add("default", EXAMPLES)
        yield services


def kept_keys(store: MemoryStore) -> set[str]:
    return set(store._texts.get("default", {}))


async def page(services: Services, **asked: Any) -> records.AuditPage:
    given: dict[str, Any] = {
        "calibration": None,
        "person": "ana",
        "after": 0,
        "limit": 64,
        "may_use": bool,
    }
    return await page_to_label(services.auditor, services.store, **{**given, **asked})


async def shown(services: Services, **asked: Any) -> dict[str, tuple[object, ...]]:
    """Id -> texts of the open audits, on the sides that were judged."""
    texts = dict[str, tuple[object, ...]]()
    for audit in (await page(services, **asked)).audits:
        assert audit.texts is not None
        a, b = audit.texts.response_a, audit.texts.response_b
        own = next(each.id for each in audits(services.auditor) if each.key == pair_of(audit.id))
        texts[own] = audit.texts.question, *((a, b) if own == audit.id else (b, a))
    return texts


def turns(*given: tuple[Role, str]) -> tuple[Turn, ...]:
    return tuple(Turn(role, content) for role, content in given)


@pytest.mark.parametrize(
    ("question", "a", "b"),
    [
        (turns(("user", "Q?")), ("a",), ("b",)),
        (turns(("system", "Be brief."), ("user", "Q?")), ("a",), ("b",)),
        (turns(("user", "1?"), ("assistant", "x"), ("user", "2?")), ("a1", "a2"), ("b1", "b2")),
    ],
)
def test_texts_are_read_as_they_were_written(
    question: tuple[Turn, ...], a: tuple[str, ...], b: tuple[str, ...]
) -> None:
    written = written_texts(ID, Comparison(question, a, b))
    assert written is not None
    assert set(json.loads(written)) == {"id", "question", "response_a", "response_b"}
    expected = records.PairTexts(
        question=question[0].content
        if len(question) == 1
        else tuple(records.Turn(role=turn.role, content=turn.content) for turn in question),
        response_a=a if len(a) > 1 else a[0],
        response_b=b if len(b) > 1 else b[0],
    )
    # Both orders of a pair share the texts, which are in the order of their own id.
    assert read_texts(written) == (ID, expected)


def test_texts_that_nobody_reads_are_not_kept() -> None:
    def is_kept(text: str) -> bool:
        return written_texts(ID, Comparison.of(text, "a", "b")) is not None

    assert is_kept("x" * (LONGEST_TEXTS // 2))
    assert not is_kept("x" * LONGEST_TEXTS)
    # As JSON, these are six times as long.
    assert not is_kept("裁" * (LONGEST_TEXTS // 2))


async def test_drawn_pairs_are_listed_with_their_texts_unless_a_store_lost_them() -> None:
    store = MemoryStore()
    async with keeping(store) as services:
        pairs = traffic(range(5))
        drawn = await ids(services, pairs)
        texts = [(one.question[0].content, one.response_a[0], one.response_b[0]) for one in pairs]
        assert await shown(services) == dict(zip(drawn, texts, strict=True))
        assert await shown(services, calibration="other") == {}
        assert await shown(services, may_use=lambda _: False) == {}
        store._texts.clear()
        assert await shown(services) == {}


async def test_without_the_setting_nothing_is_kept_and_no_draw_is_shown() -> None:
    store = MemoryStore()
    async with services_of(store=store, audit_rate=1.0) as services:
        await services.calibrator.add("default", EXAMPLES)
        await ids(services, traffic(range(2)))
        listed = await page(services)
        assert (listed.audits, listed.open, listed.without_texts) == ((), 2, 2)
    assert kept_keys(store) == set()


async def test_a_draw_with_too_long_texts_is_kept_without_them_and_waits_an_hour() -> None:
    async with keeping(MemoryStore(), audit_expires_s=7200.0) as services:
        long, short = pair(3.0, 0.0, question="x" * LONGEST_TEXTS), pair(3.0, 0.0)
        assert len(await ids(services, [long, short])) == 2
        assert [question for question, *_ in (await shown(services)).values()] == [
            short.question[0].content
        ]
        assert [audit.wait_s for audit in audits(services.auditor)] == [3600.0, 7200.0]


async def test_a_label_or_closing_takes_the_texts_away_whatever_the_replica_keeps() -> None:
    store = MemoryStore()
    async with keeping(store) as services:
        one, two, three = await ids(services, traffic(range(3)))
        await label(services.auditor, (one, "A"))
        assert kept_keys(store) == {pair_of(two), pair_of(three)}
        # Another replica, in the other order, without the setting.
        swapped = f"{int(two, 16) ^ 1:032x}"
        await label(replica(store), (swapped, "none"))
        assert kept_keys(store) == {pair_of(three)}
        assert list(await shown(services)) == [three]


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


async def test_texts_of_expired_audits_are_removed_and_those_of_open_ones_stay() -> None:
    store = MemoryStore()
    async with keeping(store, audit_expires_s=1000.0) as services:
        labeled, kept = await ids(services, traffic(range(2)))
        await label(services.auditor, (labeled, "A"))
        for later, keys in ((900, {pair_of(kept)}), (1100, set[str]())):
            # Also if no service keeps texts any more.
            other = replica(store, seconds_later=later)
            await other.open()
            await remove_texts(other)
            assert kept_keys(store) == keys


async def test_texts_reach_no_row_no_log_and_no_metric(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with keeping(MemoryStore()) as services:
        (one,) = await ids(services, [pair(3.0, 0.0, question="a secret question")])
        await label(services.auditor, (one, "A"))
        await remove_texts(services.auditor)
        assert "secret" not in services.telemetry.exposition()[0].decode()
        rows = await services.store.audits("default", after=0, limit=10)
        assert rows
        assert "secret" not in str(rows)
    assert "secret" not in caplog.text
