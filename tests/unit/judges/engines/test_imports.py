"""Large packages are imported without garbage collection."""

import gc
from gc import freeze  # tests/conftest.py replaces `gc.freeze` after this import

import pytest

from app.judges.engines.imports import importing


def is_collected(made: object) -> bool:
    """Whether a garbage collection visits an object."""
    return any(each is made for each in gc.get_objects())


def test_a_first_import_is_not_interrupted_by_garbage_collection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gc, "freeze", freeze)
    with importing("no_such_package"):
        assert not gc.isenabled()
        # An import within an import.
        with importing("no_such_package"):
            assert not gc.isenabled()
        assert not gc.isenabled()
        made: list[object] = [[]]
        assert is_collected(made)
    assert gc.isenabled()
    assert not is_collected(made)
