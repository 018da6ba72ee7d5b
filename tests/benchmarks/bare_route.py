"""The fastest possible FastAPI /judge: validates the same request and returns the same JSON.

`python -m tests.benchmarks.bare_route PORT` starts it. The single requests of our service are
compared with it.
"""

import sys

import uvicorn
from fastapi import FastAPI

from app.wire.answers import CalibrationReferenceOut, JudgmentOut
from app.wire.requests import JudgeIn

app = FastAPI()


@app.get("/readyz")
async def ready() -> dict[str, str]:
    return {"status": "ready"}


@app.post("/judge")
async def judge(body: JudgeIn) -> JudgmentOut:
    return JudgmentOut(
        id=body.id,
        verdict="A",
        preferred="A",
        reason=None,
        p_fwd=0.7310585786300049,
        p_rev=0.7109495026250039,
        p_bar=0.7210040406275044,
        uncertainty=0.5921372634570326,
        confidence=0.7210040406275044,
        threshold=0.6432510913223418,
        alpha=0.1,
        guarantee="marginal",
        delta=None,
        risk_level=0.0823045267489712,
        label_mass=0.99,
        calibration=CalibrationReferenceOut(name="default", version=1, n=400),
        judge="scripted",
        audit=None,
    )


if __name__ == "__main__":
    # The same settings as app/cli/serve.py.
    config = uvicorn.Config(
        app, port=int(sys.argv[1]), log_level="info", timeout_graceful_shutdown=30
    )
    uvicorn.Server(config).run()
