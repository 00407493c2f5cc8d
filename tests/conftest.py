"""What all tests share.  Being here puts `tests/` on the path, so that helpers beside it can be imported."""

import os
from pathlib import Path

import pytest
from length import one_forge

from agent import cgroups, filetree

ROOT = Path(__file__).resolve().parent.parent
# Programs that a test starts find `agent` too, wherever they run.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))


@pytest.fixture(autouse=True)
def deep_trees_are_removed(request):
    """pytest removes old temporary folders recursively: a tree deeper than the stack would fail a later run of it."""
    deep = hasattr(request.module, "make_deep") and "tmp_path" in request.fixturenames
    place = request.getfixturevalue("tmp_path") if deep else None
    yield
    if place is not None and place.exists():
        filetree.remove(place)


def pytest_sessionfinish():
    """Daemons that a test killed leave the control groups of their workers; whoever runs in one keeps it."""
    cgroups.remove("makimono-", cgroups.find())


def pytest_collection_modifyitems(config, items):
    """Whole runs that two forges have are done on one of them (`length.one_forge`), unless somebody names what to run."""
    if config.option.keyword or any("::" in one for one in config.args):
        return
    left = one_forge({item.nodeid for item in items if item.path.parent.name in ("flow", "crash")})
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left])
    items[:] = [item for item in items if item.nodeid not in left]
