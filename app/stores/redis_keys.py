"""Names of the keys in Redis; `app.stores.redis` describes what they hold."""

from typing import NamedTuple

NAMES_KEY = "scope:sets"
AUDITS_KEY = "scope:audits"
AUDIT_TEXTS_KEY = "scope:audits:texts"
SECRET_KEY = "scope:audits:secret"
SCORE_PREFIX = "scope:score:"


class SetKeys(NamedTuple):
    """The keys of one set; in a cluster, the braces put them on one node."""

    trail: str
    versions: str
    thresholds: str

    @classmethod
    def of(cls, name: str) -> "SetKeys":
        """Returns the keys of the set with this name."""
        return cls(*(f"scope:{{{name}}}:{part}" for part in cls._fields))
