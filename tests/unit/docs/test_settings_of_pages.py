"""Every SCOPE_* variable that a page names is one that the service, the client or Compose reads."""

import re

from app.settings import VARIABLES
from scope_judge.reward_source import VARIABLES as OF_REWARDS
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


def test_pages_name_no_variable_that_nothing_reads() -> None:
    unknown = {
        str(page.relative_to(ROOT)): names
        for page in files()
        if (names := set(_NAME.findall(page.read_text(encoding="utf-8"))) - KNOWN)
    }
    assert unknown == {}
