"""Labelled audits of a period become examples, whoever labels others meanwhile."""

import pytest

from app.core.errors import AuditsIncompleteError
from app.service.auditing.absorption import Asked
from app.stores.memory import MemoryStore
from tests.serving import labelled as example
from tests.serving import services_of
from tests.unit.service.auditing import logs

# Draws at 1, 2, ..., 6 seconds; the last one is not labelled yet.
DRAWS, LABELLED = 6, 5


@pytest.mark.parametrize(
    ("asked", "taken"),
    [
        (Asked(until=6.0), 5),
        (Asked(until=5.0), 4),
        (Asked(until=4.999), 4),
        (Asked(since=2.0, until=5.0), 3),
        (Asked(since=5.0, until=6.0), 1),
        (Asked(since=5.0, until=5.0), 0),
        (Asked(until=1.0), 0),
        (Asked(), None),
        (Asked(since=5.0), None),
        (Asked(since=2.0, until=6.5), None),
    ],
)
async def test_only_a_draw_of_the_period_counts_or_must_have_a_label(
    asked: Asked, taken: int | None
) -> None:
    store = MemoryStore()
    async with services_of(store=store) as services:
        await services.calibrator.add("default", [example(1.0, "A", number=0)])
        fingerprint = services.identity.fingerprint
        draws = [logs.drawn(number, fingerprint=fingerprint) for number in range(1, DRAWS + 1)]
        labels = [logs.labelled(number, "A") for number in range(1, LABELLED + 1)]
        texts = [*(draw.text for draw in draws), *(label.text for label in labels)]
        await store.append_audits(texts)
        absorbing = services.absorber.absorb("default", asked, by="ana")
        if taken is None:
            with pytest.raises(AuditsIncompleteError, match=r"^1 of "):
                await absorbing
        else:
            report = await absorbing
            assert (report.change.batch.added, report.unlabelled) == (taken, 0)
