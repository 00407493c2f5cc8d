"""No module decides by the name of a plug-in: a toy plug-in would be treated as something else than the one it
replaces.  What differs between plug-ins is an attribute of theirs, with a default for those that lack it."""

import ast
from pathlib import Path
from types import SimpleNamespace

import pytest

import agent
from agent.forge.base import FORGES
from agent.llm.base import CLIENTS
from agent.sandbox.base import SANDBOXES, Refused, Traits, traits_of
from agent.store.configured_ledger import LEDGERS
from agent.taskqueue.broker import BROKERS
from agent.values import TaskKey

TOP = Path(agent.__file__).parent
ROOMS = {
    "forge": FORGES,
    "llm": CLIENTS,
    "store": LEDGERS,
    "taskqueue": BROKERS,
    "sandbox": SANDBOXES,
}
"""Room → the registry whose entries it knows by name; `config` has a section for each, so it knows them all."""
KINDS = {"none", "refused", "bubblewrap"}
"""Names of sandboxes, which mean something else where no `kind` is compared."""


def names_elsewhere(room):
    return {name for own, registry in ROOMS.items() if own != room for name in registry.entries} - {"auto", "none"}


def compared(tree, names, kinds=KINDS):
    """(line, name) of each comparison with a name, and of each case of a `match`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            sides = [node.value]
        else:
            continue
        kind = any(isinstance(side, ast.Attribute) and side.attr == "kind" for side in sides)
        for part in (part for side in sides for part in ast.walk(side)):
            if isinstance(part, ast.Constant) and part.value in (names | kinds if kind else names):
                yield node.lineno, part.value


def test_only_its_own_room_compares_with_the_name_of_a_plug_in():
    found = []
    for path in sorted(TOP.rglob("*.py")):
        room = path.relative_to(TOP).parts[0]
        if room == "config":
            continue
        kinds = set() if room == "sandbox" else KINDS
        tree = ast.parse(path.read_text())
        found += [
            f"{path.relative_to(TOP)}:{line}: {name!r}" for line, name in compared(tree, names_elsewhere(room), kinds)
        ]
    assert found == []


@pytest.mark.parametrize("said", ['row.source == "local"', 'place.name in ("gitlab", "forgejo")', 'box.kind != "none"'])
def test_the_rule_finds_a_comparison(said):
    assert list(compared(ast.parse(said), names_elsewhere("worker")))


def test_a_source_of_somebody_else_is_a_folder_by_its_instance():
    assert TaskKey("toy", "local", "default", "issue", "1", "/srv/tracker").is_in_folder
    assert not TaskKey("local", "acme", "web", "issue", "1", "git.example").is_in_folder


def test_a_sandbox_of_somebody_else_isolates_and_has_programs_of_its_own():
    assert traits_of(object()) == Traits(isolates=True, refuses=False, has_host_programs=False, filters_calls=False)
    assert traits_of(Refused("")).refuses
    assert not traits_of(SANDBOXES.load("none")).isolates
    assert traits_of(SANDBOXES.load("bubblewrap")).isolates


@pytest.mark.parametrize(
    ("kind", "traits"),
    [
        ("none", Traits(isolates=False, has_host_programs=True)),
        ("refused", Traits(refuses=True)),
        ("bubblewrap", Traits(has_host_programs=True)),
        ("firecracker", Traits()),
    ],
)
def test_a_sandbox_from_before_the_traits_has_those_of_its_kind(kind, traits):
    """The contract had three kinds, and a plug-in that does not isolate said so by the kind `none`."""
    assert traits_of(SimpleNamespace(kind=kind, uid=None, reason="", advice="")) == traits
