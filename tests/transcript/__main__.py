"""Compares what this code answers with what edffb7e7 answered.

Usage: python -m tests.transcript [--fast] [--record] [--all]

`--fast` leaves out the ratings and the evaluation, `--record` writes the expected answers anew,
and `--all` prints the meant differences, too.
"""

import sys

from tests.transcript.comparison import compare, record, transcript


def main() -> int:
    """Prints each difference; returns 1 if one of them is not meant."""
    options = set(sys.argv[1:])
    answers = transcript(fast="--fast" in options)
    if "--record" in options:
        record(answers)
        return 0
    differences = compare(answers)
    for difference in differences:
        if not difference.reason or "--all" in options:
            print(difference)
    open_ones = sum(not difference.reason for difference in differences)
    print(f"{len(answers)} answers, {len(differences)} differences, {open_ones} not meant")
    return 1 if open_ones else 0


if __name__ == "__main__":
    sys.exit(main())
