"""Every SCOPE_* variable that a page names is one that the service, the client or Compose reads."""

import re
from pathlib import Path

import pytest

from app.settings import VARIABLES
from scope_judge.reward_settings import VARIABLES as OF_REWARDS
from tests.unit.docs.markdown import ROOT, files

# SCOPE_REWARD_* names several.
_NAME = re.compile(r"\bSCOPE_[A-Z0-9_]*[A-Z0-9](?![A-Z0-9_*])")
_COMPOSE = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
KNOWN = {
    *VARIABLES,
    *OF_REWARDS.values(),
    "SCOPE_URL",
    "SCOPE_API_KEY",
    *re.findall(r"\$\{(SCOPE_\w+):-", _COMPOSE),
}


def unknown(text: str) -> set[str]:
    return set(_NAME.findall(text)) - KNOWN


@pytest.mark.parametrize("page", files(), ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_names_no_variable_that_nothing_reads(page: Path) -> None:
    assert unknown(page.read_text(encoding="utf-8")) == set()


def test_a_misspelt_variable_of_a_page_is_noticed() -> None:
    text = "`SCOPE_*`, SCOPE_REWARD_*; SCOPE_URL=x SCOPE_PUBLISH=y SCOPE_AUDITS_RATE=0.1 serve"
    assert unknown(text) == {"SCOPE_AUDITS_RATE"}
