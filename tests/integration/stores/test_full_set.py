"""A set as large as a set may be, on Redis."""

from contextlib import AsyncExitStack

from app.core.examples import MOST_PAIRS
from app.sets.change import JudgedBatch
from app.stores.redis import RedisStore
from tests.labeled_examples import labeled_example
from tests.redis_server import RedisServer
from tests.serving import labelled, pair, request, services_of


async def test_a_full_set_on_redis_decides_changes_and_comes_back(
    redis_server: RedisServer,
) -> None:
    examples = [
        # Every 20th label is wrong.
        (
            f"{number:064x}",
            labeled_example(number % 997 / 250, 1.0, 0.99, "A" if number % 20 else "B"),
        )
        for number in range(1, MOST_PAIRS)
    ]
    async with AsyncExitStack() as stack:
        stores = [RedisStore(redis_server.url) for _ in range(2)]
        for store in stores:
            stack.push_async_callback(store.close)
        one, other = [await stack.enter_async_context(services_of(store=each)) for each in stores]
        batch = JudgedBatch(examples=examples, fingerprint=one.identity.fingerprint)
        await one.calibrator.put("default", batch, by="ana")
        case = await other.judge.judge(request(pair(4.0, 0.0)))
        assert case.judgment.verdict == "A"
        await other.calibrator.add("default", [labelled(1.0, "A", number=1)])
        await one.calibrator.delete("default")
        assert (await other.calibrator.rollback("default", 2)).calibration.n == MOST_PAIRS
