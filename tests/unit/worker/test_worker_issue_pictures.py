"""Pictures of a text that strangers may have written: few are looked for, and what was not seen is said once."""

from run_home import Place

from agent.values import TaskKey
from agent.worker.issue_pictures import MOST_TRIED, IssuePictures, notes


def test_of_thousands_of_addresses_few_are_looked_for_and_the_rest_is_one_sentence(tmp_path):
    here = Place(tmp_path)
    folder = tmp_path / "task"
    folder.mkdir()
    here.issue(1)
    pictures = IssuePictures(here.forge, TaskKey.from_mapping(here.key(1)), folder, 100_000, takes_any=True)
    text = "\n".join(f"![a{number}](missing{number}.png)" for number in range(1500))
    taken, note = pictures.fetch(text)
    assert taken == []
    assert f"{1500 - MOST_TRIED} more" in note
    assert len(notes(folder)) == MOST_TRIED + 1
    here.close()
