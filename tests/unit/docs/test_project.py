"""The files for people who carry the project on agree with each other and with the package."""

import re
import tomllib
from importlib.resources import files
from typing import Any

import yaml

from app import __version__
from tests.unit.docs.markdown import ROOT

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_every_file_names_the_same_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    releases = re.findall(r"^## (\d\S*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert citation["version"] == releases[0] == __version__


def test_the_changelog_keeps_a_place_for_what_is_unreleased() -> None:
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "Unreleased"


def test_the_citation_has_the_software_and_the_paper() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["license"] == PROJECT["license"]
    (paper,) = citation["references"]
    assert [each["family-names"] for each in paper["authors"]] == ["Badshah", "Emami", "Sajjad"]


def test_the_package_says_that_it_is_typed() -> None:
    assert (files("app") / "py.typed").is_file()


def test_hooks_and_workflow_run_the_projects_own_commands() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    (local,) = hooks["repos"]
    assert local["repo"] == "local", "a hook from elsewhere would be downloaded"
    assert [hook["id"] for hook in local["hooks"]] == ["ruff-check", "ruff-format", "mypy"]
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    commands = [
        step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step
    ]
    assert "make test" in commands
    assert any("make serve" in command and "/judge" in command for command in commands)
