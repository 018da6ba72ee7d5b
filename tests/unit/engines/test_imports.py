"""Large packages are imported without garbage collection."""

import gc

import pytest

from app.engines.imports import importing


def test_a_first_import_is_not_interrupted_by_garbage_collection() -> None:
    frozen = gc.get_freeze_count()
    with importing("no_such_package"):
        assert not gc.isenabled()
        # An import within an import.
        with importing("no_such_package"):
            assert not gc.isenabled()
        assert not gc.isenabled()
        made: list[object] = [[]]
    assert gc.isenabled()
    assert gc.get_freeze_count() > frozen
    assert made == [[]]


def test_garbage_collection_goes_on_where_the_package_has_been_imported() -> None:
    frozen = gc.get_freeze_count()
    with importing("os", "sys"):
        assert gc.isenabled()
    assert gc.get_freeze_count() == frozen


def test_garbage_collection_is_on_after_an_import_that_fails() -> None:
    with pytest.raises(ImportError), importing("no_such_package"):
        raise ImportError
    assert gc.isenabled()
