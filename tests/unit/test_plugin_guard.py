"""Plug-ins are imported only as they were pinned: each change is refused before any code runs."""

import importlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path

import pytest
from llm_servers import Heard

from agent.commands import doctor_plug_ins
from agent.commands.solve import ask_the_surroundings
from agent.config import load, settings_of
from agent.config.plug_ins import check_plug_ins, plug_ins_of
from agent.daemon.daemon import Daemon
from agent.errors import ConfigError, PlugInRefused
from agent.plugin_files import find
from agent.plugin_guard import LOCK, PluginGuard

RAN = []
"""Module-level code of the plug-ins below appends to this list."""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder of sys.path for plug-ins; their modules are gone afterwards."""
    made = tmp_path / "site"
    made.mkdir(mode=0o755)
    monkeypatch.syspath_prepend(str(made))
    before = set(sys.modules)
    finders = list(sys.meta_path)
    RAN.clear()
    yield made
    sys.meta_path[:] = finders
    for name in set(sys.modules) - before:
        del sys.modules[name]
    importlib.invalidate_caches()


@pytest.fixture
def guard(tmp_path):
    return PluginGuard(tmp_path)


def module(place, name, text="", word="first"):
    path = place / name
    path.parent.mkdir(parents=True, exist_ok=True)
    code = f"import {__name__.rpartition('.')[2]} as test\ntest.RAN.append({word!r})\n"
    path.write_text(code + textwrap.dedent(text))
    importlib.invalidate_caches()
    return path


@pytest.fixture(autouse=True)
def _known(monkeypatch):
    monkeypatch.setitem(sys.modules, __name__.rpartition(".")[2], sys.modules[__name__])


THING = "class Thing:\n    pass\n"


def test_a_pinned_plug_in_is_imported_and_one_without_a_pin_is_not(place, guard):
    module(place, "one_file.py", THING)
    with pytest.raises(
        PlugInRefused, match=r"llm provider: the plug-in one_file:Thing .* is not pinned; look at it"
    ) as caught:
        guard.load("llm provider", "one_file:Thing")
    assert "./main.py plugins pin" in str(caught.value)
    assert RAN == []
    (found,) = guard.pin(["one_file:Thing"])
    assert (found.state, found.files, RAN) == ("pinned", 1, [])
    assert guard.load("llm provider", "one_file:Thing").__name__ == "Thing"
    assert guard.load("llm provider", "one_file:Thing") is guard.load("llm provider", "one_file:Thing")
    assert RAN == ["first"]


def test_the_programs_own_classes_need_no_pin(guard):
    assert guard.load("sandbox", "agent.sandbox.unconfined:Unconfined").__name__ == "Unconfined"


def test_a_changed_module_and_a_changed_neighbour_are_refused_before_they_run(place, guard):
    module(place, "packed/__init__.py", word="package")
    module(place, "packed/inner/thing.py", "from packed import helper\n" + THING, word="thing")
    module(place, "packed/helper.py", word="helper")
    (place / "packed" / "data.txt").write_text("1")
    target = "packed.inner.thing:Thing"
    guard.pin([target])
    for path, why in (
        (place / "packed/inner/thing.py", "thing.py has changed"),
        (place / "packed/helper.py", "another file of the package packed"),
        (place / "packed/data.txt", "another file of the package packed"),
    ):
        before = path.read_text()
        path.write_text(before + "\n")
        with pytest.raises(PlugInRefused, match=why):
            guard.load("layer", target)
        path.write_text(before)
    (place / "packed" / "new.py").write_text("")
    with pytest.raises(PlugInRefused, match="another file of the package packed"):
        guard.load("layer", target)
    (place / "packed" / "new.py").unlink()
    assert RAN == []
    assert guard.load("layer", target).__module__ == "packed.inner.thing"
    assert RAN == ["package", "thing", "helper"]


def test_what_is_hashed_is_what_is_imported(place, guard):
    """A file that is exchanged after the check is not run, also by a later import."""
    module(place, "packed/__init__.py", word="package")
    late = module(place, "packed/late.py", word="late")
    guard.pin(["packed:test"])
    guard.load("layer", "packed:test")
    late.write_text(late.read_text().replace("late", "evil"))
    with pytest.raises(ImportError, match="has changed since it was checked"):
        importlib.import_module("packed.late")
    (place / "packed" / "more.py").write_text("import nothing")
    with pytest.raises(ModuleNotFoundError, match="not among the files that were checked"):
        importlib.import_module("packed.more")
    assert RAN == ["package"]


def test_compiled_byte_code_on_disk_is_not_used(place, guard):
    path = module(place, "one_file.py", THING, word="evil")
    importlib.import_module("one_file")  # leaves byte code with the time and size of the source
    del sys.modules["one_file"]
    RAN.clear()
    status = path.stat()
    path.write_text(path.read_text().replace("evil", "good"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    importlib.invalidate_caches()
    guard.pin(["one_file:Thing"])
    guard.load("layer", "one_file:Thing")
    assert RAN == ["good"]


def test_a_compiled_module_is_loaded_from_the_bytes_that_were_hashed(place, guard, tmp_path):
    source = next(
        (one for one in Path(sysconfig.get_path("platlib")).rglob("_yaml*.so")),
        None,
    )
    assert source is not None, "PyYAML has a compiled module"
    (place / "yaml_copy").mkdir()
    (place / "yaml_copy" / "__init__.py").write_text("")
    copy = place / "yaml_copy" / source.name
    shutil.copy(source, copy)
    code = (
        "import sys; from pathlib import Path; from agent.plugin_guard import PluginGuard\n"
        "guard = PluginGuard(Path(sys.argv[1]))\n"
        "guard.pin(['yaml_copy._yaml:CParser'])\n"
        "if len(sys.argv) > 2: open(sys.argv[2], 'ab').write(b'x')\n"
        "print(guard.load('layer', 'yaml_copy._yaml:CParser').__name__)\n"
    )
    env = {"PYTHONPATH": f"{place}:{Path(__file__).parents[2]}", "PATH": os.environ["PATH"]}

    def run(*more):
        command = [sys.executable, "-c", code, str(tmp_path), *more]
        return subprocess.run(command, capture_output=True, text=True, env=env, check=False)

    done = run()
    assert done.stdout.strip() == "CParser", done.stderr
    assert "has changed" in run(str(copy)).stderr


def test_a_module_in_a_folder_without_a_package_is_pinned_alone(place, guard):
    module(place, "loose/one.py", THING)
    (place / "loose" / "notes.txt").write_text("x")
    guard.pin(["loose.one:Thing"])
    (place / "loose" / "notes.txt").write_text("y")
    assert guard.load("layer", "loose.one:Thing")
    assert find("loose.one:Thing").prefix == "loose.one"


@pytest.mark.parametrize("name", ["packed", "packed/__init__.py", "packed/thing.py", "."])
def test_files_and_folders_that_others_may_write_are_refused(place, guard, name):
    module(place, "packed/__init__.py")
    module(place, "packed/thing.py", THING)
    guard.pin(["packed.thing:Thing"])
    path = place / name
    path.chmod(path.stat().st_mode | 0o002)
    for call in (lambda: guard.load("layer", "packed.thing:Thing"), lambda: guard.pin(["packed.thing:Thing"])):
        with pytest.raises(PlugInRefused, match="every user may write it"):
            call()
    assert guard.compare_with_pins(["packed.thing:Thing"])[0].state == "refused"
    assert RAN == []


def test_links_fifos_and_a_lock_that_others_may_write_are_refused(place, guard):
    module(place, "packed/__init__.py", THING)
    guard.pin(["packed:Thing"])
    os.mkfifo(place / "packed" / "pipe")
    with pytest.raises(PlugInRefused, match="is no regular file"):
        guard.load("layer", "packed:Thing")
    (place / "packed" / "pipe").unlink()
    (place / "packed" / "link.py").symlink_to("/etc/passwd")
    with pytest.raises(PlugInRefused, match=r"link.py: cannot be read, or is a symlink"):
        guard.load("layer", "packed:Thing")
    (place / "packed" / "link.py").unlink()
    guard.path.chmod(0o666)
    with pytest.raises(PlugInRefused, match=r"plugins.lock: every user may write it"):
        guard.load("layer", "packed:Thing")
    assert RAN == []


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 2, "plug_ins": {}}', '{"format": 1}', "x" * 100])
def test_a_damaged_lock_file_is_refused(place, guard, text):
    module(place, "one_file.py", THING)
    guard.path.write_text(text)
    with pytest.raises(PlugInRefused, match=str(guard.path)):
        guard.load("layer", "one_file:Thing")


def test_a_plug_in_that_is_not_there_or_lacks_the_name_is_named(place, guard):
    module(place, "one_file.py", THING)
    with pytest.raises(ConfigError, match=r"layer: 'no_such.module:Thing' cannot be loaded: No module named 'no_such'"):
        guard.load("layer", "no_such.module:Thing")
    with pytest.raises(ConfigError, match=r"no_such:Thing: cannot be found"):
        guard.pin(["no_such:Thing"])
    assert not guard.path.exists()
    guard.pin(["one_file:Other"])
    with pytest.raises(ConfigError, match="has no attribute 'Other'"):
        guard.load("layer", "one_file:Other")


def test_a_pin_of_one_leaves_those_of_the_others(place, guard):
    for name in ("a", "b", "c"):
        module(place, f"file_{name}.py", THING)
    guard.pin(["file_a:Thing", "file_b:Thing", "file_c:Thing"])
    module(place, "file_a.py", THING, word="second")
    module(place, "file_b.py", THING, word="second")
    guard.pin(["file_a:Thing"], others=["file_a:Thing", "file_b:Thing"])
    assert [one.state for one in guard.compare_with_pins(["file_a:Thing", "file_b:Thing", "file_c:Thing"])] == [
        "pinned",
        "changed",
        "not pinned",
    ]
    assert sorted(json.loads(guard.path.read_text())["plug_ins"]) == ["file_a:Thing", "file_b:Thing"]
    assert guard.path.name == LOCK


def test_the_plug_ins_of_a_configuration_are_all_found(tmp_path):
    data = {
        "task_sources": ["local", "pack.forge:Forge"],
        "llm": {"provider": "pack.model.Client"},
        "context_storage": {"strategy": "pack.means:Means"},
        "sandbox": {"kind": "pack.box:Box"},
        "taskqueue": {"ledger": "pack.rows:open://me@host/db", "broker": "pack.queue:Broker"},
        "assembler": {"memory": ["pack.memory:Layer"]},
    }
    assert plug_ins_of(settings_of(data, root=tmp_path)) == [
        ("task_sources", "pack.forge:Forge"),
        ("context_storage.strategy", "pack.means:Means"),
        ("assembler.memory", "pack.memory:Layer"),
        ("llm.provider", "pack.model:Client"),
        ("sandbox.kind", "pack.box:Box"),
        ("taskqueue.ledger", "pack.rows:open"),
        ("taskqueue.broker", "pack.queue:Broker"),
    ]
    assert plug_ins_of(settings_of({}, root=tmp_path)) == []
    mine = {"taskqueue": {"ledger": "postgresql://h/db", "broker": "amqp://h"}, "task_sources": ["github"]}
    assert plug_ins_of(settings_of(mine, root=tmp_path)) == []


@pytest.mark.parametrize(
    ("data", "key"),
    [
        ({"sandbox": {"kind": "one_file:Thing"}}, "sandbox.kind"),
        ({"assembler": {"memory": ["one_file:Thing"]}}, "assembler.memory"),
        ({"memory": {"embeddings": "one_file:Thing"}}, "memory.embeddings"),
        ({"context_storage": {"strategy": "one_file:Thing"}}, "context_storage.strategy"),
    ],
)
def test_an_unpinned_plug_in_of_a_task_is_found_before_run_and_solve_begin(place, tmp_path, data, key):
    module(place, "one_file.py", THING)
    settings = settings_of(
        {**data, "context_storage": {"base_dir": "made", **data.get("context_storage", {})}}, root=tmp_path
    )
    why = rf"{key}: the plug-in one_file:Thing .* is not pinned"
    with pytest.raises(PlugInRefused, match=why):
        Daemon(settings, Heard()).run(once=True)
    with pytest.raises(PlugInRefused, match=why):
        ask_the_surroundings(settings)
    assert not settings.base_dir.exists()
    assert "one_file" not in sys.modules
    assert [state for state, _, _ in doctor_plug_ins.findings(settings)] == ["fail"]
    settings.plugin_guard.pin(["one_file:Thing"])
    check_plug_ins(settings)


def test_memory_that_is_not_installed_is_told_by_the_task_and_a_sandbox_before_it(tmp_path):
    check_plug_ins(settings_of({"assembler": {"memory": ["no.such:Layer"]}}, root=tmp_path))
    with pytest.raises(PlugInRefused, match=r"sandbox.kind: no.such:Box: cannot be found"):
        check_plug_ins(settings_of({"sandbox": {"kind": "no.such:Box"}}, root=tmp_path))


def test_a_class_of_the_program_itself_needs_no_pin(tmp_path):
    assert plug_ins_of(settings_of({"llm": {"provider": "agent.llm.openai:OpenAIClient"}}, root=tmp_path)) == []


def test_the_lock_file_is_beside_config_yaml(tmp_path):
    (tmp_path / "config.yaml").write_text("{}")
    assert load(tmp_path / "config.yaml", environ={}).plugin_guard.path == tmp_path / LOCK
