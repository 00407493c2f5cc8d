"""Pictures are fetched from the forge's own hosts alone, and the token goes nowhere else."""

import os
from types import SimpleNamespace

import pytest
from forges.github_place import GitHubPlace
from forges.local_place import LocalPlace
from llm_servers import Reply, Script

from agent.errors import ForgeUnreachable, PictureRefused
from agent.forge.github.pictures import STORES, fetch_picture
from agent.forge.gitlab.pictures import fetch_picture as fetch_upload
from agent.values import TaskKey

PNG = Reply(b"\x89PNG", headers={"Content-Type": "image/png"})
ASSET = "/user-attachments/assets/a12644f5-c5c0-4855-a279-70277acecf9c"
KEY = TaskKey("github", "acme", "web", "issue", "7", "host")


@pytest.fixture
def web():
    """A host that knows no address; tests add to `routes`."""
    server = Script(Reply(b"Not Found", 404))
    yield server
    server.close()


def github(web, html=""):
    pages = [{"body_html": html}]
    return SimpleNamespace(
        base_url=f"{web.url}/api/v3",
        tokens=SimpleNamespace(current=lambda: "ghp_of_the_test"),
        ca_file=lambda: None,
        rendered=lambda path: pages if "comments" in path else {},
    )


def sent(web, path):
    return [{k.lower(): v for k, v in one.headers.items()} for one in web.journal if one.path.partition("?")[0] == path]


def test_github_follows_to_its_own_hosts_with_the_token(web):
    web.routes["GET", ASSET] = Reply(b"", 302, {"Location": f"{web.url}/storage/user/5/files/x?jwt=1"})
    web.routes["GET", "/storage/user/5/files/x"] = web.routes["GET", "/storage/user/5/files/x?jwt=1"] = PNG
    assert fetch_picture(github(web), KEY, web.url + ASSET) == b"\x89PNG"
    assert sent(web, ASSET)[0]["authorization"] == "Bearer ghp_of_the_test"


def test_a_token_that_may_not_see_it_takes_the_signed_address_of_the_page(web):
    signed = f"{web.url}/storage/user/9/{ASSET.rsplit('/', 1)[1]}.png?jwt=a&amp;b"
    web.routes["GET", f"/storage/user/9/{ASSET.rsplit('/', 1)[1]}.png?jwt=a&b"] = PNG
    wire = github(web, html=f'<p><a href="x"><img src="{signed}" alt="Image"></a></p>')
    assert fetch_picture(wire, KEY, web.url + ASSET) == b"\x89PNG"
    with pytest.raises(PictureRefused, match="answered 404"):
        fetch_picture(github(web), KEY, web.url + ASSET)


@pytest.mark.parametrize(
    "address",
    [
        "http://169.254.169.254/latest/meta-data/a.png",
        "http://localhost:6379/user-attachments/assets/x",
        "https://evil.example.org/user-attachments/assets/x",
        "https://githubusercontent.com.evil.example.org/a.png",
        "https://evilgithubusercontent.com/a.png",
        "http://user-images.githubusercontent.com/a.png",
        "file:///etc/passwd",
        "data:image/png;base64,AAAA",
        "/relative.png",
        "http://[broken/a.png",
        "https://user:pass@github.com/user-attachments/assets/x",
    ],
)
def test_foreign_addresses_are_never_asked(web, address):
    with pytest.raises(PictureRefused):
        fetch_picture(github(web), KEY, address)
    assert web.journal == []


def test_a_redirect_to_a_foreign_host_is_not_followed(web):
    other = Script(PNG)
    try:
        web.routes["GET", ASSET] = Reply(b"", 302, {"Location": f"{other.url}/storage/user/1/a.png"})
        with pytest.raises(PictureRefused, match="not the forge's own"):
            fetch_picture(github(web), KEY, web.url + ASSET)
        assert other.journal == []
    finally:
        other.close()


