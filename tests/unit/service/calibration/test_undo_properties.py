"""Every version of a set can be restored exactly, after any sequence of changes."""

import asyncio
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.calibration import Calibration
from app.core.comparison import Label
from app.core.errors import VersionNotFoundError
from app.judging.services import Services
from app.stores.memory import MemoryStore
from tests.serving import labelled, services_of


class Step(NamedTuple):
    """One change of the set by one replica."""

    action: Literal["add", "pool", "delete", "rollback"]
    labels: Mapping[int, Label] = MappingProxyType({})
    to: int = 1
    replica: int = 0


LABELS: tuple[Label, ...] = ("A", "B", "tie")
replicas = st.integers(0, 1)
steps = st.one_of(
    st.builds(
        Step,
        st.just("add"),
        labels=st.dictionaries(st.integers(1, 6), st.sampled_from(LABELS), max_size=4),
        replica=replicas,
    ),
    st.builds(
        Step,
        st.just("pool"),
        labels=st.dictionaries(st.integers(1, 6), st.just(LABELS[0]), max_size=4),
        replica=replicas,
    ),
    st.builds(Step, st.just("delete"), replica=replicas),
    st.builds(Step, st.just("rollback"), to=st.integers(1, 20), replica=replicas),
)


Content = dict[str, object]


def content(calibration: Calibration) -> Content:
    return dict(calibration.examples)


async def take(services: Services, step: Step) -> Calibration | None:
    """Makes the change; returns the set after it, or None after a deletion."""
    calibrator = services.calibrator
    if step.action == "add":
        batch = [labelled(0.3 * i, label, number=i) for i, label in step.labels.items()]
        report = await calibrator.add("set", batch)
        return report.calibration
    if step.action == "pool":
        pairs = [labelled(0.3 * i, "A", number=i).comparison for i in step.labels]
        return (await calibrator.pool("set", pairs)).outcome.calibration
    if step.action == "delete":
        await calibrator.delete("set")
        return None
    return await calibrator.rollback("set", step.to)


async def go_through(done: list[Step]) -> None:
    store = MemoryStore()
    # Number of the version -> content of the set; None for a deletion.
    remembered: dict[int, Content | None] = {}
    last, current = 0, None
    async with services_of(store=store) as one, services_of(store=store) as two:
        for step in done:
            if step.action == "delete" and current is None:
                continue
            if step.action == "rollback" and remembered.get(step.to) is None:
                continue
            after = await take((one, two)[step.replica], step)
            if after is None or after.version > last:
                last += 1
                remembered[last] = content(after) if after else None
            if after is not None and after.version > 0:
                assert after.version == last
                current = content(after)
            else:
                current = None
        changes = await one.calibrator.versions("set", before=None, limit=1000) if last else []
        assert [change.version for change in changes] == list(range(last, 0, -1))
        assert await store.last_number("set") == last
        for number, was in remembered.items():
            try:
                restored = await two.calibrator.rollback("set", number)
            except VersionNotFoundError:
                assert was is None, f"version {number} is lost"
            else:
                assert content(restored) == was
                assert content(await one.calibrations.get("set")) == was


@settings(max_examples=60)
@given(st.lists(steps, max_size=14))
def test_every_version_can_be_restored_after_any_changes(done: list[Step]) -> None:
    asyncio.run(go_through(done))
