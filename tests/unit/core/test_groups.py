"""The declared groups of the traffic: valid names, few of them, and no other."""

import pytest

from app.core.groups import MOST_GROUPS, declared_groups, undeclared_group


def test_several_sources_declare_groups_together() -> None:
    assert declared_groups() == ()
    assert declared_groups(["math", "code"], ["code", "a.b-c_1"]) == ("a.b-c_1", "code", "math")
    names = [f"g{k}" for k in range(MOST_GROUPS)]
    assert len(declared_groups(names, names[:3])) == MOST_GROUPS
    with pytest.raises(ValueError, match="17 groups, and at most 16"):
        declared_groups(names, ["one-more"])


@pytest.mark.parametrize(
    "name", ["", " ", "two words", "-math", "m\u00e4th", "math\n", "a/b", "x" * 65, "all"]
)
def test_a_name_that_is_not_valid_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"name of a group|whole set"):
        declared_groups([name])


def test_an_undeclared_group_is_an_error_that_names_the_declared_ones_only() -> None:
    assert undeclared_group(None, ()) is None
    assert undeclared_group("math", ("code", "math")) is None
    wrong = undeclared_group("secret", ("math", "code"))
    assert wrong is not None
    assert "code, math" in wrong.detail
    assert "secret" not in wrong.detail
    assert wrong.faults[0][0] == "group"
    none = undeclared_group("secret", ())
    assert none is not None
    assert "SCOPE_GROUPS" in none.detail
