"""The query that asks for the thresholds of several alphas together."""

from typing import Annotated

from pydantic import ConfigDict, Field

from app.wire.requests import DeltaFor, Probability, Strict, invalid_field, shared_delta

# Each threshold is a computation of a few milliseconds.
_MOST_ALPHAS = 32


class AlphasQuery(Strict):
    """Alphas whose `pac` thresholds are asked for together, in the URL."""

    # The values of a URL are texts.
    model_config = ConfigDict(strict=False)
    alpha: Annotated[
        list[Probability],
        Field(
            default_factory=list,
            max_length=_MOST_ALPHAS,
            description="An alpha whose `pac` threshold is wanted; may be given several times.",
        ),
    ]
    delta: Annotated[
        Probability | None,
        Field(description="Probability with which any of them may fail."),
    ] = None
    delta_for: Annotated[
        DeltaFor,
        Field(
            description="Number by which `delta` is divided for each alpha; by default the number "
            "of alphas, so that all of them hold together."
        ),
    ] = None

    def levels(self, default_delta: float) -> list[tuple[float, float]]:
        """Each alpha once, in order, with its share of delta.

        Raises:
            InvalidRequestError: There is a delta without an alpha, or it cannot be divided.
        """
        alphas = list(dict.fromkeys(self.alpha))
        if not alphas:
            for field in ("delta", "delta_for"):
                if getattr(self, field) is not None:
                    raise invalid_field(
                        field, "only allowed with alpha, e.g. ?alpha=0.1&alpha=0.15"
                    )
            return []
        delta = default_delta if self.delta is None else self.delta
        share = shared_delta(delta, self.delta_for or len(alphas))
        return [(alpha, share) for alpha in alphas]
