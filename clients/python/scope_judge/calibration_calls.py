"""The calls of the synchronous client that read and change calibration sets."""

from collections.abc import Iterable
from typing import Literal

from scope_judge.answers import CalibrationDetail, CalibrationReport
from scope_judge.comparisons import Example, Pair, alphas_query, calibrate_fields
from scope_judge.labelling import NextLabels, PoolReport
from scope_judge.service import Service
from scope_judge.transport import SyncTransport


class CalibrationCalls:
    """The part of `ScopeClient` that is about calibration sets."""

    _service: Service
    _transport: SyncTransport

    def calibrate(
        self,
        name: str,
        examples: Iterable[Example],
        *,
        label_noise: float | None = None,
        clusters: Literal["one", "adjusted", "ignore"] | None = None,
    ) -> CalibrationReport:
        """Adds labelled pairs to a calibration set.

        The service recognises a pair by its digest: posting it again updates its label and adds
        nothing. So a repeated request counts no example twice; its examples are then `updated`.

        Args:
            name: Name of the set; it is made if there is none.
            examples: Each is (question, a, b, label), or a mapping with question, response_a,
                response_b and label. A label is "A", "B" or "tie".
            label_noise: Probability that a label is wrong, for the whole set; by default it stays.
            clusters: How "pac" counts pairs of one question, for the whole set; by default the rule
                of the set stays.

        Raises:
            ScopeError: The service refuses the request, or does not answer for too long. Examples
                of earlier requests stay in the set; the same call adds the rest.
            TypeError: An example is none.
        """
        fields = calibrate_fields(name, label_noise, clusters)
        return self._transport.run(self._service.calibrate(fields, iter(examples)))

    def pool(self, name: str, pairs: Iterable[Pair]) -> PoolReport:
        """Adds pairs without labels to a calibration set; `next_to_label` says which to label.

        A pair that the set has keeps its label, so a repeated request changes nothing.

        Args:
            name: Name of the set; it is made if there is none.
            pairs: Each is (question, a, b), or a mapping with question, response_a, response_b.

        Raises:
            ScopeError: The service refuses the request, or does not answer for too long. Pairs of
                earlier requests stay in the set; the same call adds the rest.
            TypeError: A pair is none.
        """
        return self._transport.run(self._service.pool(name, iter(pairs)))

    def next_to_label(
        self,
        name: str = "default",
        *,
        alpha: float | None = None,
        delta: float | None = None,
        limit: int = 100,
    ) -> NextLabels:
        """The pairs of a pool to label next, or the threshold once the labels decide it.

        Add the labels with `calibrate`, and ask again until `complete`.

        Args:
            name: Name of the set.
            alpha: Alpha to label for, chosen before the first label; by default the service's.
            delta: Delta to label for, chosen before the first label; by default the service's.
            limit: Most pairs, from 1 to 10,000.

        Raises:
            ScopeError: The service refuses the request, or does not answer.
        """
        return self._transport.run(self._service.next_to_label(name, alpha, delta, limit))

    def calibration(
        self,
        name: str = "default",
        *,
        alphas: Iterable[float] = (),
        delta: float | None = None,
        delta_for: int | None = None,
    ) -> CalibrationDetail:
        """A calibration set with its thresholds and its risk-coverage curve.

        Args:
            name: Name of the set.
            alphas: Alphas whose "pac" thresholds the result has as `requested`. They share delta,
                so that all of them hold together, and you may choose one after a look.
            delta: Probability that any of them fails; by default the service's.
            delta_for: Number by which delta is divided for each; by default the number of alphas.

        Raises:
            ScopeError: There is no such set, or the service does not answer.
        """
        asked = alphas_query(alphas, delta, delta_for)
        return self._transport.run(self._service.calibration(name, asked))
