"""The rules about trees that a command may have filled: each is broken by what breaks it, and by nothing else."""

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "tree_rules.py"
spec = importlib.util.spec_from_file_location("tree_rules", SCRIPT)
tree_rules = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tree_rules)


@pytest.mark.parametrize(
    "line",
    [
        "shutil.rmtree(folder)",
        "for a, b, c in os.walk(top): pass",
        "for a in os.fwalk(top): pass",
        "found = list(base.rglob('*.py'))",
        "(folder / 'x').unlink(missing_ok=True)",
        "os.unlink(path)",
        "os.remove(path)",
        "path.rmdir()",
        "(self.tree / path).lstat()",
        "(work_tree / a / b).read_bytes()",
        "os.access(self.tree / path, os.R_OK)",
        "shutil.copyfile(scratch / 'a', target)",
        "open(home / name)",
    ],
)
def test_what_follows_links_on_the_way_is_found(line):
    assert [number for number, _ in tree_rules.broken(f"x = 1\n{line}\n", room=True)] == [2]
    assert list(tree_rules.broken(f"{line}  # ours\n", room=True)) == []


@pytest.mark.parametrize(
    "line",
    [
        "os.unlink(name, dir_fd=folder)",
        "os.rmdir(name, dir_fd=folder)",
        "filetree.remove(path)",
        "tree.remove(self.tree)",
        "items.remove(one)",
        "durable_files.open_beneath(root, path)",
        "with durable_files.writing(self.tree / path): pass",
        "places = {'tree': str(tree / 'x')}",
    ],
)
def test_what_goes_by_descriptors_is_not(line):
    assert list(tree_rules.broken(line, room=True)) == []


def test_other_rooms_may_remove_their_own_files_and_walk_nothing():
    assert list(tree_rules.broken("path.unlink()\n(tree / 'x').open()", room=False)) == []
    assert list(tree_rules.broken("shutil.rmtree(path)", room=False)) != []


def test_the_program_keeps_the_rules(capsys):
    assert (tree_rules.main(), capsys.readouterr().out) == (0, "")
