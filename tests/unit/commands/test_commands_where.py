"""Where a task's conversation is, when several hosts share a ledger (`commands/timeline.py`)."""

from agent.commands.request_preview import preview
from agent.commands.timeline import lies_elsewhere, timeline

OTHER = "0123456789ab:/srv/contexts:7:99"


def on_another_host(here, last_seq=0):
    uuid = here.row(1)
    here.ledger.claim(uuid, OTHER, 60)
    here.wiring.db.execute(
        "UPDATE tasks SET hostname = 'builder7', last_seq = :last_seq WHERE uuid = :uuid", uuid=uuid, last_seq=last_seq
    )
    return here.ledger.get(uuid)


def folder_with(here, uuid, messages):
    folder = here.settings.base_dir / "running" / uuid
    folder.mkdir(parents=True)
    (folder / "lock").touch()
    if messages:
        lines = [f'{{"seq":{seq},"role":"user","content":"x"}}\n' for seq in range(1, messages + 1)]
        (folder / "messages.jsonl").write_text("".join(lines))
    return folder


def test_show_names_the_host_and_the_folder_there(place):
    here = place().shared()
    row = on_another_host(here, last_seq=4)
    folder_with(here, row.uuid, 0)
    found = timeline(here.settings, here.ledger, row.uuid)
    assert found.folder is None, "a stub is not shown as the folder"
    assert found.notes[0] == (
        f"the conversation lies on builder7, in /srv/contexts/running/{row.uuid}; call `show {row.uuid}` there"
    )
    assert not [note for note in found.notes if "gone" in note]


def test_request_names_the_host_too(place, tmp_path):
    """It said that no worker had the task yet."""
    here = place().shared()
    row = on_another_host(here, last_seq=4)
    (said,) = preview(here.wiring, row.uuid, tmp_path / "empty").notes
    assert said.startswith("the conversation lies on builder7,")
    assert said.endswith(f"call `request {row.uuid}` there")
    uuid = here.row(2)
    assert preview(here.wiring, uuid, tmp_path / "empty").notes[0].startswith("there is no conversation yet")


def test_request_says_that_the_folder_of_an_ended_task_is_gone(place, tmp_path):
    here = place()
    claim = here.claim(1)
    here.ledger.finish(claim.uuid, claim.attempt, "completed")
    (said,) = preview(here.wiring, claim.uuid, tmp_path / "empty").notes
    assert said == "there is no folder of this task: its folder was not kept, or is gone"


def test_an_older_part_here_is_shown_and_said_to_be_one(place):
    here = place().shared()
    row = on_another_host(here, last_seq=4)
    folder = folder_with(here, row.uuid, 2)
    found = timeline(here.settings, here.ledger, row.uuid)
    assert found.folder == folder
    assert found.notes[0].startswith("the conversation after message 2 lies on builder7")


def test_a_base_dir_that_hosts_share_has_all_of_it(place):
    here = place().shared()
    row = on_another_host(here, last_seq=2)
    folder = folder_with(here, row.uuid, 2)
    found = timeline(here.settings, here.ledger, row.uuid)
    assert found.folder == folder
    assert "builder7" not in " ".join(found.notes)


def test_of_a_task_that_has_ended_the_host_is_named(place):
    here = place().shared()
    row = on_another_host(here, last_seq=2)
    here.ledger.finish(row.uuid, 1, "failed")
    said = lies_elsewhere(here.settings, here.ledger.get(row.uuid), None)
    assert said.startswith("the conversation lies on builder7, in its context_storage.base_dir;")


def test_a_task_of_this_host_or_that_nobody_began_lies_nowhere_else(place):
    here = place()
    uuid = here.row(1)
    assert lies_elsewhere(here.settings, here.ledger.get(uuid), None) == ""
    here.ledger.claim(uuid, here.wiring.owner, 60)
    assert lies_elsewhere(here.settings, here.ledger.get(uuid), None) == ""
