"""A folder of templates is read safely: files of others, links that lead out, FIFOs and huge files are refused."""

import json
import os
import time

import pytest

from agent import other_writers
from agent.prompts.revision import TemplateRefused
from agent.prompts.template_files import FILE_LIMIT, FolderChanges, mark_of, others, read_folder


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "templates"
    made.mkdir(mode=0o755)
    return made


def names_in(folder):
    return {fields["name"]: fields["template"] for _, fields in read_folder(folder)[0]}


def test_the_three_forms_of_a_template(folder):
    (folder / "system.md.j2").write_text("Be careful.\r\nTwice.\r\n")
    (folder / "nudge.yaml").write_text("name: nudge\nversion: '2'\ntemplate: |\n  Do something else.\n")
    (folder / "persona.json").write_text(
        json.dumps({"name": "persona", "template": "{{ a }}", "variables": {"a": "A"}, "schema_ref": "v.schema.json"})
    )
    (folder / "v.schema.json").write_text('{"type": "object", "$defs": {"a": {}}, "not": {"$ref": "#/$defs/a"}}')
    (folder / "README.md").write_text("About.")
    (folder / ".hidden.yaml").write_text("no: [")
    assert names_in(folder) == {
        "system": "Be careful.\nTwice.\n",
        "nudge": "Do something else.\n",
        "persona": "{{ a }}",
    }
    assert list(read_folder(folder)[1]) == ["v.schema.json"]
    assert others(folder) == [".hidden.yaml", "README.md"]


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("a.yaml", "name: b\ntemplate: x\n", "name is 'b'; it must be that of the file"),
        ("a.yaml", "- a\n", "the top level must be a mapping"),
        ("a.yaml", "name: a\nname: a\n", "name stands here again"),
        ("a.yaml", "name: [", "not valid YAML"),
        ("a.yaml", "name: !!python/object/apply:os.system [id]\n", "not valid YAML"),
        ("a.json", '{"name": "a", "name": "a"}', "a key is given twice"),
        ("a.json", '{"name": "a", "ttl_seconds": NaN}', "NaN is not JSON"),
        ("a.json", "[" * 30_000, "not valid JSON"),
        ("a.json", "[]", "must be one mapping"),
        ("a.md.j2", b"\xff\xfe", "byte 0 is not UTF-8"),
        ("a.md.j2", b"x" * (FILE_LIMIT + 1), f"{FILE_LIMIT} are allowed"),
        ("a.json", '{"name": "a", "schema_ref": "../x.schema.json"}', "allowed is the name of a file in the folder"),
        ("a.json", '{"name": "a", "schema_ref": "http://h/x.schema.json"}', "allowed is the name of a file"),
        ("a.json", '{"name": "a", "schema_ref": "/etc/passwd"}', "allowed is the name of a file"),
        ("a.json", '{"name": "a", "schema_ref": "missing.schema.json"}', "cannot be read: No such file"),
    ],
)
def test_an_unreadable_file_is_named_with_the_fault(folder, name, text, why):
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(TemplateRefused, match=why) as caught:
        read_folder(folder)
    assert str(folder / name) in str(caught.value)


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "objekt"}, "is no JSON schema"),
        ({"$ref": "http://h/x.json"}, r"\$ref 'http://h/x.json'; allowed are references inside"),
        ({"properties": {"a": [{"$ref": "other.json"}]}}, "is no JSON schema"),
        ({"properties": {"a": {"items": {"$ref": "other.json"}}}}, r"\$ref 'other.json'"),
    ],
)
def test_a_schema_refers_to_nothing_outside_itself(folder, schema, why):
    (folder / "a.json").write_text('{"name": "a", "template": "x", "schema_ref": "v.schema.json"}')
    (folder / "v.schema.json").write_text(json.dumps(schema))
    with pytest.raises(TemplateRefused, match=why):
        read_folder(folder)


def test_two_files_for_one_name_are_refused(folder):
    (folder / "system.md.j2").write_text("a")
    (folder / "system.yaml").write_text("name: system\ntemplate: b\n")
    with pytest.raises(TemplateRefused, match=r"'system' is in .*system.md.j2 too; keep one"):
        read_folder(folder)


@pytest.mark.parametrize("mode", [0o666, 0o622, 0o602])
def test_a_file_that_others_may_write_is_refused(folder, mode):
    path = folder / "system.md.j2"
    path.write_text("a")
    path.chmod(mode)
    with pytest.raises(TemplateRefused, match=rf"every user may write it.*chmod go-w {path}"):
        read_folder(folder)
    path.chmod(0o644)
    assert names_in(folder) == {"system": "a"}


