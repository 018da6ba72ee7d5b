"""The draws of a secret are those of a keyed hash that anybody can compute with the secret."""

import hmac

import numpy as np

from app.audits.sampling import Sampler
from app.core.comparison import Case, Criterion
from app.core.fingerprint import JudgeIdentity, example_digest
from app.core.preference import Score, preference_from_gaps
from app.judging.judge import decide
from tests.labeled_examples import calibration_of
from tests.serving import pair
from tests.unit.audits.logs import MARGINAL, PAC


def test_the_draws_of_a_secret_are_the_same_in_each_release() -> None:
    secret = bytes(range(32))
    sampler = Sampler(secret, rate=0.5, fingerprint="f" * 64, expires_s=1.0)
    for criterion, spelled in (
        (MARGINAL, "marginal\x000x1.999999999999ap-4\0"),
        (PAC, "pac\x000x1.999999999999ap-4\x000x1.999999999999ap-4"),
    ):
        candidates = [candidate(each, criterion) for each in range(100)]
        drawn = [id(each.case) for each in sampler.drawn(candidates, at=0.0)]
        found = [id(each) in drawn for each in candidates]
        digests = [example_digest("f" * 64, each.comparison) for each in candidates]
        texts = [f"draw\0default\0{digest}\0w1\0{spelled}" for digest in digests]
        hashes = [hmac.digest(secret, text.encode(), "sha256") for text in texts]
        assert found == [each[0] < 0x80 for each in hashes]


def candidate(number: int, criterion: Criterion) -> Case:
    """A judgment by the version `w1`."""
    (preference,) = preference_from_gaps(np.array([1.0]), np.array([1.0])).rows()
    case = Case(
        pair(1.0, 0.0, question=f"Judged {number}?"),
        criterion,
        by="kim",
        calibration=calibration_of({}),
        threshold=0.0,
        score=Score(gap_fwd=1.0, gap_rev=1.0, label_mass=1.0),
        preference=preference,
    )
    judge = JudgeIdentity(name="demo", inputs={}, described={}, max_prompt_tokens=1)
    case.outcome = decide(case, min_label_mass=0.0, judge=judge)
    return case
