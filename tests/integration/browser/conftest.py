"""The browser of the desk's tests."""

from tests.integration.desk.conftest import browser

__all__ = ["browser"]
