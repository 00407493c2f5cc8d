"""Chromium of this machine, driven by Selenium, and the page of a home for it.

Nothing is downloaded: browser and driver are Debian's (`scripts/test-peers` installs them).  The browser reaches
loopback alone, since its proxy is a closed port, and its profile and home are temporary.  Without them a test skips
with the reason; with CI=1 it fails for root, who could have installed them.
"""

import json
import logging
import os
from contextlib import contextmanager
from pathlib import Path

import pytest
from page_home import served

from agent.dashboard import helper_process

ROOT = Path(__file__).resolve().parents[1]
CHROMIUM, DRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
AXE = ROOT / "tests" / "peers" / "node_modules" / "axe-core" / "axe.min.js"
WIDE, NARROW = (1280, 900), (360, 740)
ARGUMENTS = (
    *("--headless=new", "--disable-dev-shm-usage", "--disable-gpu", "--disable-extensions", "--disable-breakpad"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"),
    *("--disable-default-apps", "--no-default-browser-check", "--hide-scrollbars", "--proxy-server=http://127.0.0.1:9"),
    # each page of this one site in one process, none kept or started ahead: half of the processor time
    *("--renderer-process-limit=1", "--process-per-site", "--disable-component-extensions-with-background-pages"),
    "--disable-features=SpareRendererForSitePerProcess,BackForwardCache,OptimizationHints,Translate,MediaRouter",
)
SECONDS = 60


def need():
    """Skip, or fail, where a part is missing."""
    for path in (CHROMIUM, DRIVER, AXE):
        if not path.exists():
            why = f"{path} is not installed; scripts/test-peers installs it"
            if os.environ.get("CI") and os.geteuid() == 0:
                pytest.fail(why)
            pytest.skip(why)


class Browser:
    """One browser with one window.  `open` leads to a page; `watch` returns what went wrong since the last call."""

    def __init__(self, driver):
        self.driver = driver
        self.run = driver.execute_script
        self._size = self._scheme = None
        self.show(WIDE, "light")

    def order(self, name, **more):
        """One command of the DevTools protocol."""
        return self.driver.execute_cdp_cmd(name, more)

    def open(self, address):
        self.driver.get(address)

    def show(self, size, scheme):
        """Set the size of the window in pixels, and the colour scheme that the person prefers."""
        if size != self._size:
            width, height = self._size = size
            self.order(
                "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
            )
        if scheme != self._scheme:
            self._scheme = scheme
            self.order("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def set_scripts(self, on):
        self.order("Emulation.setScriptExecutionDisabled", value=not on)

    def one(self, selector):
        return self.driver.find_element("css selector", selector)

    def all(self, selector):
        return self.driver.find_elements("css selector", selector)

    def text(self, selector="main"):
        return self.one(selector).text

    def until(self, condition, seconds=20):
        """Wait until `condition()` is true; returns its value."""
        from selenium.common.exceptions import StaleElementReferenceException
        from selenium.webdriver.support.ui import WebDriverWait

        wait = WebDriverWait(self.driver, seconds, 0.2, ignored_exceptions=[StaleElementReferenceException])
        return wait.until(lambda _: condition())

    def until_gone(self, element):
        """Wait until an element belongs to no page any more: a form was sent, or a link followed."""
        from selenium.webdriver.support.expected_conditions import staleness_of

        self.until(lambda: staleness_of(element)(self.driver))

    def press(self, *keys):
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver, duration=0).send_keys(*keys).perform()

    def watch(self, site):
        """(messages of the console, addresses outside of `site` that were asked) since the last call."""
        said = [one["message"] for one in self.driver.get_log("browser")]
        asked = []
        for line in self.driver.get_log("performance"):
            event = json.loads(line["message"])["message"]
            if event["method"] in ("Network.requestWillBeSent", "Network.webSocketCreated"):
                what = event["params"]
                address = what["request"]["url"] if "request" in what else what["url"]
                if not address.startswith((site, "data:", "chrome:", "about:")):
                    asked.append(address)
        return said, asked

    def axe(self, *rules):
        """What axe-core finds on the whole page, closed parts opened: (rule, selector, explanation).  `rules`: only
        these."""
        if not self.run("return 'axe' in window"):
            self.run(AXE.read_text(encoding="utf-8"))
        self.run("for (const one of document.querySelectorAll('details')) one.open = true")
        found = self.driver.execute_async_script(
            "const done = arguments[arguments.length - 1];"
            "const more = arguments[0].length ? {runOnly: arguments[0]} : {};"
            "axe.run(document, {resultTypes: ['violations'], preload: false, iframes: false, ...more}).then("
            "  found => done(found.violations.map(one => [one.id, one.nodes[0].target.join(' '), one.nodes[0].failureSummary])),"
            "  error => done([['axe', '', String(error)]]))",
            list(rules),
        )
        return [tuple(one) for one in found]

    def sideways(self):
        """The elements that make the page wider than its window; [] if it does not scroll sideways."""
        return self.run(
            "const root = document.documentElement, most = root.clientWidth;"
            "if (root.scrollWidth <= most) return [];"
            "return [root.scrollWidth + ' > ' + most, ...[...document.querySelectorAll('body *')]"
            "  .filter(one => one.getBoundingClientRect().right > most + 1).slice(0, 5).map(one => one.outerHTML.slice(0, 200))]"
        )

    def picture(self, path):
        """Write what the window shows as a PNG."""
        path.write_bytes(self.driver.get_screenshot_as_png())


@contextmanager
def browser(folder):
    """A browser with its profile in `folder`, until the block ends."""
    need()
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for one in (*ARGUMENTS, f"--user-data-dir={folder / 'profile'}", *(["--no-sandbox"] if os.geteuid() == 0 else [])):
        options.add_argument(one)
    options.add_experimental_option("perfLoggingPrefs", {"enableNetwork": True, "enablePage": False})
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    kept = ("PATH", "LANG", "TZ")
    environ = {name: os.environ[name] for name in kept if name in os.environ} | {
        "HOME": str(folder),
        "TMPDIR": str(folder),
    }
    service = webdriver.ChromeService(executable_path=str(DRIVER), env=environ)
    driver = webdriver.Chrome(options=options, service=service)
    try:
        driver.set_page_load_timeout(SECONDS)
        driver.set_script_timeout(SECONDS)
        yield Browser(driver)
    finally:
        driver.quit()


@contextmanager
def dashboard(settings):
    """The page of a home with buttons, at a free port; gives its address, without the slash at the end.  No page may
    fail for a mistake of the program, which the server logs.

    What has a process of its own runs in this one, which takes a second less for each; `unit/dashboard` tests the
    processes."""
    failures = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = failures.append
    logger = logging.getLogger("uvicorn.error")
    logger.addHandler(handler)
    try:
        with pytest.MonkeyPatch.context() as patched, served(settings, has_actions=True) as page:
            patched.setattr(
                helper_process, "run", lambda settings, job, *more: helper_process.JOBS[job](settings, *more)
            )
            yield f"http://{page.name}"
    finally:
        logger.removeHandler(handler)
    assert [one.getMessage() for one in failures] == []
