"""The browser of a module."""

import pytest
from page_browser import browser


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("chromium")) as made:
        yield made
