"""The files that name a version agree with the package."""

import re

import yaml

from app import __version__
from tests.unit.docs.markdown import ROOT


def test_every_file_names_the_same_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    releases = re.findall(r"^## (\d\S*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert citation["version"] == releases[0] == __version__
