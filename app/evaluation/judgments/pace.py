"""The size of the next chunk of questions: as many as the judge answers in a few seconds."""

# Answers of a chunk are saved together, so a killed run loses at most a few seconds of work.
CHUNK_S = 5.0
# Larger chunks do not make a fast judge faster.
MOST_PAIRS = 64
_FIRST_PAIRS = 4


class ChunkPace:
    """Follows the speed of a judge; starts with small chunks, so that progress shows early.

    Args:
        chunk_s: Time in seconds that a chunk should take.
    """

    def __init__(self, chunk_s: float = CHUNK_S) -> None:
        self._chunk_s = chunk_s
        self.pairs = _FIRST_PAIRS

    def note(self, pairs: int, seconds: float) -> None:
        """Updates `pairs`, the size of the next chunk.

        Args:
            pairs: Number of pairs of a finished chunk, at least 1.
            seconds: Time that the chunk took.
        """
        fitting = MOST_PAIRS if seconds <= 0 else int(self._chunk_s * pairs / seconds)
        # At most four times as large: a few pairs say little about the speed of many.
        self.pairs = max(1, min(fitting, 4 * pairs, MOST_PAIRS))
