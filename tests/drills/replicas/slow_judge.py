"""An OpenAI-compatible server of a known speed, which simulates a judge on a remote GPU.

python -m tests.drills.replicas.slow_judge PORT SECONDS_EACH

It handles one prompt at a time. Each takes that many seconds and almost no CPU.
"""

import asyncio
import sys

from tests.unit.judges.engines.openai_fake import FakeServer, serving

NAME = "the-judge"


async def serve(port: int, each_s: float) -> None:
    async with serving(FakeServer(name=NAME, port=port, each_s=each_s)):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), float(sys.argv[2])))
