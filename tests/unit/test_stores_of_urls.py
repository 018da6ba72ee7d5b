"""Store URLs: which stores several machines can share, and the answer to an unknown scheme."""

import pytest

from app.core.errors import StartupError
from app.wiring.stores import is_own_file, is_shared, make_store


@pytest.mark.parametrize(
    ("url", "shared", "own_file"),
    [
        ("redis://store:6379/0", True, False),
        ("rediss://store:6379/0", True, False),
        # One machine can open the socket, but several replicas on it can share the store.
        ("unix:///run/redis.sock", False, False),
        ("sqlite:///file.db", False, True),
        ("memory://", False, False),
    ],
)
def test_a_url_says_whether_machines_can_share_its_store(
    url: str, shared: bool, own_file: bool
) -> None:
    assert is_shared(url) is shared
    assert is_own_file(url) is own_file


def test_an_unknown_scheme_is_answered_with_every_known_one() -> None:
    with pytest.raises(StartupError) as caught:
        make_store("postgres://store/0")
    for url in ("sqlite:///", "redis://", "rediss://", "unix:///", "memory://"):
        assert url in caught.value.detail
