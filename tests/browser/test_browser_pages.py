"""Every page in Chromium, with hostile text in every place that comes from outside: nothing runs, nothing leaves
loopback, the console says nothing, axe-core finds nothing in light and dark, and no page scrolls sideways on a phone."""

from contextlib import closing

import pytest
from page_browser import NARROW, WIDE, dashboard
from page_tasks import FAILED, MARK, PAUSED, RUNNING, TasksHome, hostile

PARTS = (
    *("", "/plan", "/change", "/request", "/compactions", "/compactions/1", "/requests", "/memory", "/deliberations"),
    *("/effects", "/log", "/messages/3", "/messages/5"),
)
PAGES = (
    *("/tasks", "/tasks?status=failed&text=report", "/tasks?text=none-is-like-this", "/memory", "/memory?text=rounded"),
    *(
        "/memory/RECORD",
        "/health",
        "/health/machine",
        "/login",
        "/no-such-page",
        f"/tasks/{PAUSED}",
        f"/tasks/{FAILED}",
    ),
    *(f"/tasks/{RUNNING}{part}" for part in PARTS),
)

LAYOUT_AND_COLOUR = (
    "color-contrast",
    "target-size",
    "scrollable-region-focusable",
    "td-headers-attr",
    "link-in-text-block",
)
"""The rules of axe-core whose answer depends on colours and on the width of the window."""


@pytest.fixture(scope="module")
def home(chromium, tmp_path_factory):
    with closing(TasksHome(tmp_path_factory.mktemp("hostile"), hostile)) as made:
        yield made


@pytest.fixture(scope="module")
def site(home):
    with dashboard(home.settings) as address:
        yield address


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_safe_accessible_and_fits_a_phone(chromium, site, home, path):
    chromium.watch(site)
    chromium.show(WIDE, "light")
    chromium.open(site + path.replace("RECORD", home.record))
    assert chromium.one("h1").text
    if path.startswith((f"/tasks/{RUNNING}", "/memory/RECORD")):
        shown = chromium.run("return document.body.textContent")
        assert f"<script>{MARK}=1</script>" in shown, "the text is not there, so nothing was tested"
        assert "{{ 7 * 7 }}" in shown
        assert not {"\x00", "\x1b", "\u202e"} & set(shown)
    assert chromium.axe() == []
    assert chromium.sideways() == []
    chromium.show(NARROW, "dark")
    assert chromium.axe(*LAYOUT_AND_COLOUR) == []
    assert chromium.sideways() == []
    assert chromium.run(f"return typeof {MARK}") == "undefined"
    protocols = "return [...new Set([...document.links].map(one => one.protocol))]"
    assert set(chromium.run(protocols)) <= {"http:", "https:"}
    own = "return [...document.querySelectorAll('script, style, link, iframe, object, base, meta[http-equiv]')].map(one => one.outerHTML)"
    assert len(chromium.run(own)) == 3, "the style sheet, the icon and the script of the page"
    said, asked = chromium.watch(site)
    assert asked == []
    assert [one for one in said if "404" not in one or path != "/no-such-page"] == []


FAULTY = (
    f"<!DOCTYPE html><title>x</title><script>{MARK}=1; console.error('noticed')</script><p style='color:%23eee'>pale</p>"
    "<img src=http://192.0.2.1/x.png><div style='width:2000px'>wide</div>"
)


def test_the_browser_notices_what_these_tests_look_for(chromium, site):
    chromium.show(NARROW, "light")
    chromium.open(f"data:text/html,{FAULTY}")
    assert chromium.run(f"return {MARK}") == 1
    assert {"color-contrast", "image-alt"} <= {rule for rule, *_ in chromium.axe()}
    assert "wide" in chromium.sideways()[-1]
    said, asked = chromium.watch(site)
    assert "noticed" in "".join(said)
    assert asked == ["http://192.0.2.1/x.png"]
    chromium.open(f"{site}/login")
    chromium.run(f"document.body.insertAdjacentHTML('beforeend', '<p style=\"color:red\" onclick=\"{MARK}=1\">x</p>')")
    chromium.run("document.querySelector('[onclick]').click()")
    assert chromium.run(f"return typeof {MARK}") == "undefined"
    assert "Content Security Policy" in "".join(chromium.watch(site)[0])
