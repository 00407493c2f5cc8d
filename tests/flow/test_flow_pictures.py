"""An issue that is two pictures: seen by a model that takes them, and said where one is not seen."""

import io

from flow_home import finish, write
from PIL import Image


def shot(path, color):
    out = io.BytesIO()
    Image.new("RGB", (300, 200), color).save(out, "PNG")
    path.write_bytes(out.getvalue())


def test_the_pictures_of_an_issue_and_of_a_comment_reach_the_model(home):
    here = home({"Screens": [write("a.txt"), finish()]})
    tracker = here.issue_path(1).parent.parent
    (tracker / "shots").mkdir()
    shot(tracker / "shots" / "one.png", "red")
    shot(tracker / "issues" / "two.png", "blue")
    body = "![first](../shots/one.png)\n\n<img src='two.png'>\n\n![far](https://tracker.example.org/beacon.png)"
    here.issue(1, "Screens", body)
    here.comment(1, "And ![this](/etc/hostname)")
    here.once(code=0)
    (first, *_) = [one.json for one in here.server.journal if one.method == "POST" and b'"messages"' in one.body]
    (task,) = [one for one in first["messages"] if one["role"] == "user"]
    text, *pictures = task["content"]
    assert [part["type"] for part in pictures] == ["image_url", "image_url"]
    assert "follow it, in its order: images/0001.png, images/0002.png" in text["text"]
    assert "Pictures that you cannot see: picture 3 of 4" in text["text"]
    assert "beacon" not in text["text"]
    assert "the picture 'far' was not seen by the model" in "".join(here.said(1))
    folder = here.kept(1)
    assert sorted(path.name for path in (folder / "images").iterdir()) == ["0001.png", "0002.png", "unseen.txt"]
