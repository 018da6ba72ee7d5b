"""Draws docs/measured/example-report/figures.png: the report's figures, as Chromium shows them.

Usage: python docs/tools/make_example_figures.py      (needs chromium)
"""

import re
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

FOLDER = Path(__file__).resolve().parents[1] / "measured" / "example-report"
SIZE = (1000, 860)


def main() -> None:
    """Takes the style and the figures out of the report, and writes the picture."""
    report = (FOLDER / "report.html").read_text(encoding="utf-8")
    style = re.search(r"<style>.*?</style>", report, re.DOTALL)
    plots = re.search(r'<div class="plots">.*?(?=\n<h[23]>)', report, re.DOTALL)
    assert style is not None
    assert plots is not None, "the report has no figures"
    page = f"<!doctype html><meta charset=utf-8>{style[0]}<style>body{{padding:0 1rem}}</style>"
    with TemporaryDirectory() as folder:
        file = Path(folder) / "figures.html"
        file.write_text(page + plots[0], encoding="utf-8")
        width, height = SIZE
        subprocess.run(
            [
                "chromium",
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                f"--user-data-dir={folder}/profile",
                f"--window-size={width},{height}",
                f"--screenshot={FOLDER / 'figures.png'}",
                file.as_uri(),
            ],
            check=True,
            capture_output=True,
            timeout=120,
        )
    print(FOLDER / "figures.png")


if __name__ == "__main__":
    main()