def test_a_folder_that_others_may_write_is_refused_and_so_is_one_above_it(folder, tmp_path):
    (folder / "system.md.j2").write_text("a")
    folder.chmod(0o777)
    with pytest.raises(TemplateRefused, match="every user may write it"):
        read_folder(folder)
    folder.chmod(0o755)
    tmp_path.chmod(0o777)
    with pytest.raises(TemplateRefused, match=rf"{tmp_path}, which has {folder}: every user may write it"):
        read_folder(folder)
    tmp_path.chmod(0o1777)
    assert names_in(folder) == {"system": "a"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_of_another_user_or_of_a_shared_group_is_refused(folder):
    path = folder / "system.md.j2"
    path.write_text("a")
    os.chown(path, 65534, 0)
    with pytest.raises(TemplateRefused, match=r"it belongs to the user"):
        read_folder(folder)
    os.chown(path, 0, 65534)
    path.chmod(0o664)
    with pytest.raises(TemplateRefused, match=r"the group .* may write it"):
        read_folder(folder)


def test_the_private_group_of_the_owner_is_nobody_else(folder):
    assert other_writers.writers(folder) == ""


def test_a_link_that_leads_out_is_refused_and_one_inside_is_followed(folder, tmp_path):
    (tmp_path / "secret.md.j2").write_text("secret")
    (folder / "system.md.j2").symlink_to(tmp_path / "secret.md.j2")
    with pytest.raises(TemplateRefused, match=r"leads out of the folder, to .*secret"):
        read_folder(folder)
    (folder / "system.md.j2").unlink()
    (folder / "..data").mkdir()
    (folder / "..data" / "system.md.j2").write_text("as Kubernetes mounts it")
    (folder / "system.md.j2").symlink_to("..data/system.md.j2")
    assert names_in(folder) == {"system": "as Kubernetes mounts it"}
    (folder / "..data").chmod(0o777)
    with pytest.raises(TemplateRefused, match=r"\.\.data: every user may write it"):
        read_folder(folder)


def test_a_schema_is_no_link_at_all(folder):
    (folder / "a.json").write_text('{"name": "a", "template": "x", "schema_ref": "v.schema.json"}')
    (folder / "real.schema.json").write_text("{}")
    (folder / "v.schema.json").symlink_to("real.schema.json")
    with pytest.raises(TemplateRefused, match="is a symlink, which is not allowed here"):
        read_folder(folder)


def test_nothing_waits_for_a_fifo_and_a_folder_is_no_file(folder):
    os.mkfifo(folder / "system.md.j2")
    started = time.monotonic()
    with pytest.raises(TemplateRefused, match="is no regular file"):
        read_folder(folder)
    mark_of(folder)
    assert time.monotonic() - started < 5
    (folder / "system.md.j2").unlink()
    (folder / "system.md.j2").mkdir()
    with pytest.raises(TemplateRefused, match="is no regular file"):
        read_folder(folder)


def test_a_missing_folder_and_a_file_in_its_place(folder, tmp_path):
    with pytest.raises(TemplateRefused, match="does not exist; make it, or remove the key"):
        read_folder(tmp_path / "none")
    (tmp_path / "file").write_text("x")
    with pytest.raises(TemplateRefused, match="is not a folder"):
        read_folder(tmp_path / "file")
    assert mark_of(tmp_path / "none") == ("No such file or directory", 0.0)


def test_the_mark_changes_with_content_mode_and_names_and_not_by_itself(folder):
    marks = [mark_of(folder)[0]]

    def changed():
        marks.append(mark_of(folder)[0])
        return marks[-1] not in marks[:-1]

    (folder / "system.md.j2").write_text("a")
    assert changed()
    assert mark_of(folder)[0] == marks[-1]
    (folder / "system.md.j2").write_text("b")
    assert changed()
    (folder / "system.md.j2").chmod(0o600)
    assert changed()
    (folder / "system.md.j2").rename(folder / "nudge.md.j2")
    assert changed()
    (folder / "README.md").write_text("not a template")
    assert not changed()


def test_a_folder_that_changes_while_it_is_read_is_read_again(folder, monkeypatch):
    (folder / "system.md.j2").write_text("a")
    real, calls = os.read, []

    def read(descriptor, size):
        calls.append(descriptor)
        (folder / "nudge.md.j2").write_text("b")
        return real(descriptor, size)

    monkeypatch.setattr(os, "read", read)
    with pytest.raises(FolderChanges):
        read_folder(folder)
    assert calls
