"""Facts about code whose files were changed since, with real repositories."""

import shutil

import pytest
from flow_home import git

from agent.extraction.fact_check import BLOBS, FactCheck, identifiers

ACTOR = "local--repos--shop"
OLD = "def round_sum(prices):\n    return round(sum(prices))\n"


class Shop:
    """A bare repository, as a mirror is, with a work tree beside it."""

    def __init__(self, folder, memory):
        self.memory = memory
        self.work, self.mirror = folder / "work", folder / "shop.git"
        git("init", "-q", "-b", "main", str(self.work), cwd=folder)
        self.commit("Begin", {"README.md": "x\n", "calc.py": "def total(prices):\n    return sum(prices)\n"})
        git("clone", "-q", "--bare", str(self.work), str(self.mirror), cwd=folder)

    def commit(self, message, files):
        for name, text in files.items():
            path = self.work / name
            if text is None:
                path.unlink()
            else:
                path.parent.mkdir(exist_ok=True)
                path.write_text(text)
        git("add", "-A", cwd=self.work)
        git("commit", "-q", "-m", message, cwd=self.work)

    def blob(self, name="calc.py"):
        return git("rev-parse", f"HEAD:{name}", cwd=self.work).strip()

    def fact(self, text, blobs=None):
        metadata = {"commit": "c0ffee", BLOBS: {"calc.py": self.blob()} if blobs is None else blobs}
        return self.memory.create_memory_record(
            f"/facts/{ACTOR}/", text, strategy="facts", files=list(metadata[BLOBS]), metadata=metadata
        )

    def check(self):
        git("push", "-q", "--all", str(self.mirror), cwd=self.work)
        return FactCheck(self.memory, self.mirror, "main").run(ACTOR)

    def state(self, fact):
        now = self.memory.get_memory_record(fact.id)
        return now.status, now.hurt, now.reason


@pytest.fixture
def shop(tmp_path, memory):
    made = Shop(tmp_path, memory)
    made.commit("Round the sum", {"calc.py": OLD})
    return made


def test_names_of_code_are_found_in_a_text():
    said = "Call round_sum(prices) of PriceList, with `--no round` or --strict; roundSum and main.py stay. Well-known."
    assert identifiers(said) == ("round_sum", "PriceList", "--no round", "--strict", "roundSum")


def test_a_fact_holds_while_its_file_is_the_same_or_still_has_what_the_fact_names(shop):
    fact = shop.fact("round_sum() rounds once, at the end.")
    assert shop.check() == 0
    shop.commit("Describe", {"calc.py": f'"""Sums."""\n\n{OLD}'})
    assert shop.check() == 0
    assert shop.state(fact) == ("active", 0, "")


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"calc.py": "def sum_of(prices):\n    return round(sum(prices))\n"}, "`round_sum` is not in calc.py of "),
        ({"calc.py": None}, "calc.py is not in "),
        ({"calc.py": None, "shop/calc.py": OLD}, "calc.py is not in "),
    ],
)
def test_a_fact_ends_when_the_code_that_it_names_is_gone(shop, files, why):
    fact, other = (
        shop.fact("round_sum() rounds once, at the end."),
        shop.fact("The menu is in French.", {"README.md": "0" * 40}),
    )
    assert shop.check() == 0
    shop.commit("Change it", files)
    assert shop.check() == 1
    status, _, reason = shop.state(fact)
    assert status == "invalid"
    assert reason.startswith(why)
    assert [hit.record.id for hit in shop.memory.retrieve("round_sum rounds once", ACTOR)] == []
    assert shop.state(other) == ("active", 0, "")
    assert shop.check() == 0


def test_a_fact_that_names_no_code_counts_as_hurt_once_for_each_version(shop):
    fact, rival = (
        shop.fact("The sum is rounded once, at the end of all."),
        shop.fact("Once the sum is over, write the end.", {}),
    )
    for number in range(1, 3):
        shop.commit("Change it", {"calc.py": f"# {number}\n{OLD}"})
        for _ in range(2):
            assert shop.check() == 0
            assert shop.state(fact) == ("active", number, "")
    assert shop.state(rival) == ("active", 0, "")
    shop.commit("Back", {"calc.py": OLD})
    assert shop.check() == 0
    assert shop.state(fact) == ("active", 2, "")


def test_what_was_never_merged_is_not_checked_though_the_mirror_has_it(shop):
    git("checkout", "-q", "-b", "task", cwd=shop.work)
    shop.commit("Work", {"calc.py": f"{OLD}\ndef round_each():\n    pass\n"})
    fact = shop.fact("round_each() rounds each price.")
    git("checkout", "-q", "main", cwd=shop.work)
    shop.commit("Other work", {"calc.py": f"import math\n{OLD}"})
    assert shop.check() == 0
    assert shop.state(fact) == ("active", 0, "")
    git("merge", "-q", "--squash", "-X", "theirs", "task", cwd=shop.work)
    shop.commit("Squash", {"calc.py": f"{OLD}\ndef round_each():\n    pass\n"})
    assert shop.check() == 0
    shop.commit("Drop it again", {"calc.py": OLD})
    assert shop.check() == 1
    assert shop.state(fact)[0] == "invalid"


def test_a_pinned_fact_is_left_alone(shop):
    fact = shop.fact("round_sum() rounds once, at the end.")
    shop.memory.pin(fact.id)
    shop.commit("Drop it", {"calc.py": None})
    assert shop.check() == 0
    assert shop.state(fact) == ("active", 0, "")
    shutil.rmtree(shop.work)