def test_what_is_no_picture_or_too_large_is_refused(web):
    web.routes["GET", "/storage/user/1/login"] = Reply(b"<html>", headers={"Content-Type": "text/html"})
    with pytest.raises(PictureRefused, match="text/html"):
        fetch_picture(github(web), KEY, f"{web.url}/storage/user/1/login")
    web.routes["GET", "/storage/user/1/big"] = Reply(bytes(10_000_001), headers={"Content-Type": "image/png"})
    with pytest.raises(PictureRefused, match=r"larger than 9\.54 MiB"):
        fetch_picture(github(web), KEY, f"{web.url}/storage/user/1/big")
    loop = "/storage/user/1/loop"
    web.routes["GET", loop] = Reply(b"", 302, {"Location": web.url + loop})
    with pytest.raises(PictureRefused, match="redirects"):
        fetch_picture(github(web), KEY, web.url + loop)
    with pytest.raises(ForgeUnreachable):
        fetch_picture(github(SimpleNamespace(url="http://127.0.0.1:9")), KEY, f"http://127.0.0.1:9{ASSET}")


@pytest.mark.parametrize(
    ("host", "is_one"),
    [
        ("user-images.githubusercontent.com", True),
        ("private-user-images.githubusercontent.com", True),
        ("github-production-user-asset-6210df.s3.amazonaws.com", True),
        ("s3.amazonaws.com", False),
        ("githubusercontent.com.example.org", False),
    ],
)
def test_hosts_where_github_keeps_files(host, is_one):
    assert bool(STORES.fullmatch(host)) is is_one


def test_the_adapter_renders_an_issue_over_http(tmp_path):
    place = GitHubPlace(tmp_path)
    try:
        key = place.issue()
        assert place.forge.wire.rendered(f"/repos/{key.owner}/{key.repo}/issues/{key.task_id}")["number"] == 1
        with pytest.raises(PictureRefused):
            place.forge.fetch_picture(key, "https://evil.example.org/a.png")
    finally:
        place.close()


SECRET = "66dbcd21ec5d24ed6ea225176098d52b"


@pytest.mark.parametrize(
    "address", ["/uploads/{}/dk.png", "{}/acme/web/uploads/{}/dk.png", "{}/-/project/5/uploads/{}/dk.png"]
)
@pytest.mark.parametrize("old", [False, True])
def test_gitlab_gives_an_upload_by_its_api_or_at_its_old_address(web, address, old):
    path = f"/git/acme/web/uploads/{SECRET}/dk.png" if old else f"/git/api/v4/projects/5/uploads/{SECRET}/dk.png"
    web.routes["GET", path] = PNG
    base = f"{web.url}/git"
    wire = SimpleNamespace(base_url=base, token=lambda: "glpat-of-the-test", ca_file=lambda: None)
    project = SimpleNamespace(id=5, full_name="acme/web")
    shown = address.format(*([base] if address.startswith("{}/") else []), SECRET)
    assert fetch_upload(wire, project, shown) == b"\x89PNG"
    assert sent(web, path)[0]["private-token"] == "glpat-of-the-test"


@pytest.mark.parametrize(
    "address",
    ["https://gitlab.com/uploads/{}/a.png", "/other/group/uploads/{}/a.png", "/uploads/../x/{}/a.png", "a.png"],
)
def test_gitlab_gives_nothing_else(web, address):
    wire = SimpleNamespace(base_url=web.url, token=lambda: "t", ca_file=lambda: None)
    with pytest.raises(PictureRefused):
        fetch_upload(wire, SimpleNamespace(id=5, full_name="acme/web"), address.format(SECRET))
    assert web.journal == []


def test_the_tracker_gives_files_of_its_folder_alone(tmp_path):
    place = LocalPlace(tmp_path)
    key = place.issue()
    (tmp_path / "secret.png").write_bytes(b"secret")
    (place.tracker / "issues" / "a b.png").write_bytes(b"one")
    (place.tracker / "shots").mkdir()
    (place.tracker / "shots" / "b.png").write_bytes(b"two")
    (place.tracker / "link.png").symlink_to(tmp_path / "secret.png")
    (place.tracker / "out").symlink_to(tmp_path)
    os.mkfifo(place.tracker / "pipe.png")
    assert place.forge.fetch_picture(key, "a%20b.png") == b"one"
    assert place.forge.fetch_picture(key, "../shots/b.png") == b"two"
    assert place.forge.fetch_picture(key, "shots/b.png") == b"two"
    for wrong in (
        "../../secret.png",
        "/etc/passwd",
        "link.png",
        "out/secret.png",
        "pipe.png",
        "none.png",
        "https://x/a.png",
    ):
        with pytest.raises(PictureRefused):
            place.forge.fetch_picture(key, wrong)
