"""Fixtures and settings of all tests.  A conftest.py here puts `tests/` on the import path, so that tests can import
the helpers beside it."""

import gc
import json
import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from length import not_this_turn, one_forge

from agent import cgroups, filetree, proc

# A shell starts background processes with these signals ignored, and their children inherit that.  A signal that has a
# handler here has the default action in a child.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)

# A busy machine is no fault: no property fails because an example, or making one, took long.
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")

# A hook of git runs its programs with GIT_DIR and the like, so git processes of tests would work on its repository.
for _name in [name for name in os.environ if name.startswith("GIT_") and not name.startswith("GIT_SSL")]:
    del os.environ[_name]

ROOT = Path(__file__).resolve().parent.parent
# Programs that a test starts can import `agent`, too, in any folder.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))


@pytest.fixture(autouse=True)
def deep_trees_are_removed(request):
    """Remove deep trees.  pytest removes old temporary folders recursively, so a tree deeper than the stack would make
    a later run fail."""
    deep = hasattr(request.module, "make_deep") and "tmp_path" in request.fixturenames
    place = request.getfixturevalue("tmp_path") if deep else None
    yield
    if place is not None and place.exists():
        filetree.remove(place)


@pytest.fixture(autouse=True)
def orphans_go_to_init():
    """Make this process an ordinary parent again.  A sandbox that a test uses in this process makes it a subreaper, and
    a supervisor of a later test would then reap processes that this test started and waits for."""
    yield
    if proc.reaps():
        pr_set_child_subreaper = 36
        proc.libc().prctl(pr_set_child_subreaper, 0, 0, 0, 0)


@pytest.fixture(scope="session", autouse=True)
def control_groups_are_removed(tmp_path_factory):
    """Remove the workers' control groups that killed daemons left behind, but not those of another test run."""
    yield
    from agent.worker import process_groups

    places = cgroups.find()
    if not any(any(place.folder.glob("makimono-*")) for place in places.distinct_parents()):
        return
    for depth in ("*", "*/*", "*/*/*"):
        for base_dir in tmp_path_factory.getbasetemp().glob(f"{depth}/contexts"):
            process_groups.remove(base_dir)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Import and collect the tests without the garbage collector, and leave them out of its later work: each of its
    runs would visit all modules and tests, and none of them is garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config, items):
    """Run a whole run or a test of `intake` that exists for two forges on one of them (`length.one_forge`), unless the
    command line names the test; without a path on the command line, take some files by turns
    (`length.not_this_turn`)."""
    if config.option.keyword:
        return
    left = one_forge({item.nodeid for item in items if item.path.parent.name in ("flow", "crash", "intake")})
    if not config.option.file_or_dir:
        later = not_this_turn()
        left |= {item.nodeid for item in items if item.nodeid.partition("::")[0] in later}
    parts = [one.partition("::") for one in config.args if "::" in one]
    named = [f"{os.path.relpath(config.invocation_params.dir / path, ROOT)}::{name}" for path, _, name in parts]
    left -= {one for one in left if any(f"{one}[".startswith((f"{name}[", f"{name}::")) for name in named)}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left])
    items[:] = [item for item in items if item.nodeid not in left]


_failed = {}


def pytest_runtest_logreport(report):
    if report.failed:
        _failed[report.nodeid] = report.when


def pytest_sessionfinish(session):
    """Write the ids of the failed tests into the file that `scripts/test` names, for `scripts/repeat_failed.py`."""
    place = os.environ.get("MAKIMONO_FAILED_TESTS")
    if place and not hasattr(session.config, "workerinput"):  # a process of xdist reports to the one that started it
        Path(place).write_text(json.dumps(list(_failed)), encoding="utf-8")
