"""The texts that the estimate is measured on are made anywhere, the same each time, and without a download."""

from scripts.benchmarks import accuracy, counted


def test_every_kind_of_text_that_needs_no_package_is_there(monkeypatch):
    monkeypatch.setattr(counted, "FILES", dict.fromkeys(counted.FILES, ()))
    monkeypatch.setattr(counted, "DOCUMENTS", 3)
    found = counted.classes()
    assert set(counted.MADE) | set(counted.TEXTS) | {"python"} <= set(found)
    assert all(texts and all(texts) for texts in found.values())
    assert found == counted.classes()


def test_a_family_that_is_held_out_has_no_part_in_its_own_estimate(monkeypatch):
    monkeypatch.setattr(counted, "DOCUMENTS", 2)
    measured = accuracy.Measured({"th": counted._documents("th", counted.partial(counted._of_language, "th"))})
    before = measured.held_out("cl100k", "th")
    for name in ("cl100k", "llama-3", "unknown"):
        measured.fits[name]["th"] = [1, 1]
    assert measured.held_out("cl100k", "th") == before
    assert measured.held_out("qwen", "th") != before
    assert abs(measured.reported_once()["cl100k"]["th"]) < abs(measured.unseen()["cl100k"]["th"])
