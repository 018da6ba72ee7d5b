"""Names of the keys in Redis; `app.stores.redis` describes what they hold."""

from typing import NamedTuple

# The format of the store. A Redis with another number, or with sets and without one, is refused.
FORMAT = 1
FORMAT_KEY = "scope:format"
NAMES_KEY = "scope:sets"
AUDITED_KEY = "scope:audits:sets"
SECRET_KEY = "scope:audits:secret"
SCORE_PREFIX = "scope:score:"
DEBT_PREFIX = "scope:debt:"


class SetKeys(NamedTuple):
    """The keys of one set; in a cluster, the braces put them on one node."""

    trail: str
    versions: str
    thresholds: str

    @classmethod
    def of(cls, name: str) -> "SetKeys":
        """Returns the keys of the set with this name."""
        return cls(*(f"scope:{{{name}}}:{part}" for part in cls._fields))


class AuditKeys(NamedTuple):
    """The keys of the audits of one set."""

    rows: str
    order: str
    texts: str
    position: str

    @classmethod
    def of(cls, name: str) -> "AuditKeys":
        """Returns the keys of the set with this name."""
        parts = ("audits", "audit_order", "audit_texts", "audit_position")
        return cls(*(f"scope:{{{name}}}:{part}" for part in parts))
