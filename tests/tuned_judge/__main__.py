"""`python -m tests.tuned_judge` makes the tuned judge's checkpoint, and prints its folder."""

import sys

from tests.real_judge import UnavailableJudgeError
from tests.tuned_judge.checkpoint import tuned_judge

if __name__ == "__main__":
    try:
        print(tuned_judge())
    except UnavailableJudgeError as exc:
        sys.exit(f"error: {exc}")
