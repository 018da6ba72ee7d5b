"""Tokens of links for reviewers: whoever has one may label one set under one name for a while.

    scope_link.PAYLOAD.SEAL

The service keeps nothing about a token. The payload says what it permits, and the seal is an HMAC
of the payload, whose secret comes from the stored hash of the key that made the token. So a token
is worth nothing without its key in the key file. The key file is enough to make tokens, so nobody
else may read it.
"""

import base64
import binascii
import hmac
import re
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

PREFIX = b"scope_link."
_TOKEN = re.compile(rb"scope_link\.(?P<payload>[\w-]{1,1024})\.(?P<seal>[\w-]{43})", re.ASCII)
# Part of each secret, so that another rule makes other seals.
_RULE = b"scope-judge label link 1"


class LabelLink(BaseModel):
    """The permission that a token gives.

    Args:
        calibration: The only calibration set that it is for.
        reviewer: Name of the person who labels.
        key: Name of the key that made it.
        expires: End of the permission, in seconds since 1970.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    calibration: str
    reviewer: str
    key: str
    expires: int

    def token(self, secret: bytes) -> str:
        """Writes the permission as a token, sealed with a secret of `secret_of`."""
        payload = base64.urlsafe_b64encode(self.model_dump_json().encode()).rstrip(b"=")
        return (PREFIX + payload + b"." + _seal(payload, secret)).decode()


@dataclass(frozen=True, kw_only=True, slots=True)
class SentToken:
    """A token that somebody has sent; nothing is checked."""

    payload: bytes
    seal: bytes

    @classmethod
    def of(cls, token: bytes) -> "SentToken | None":
        """Takes a token apart; returns None for other bytes."""
        parts = _TOKEN.fullmatch(token)
        return None if parts is None else cls(payload=parts["payload"], seal=parts["seal"])

    def is_sealed_with(self, secret: bytes) -> bool:
        """Whether the seal is one of this secret; takes the same time for each."""
        return hmac.compare_digest(self.seal, _seal(self.payload, secret))

    def link(self) -> LabelLink | None:
        """Reads the permission; call it only if the seal is right."""
        try:
            content = base64.urlsafe_b64decode(self.payload + b"=" * (-len(self.payload) % 4))
            return LabelLink.model_validate_json(content)
        except (binascii.Error, ValueError):
            # Sealed by another release.
            return None


def secret_of(key_hash: bytes) -> bytes:
    """The secret that seals the tokens of a key, from the hash of the key."""
    return hmac.digest(key_hash, _RULE, "sha256")


def _seal(payload: bytes, secret: bytes) -> bytes:
    return base64.urlsafe_b64encode(hmac.digest(secret, payload, "sha256")).rstrip(b"=")
