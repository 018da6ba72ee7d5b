"""Runs `scope-judge serve` with labels that count at once: `python -m tests.serve_at_once`."""

import sys

from app.cli import main
from tests.completed_questions import complete_questions

if __name__ == "__main__":
    complete_questions()
    sys.argv = ["scope-judge", "serve"]
    main()
