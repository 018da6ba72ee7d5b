"""Copies of the ledger in columns, so that any thread may compute with them."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class DrawColumns(NamedTuple):
    """The draws of all sets, by row.

    Args:
        label: Shape (n,). Code of the present label.
        labelled_at: Shape (n,). Time of the first label; 0 without a label.
        gap_fwd: Shape (n,). Logit of response_a minus that of response_b, response_a shown first.
        gap_rev: Shape (n,). Logit of response_a minus that of response_b, response_a shown second.
    """

    label: NDArray[np.uint8]
    labelled_at: NDArray[np.float64]
    gap_fwd: NDArray[np.float64]
    gap_rev: NDArray[np.float64]


class UseColumns(NamedTuple):
    """The uses of one criterion under one version, in the order of the log.

    Args:
        rows: Shape (n,). Row of the draw in `DrawColumns`.
        accepted: Shape (n,). Whether the judgment has a verdict.
        at: Shape (n,). Time of the judgment, in seconds since 1970.
        label_noise: Shape (n,). Label noise of the version.
    """

    rows: NDArray[np.int64]
    accepted: NDArray[np.bool_]
    at: NDArray[np.float64]
    label_noise: NDArray[np.float64]
