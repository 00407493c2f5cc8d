"""Loads the templates of the user (`prompts.folder`, `prompts.url`) as one set, and puts the set in use if all
templates are valid.

A set of templates is read, checked and stored in base_dir, and then put in use by one assignment. After a failure the
last valid set stays in use, or the program's own templates if there was none; each failure is announced once. Several
processes share the work: one process reads a changed source of templates, under a lock, and the other processes take
the result from base_dir.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from agent import clock, durable_files
from agent.error_text import named
from agent.errors import DiskError, LockHeld, MakimonoError
from agent.prompts import rendering, template_store
from agent.prompts.download import download, mark_of_download, parse_document, read_download
from agent.prompts.revision import TemplateRefused, TemplateRevision, TemplateSet, hash_of, make_set
from agent.prompts.template_check import check
from agent.prompts.template_files import FolderChanges, mark_of, read_folder
from agent.prompts.template_store import Stored

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agent.config import Settings

    Announce = Callable[..., None]

ReloadMode = Literal["auto", "ttl", "force"]
MODES = ("auto", "ttl", "force")
SETTLED = 0.25
"""A folder of templates without a change for this many seconds counts as completely written."""
PATIENCE = 1.0
"""Maximum seconds to wait until the folder of templates counts as completely written."""
TRIES = 5


def _quiet(_name: str, **_fields: object) -> None:
    """Announces nothing."""


class TemplateLoader:
    """The templates of the user for one configuration: loads them, and replaces them when their source changes.

    `announce(name, **fields)` gets the events `template.reloaded`, `template.reload_failed` and
    `template.render_failed`. With `stores` False nothing is written to base_dir; a command that must only read sets
    `stores` to False.
    """

    def __init__(self, settings: Settings, announce: Announce = _quiet, *, stores: bool = True) -> None:
        self.settings = settings
        self.folder: Path | None = settings.prompts.folder
        self.url = settings.prompts.url
        self.source = self.url or (str(self.folder) if self.folder is not None else "")
        self._download_error = ""
        self._downloading = threading.Lock()
        self._emit = announce
        self._stores = stores
        self._stored = Stored(self.source)
        self._loaded_at: float | None = None
        self._single = threading.Lock()

    # --- the current set -----------------------------------------------------------------------------------------

    @property
    def current(self) -> TemplateSet | None:
        """The set of templates that is in use; None if only the program's own templates are used."""
        return self._stored.templates

    @property
    def error(self) -> str:
        """The reason why the newest templates of the source are not in use; "" if they are in use."""
        return self._download_error or self._stored.error  # a failed download is reported first

    def load(self, name: str) -> TemplateRevision:
        """The revision that is in use of the template `name`. Raises TemplateRefused for an unknown name of a
        template."""
        if self._loaded_at is None:
            self.refresh()
        templates = self.current
        if templates is not None and name in templates.revisions:
            return templates.revisions[name]
        return packaged(name)

    def reload(self, name: str, mode: ReloadMode = "auto") -> TemplateRevision:
        """Read the source again if `mode` requires that, and return the revision in use of the template `name`.

        With the mode `auto` the source of the templates is read if the folder, or the downloaded document, has changed.
        With the mode `force` the document is first downloaded again, and the source is read in any case. The mode `ttl`
        is the same as `force` if this process last read the source at least as long ago as the template's
        `ttl_seconds`; else nothing is read. If the source cannot be read or is invalid, the old set of templates stays
        in use. Raises TemplateRefused for an unknown mode."""
        if mode not in MODES:
            raise TemplateRefused(f"reload: mode {mode!r} is not known; known are {', '.join(MODES)}")
        if mode != "ttl" or self._is_old(name):
            if mode != "auto":
                self.download()
            self.refresh(force=mode != "auto")
        return self.load(name)

    def _is_old(self, name: str) -> bool:
        ttl = self.load(name).ttl_seconds or self.settings.prompts.ttl_seconds
        return self._loaded_at is None or clock.monotonic() - self._loaded_at >= ttl

    # --- reading -------------------------------------------------------------------------------------------------

    def refresh(self, *, force: bool = False) -> TemplateSet | None:
        """Replace the set of templates if its source has changed, or with `force` in any case; return the set in use.

        Only one thread reads the source of the templates at a time; a second thread gets the set in use without
        waiting. An error in the source of the templates is announced and not raised.
        """
        if not self.source or not self._single.acquire(blocking=False):
            return self.current
        try:
            mark, changed = self._mark()
            if self.url is not None and not mark and not force:
                self._adopt(self._read_stored())  # no document with templates was downloaded yet
                return self.current
            if not force and self._is_known(self._stored, mark):
                return self.current
            if not force and self.folder is not None:
                mark = self._settled(mark, changed)
            self._read_set(mark, force=force)
        finally:
            self._single.release()
        return self.current

    def _is_known(self, found: Stored, mark: str) -> bool:
        """Whether this version of the program has accepted or refused this state of the source of templates before."""
        taken = mark == found.mark and not found.error
        return found.program == template_store.program_hash() and (taken or mark == found.failed_mark)

    def download(self) -> None:
        """Ask the server of `prompts.url` for a changed set of templates, and store it in base_dir; the next `refresh`
        puts it in use.

        If another thread downloads templates already, nothing is done. A failure to download templates is announced
        once and not raised."""
        if self.url is None or not self._downloading.acquire(blocking=False):
            return
        try:
            download(self.settings)
        except Exception as error:  # noqa: BLE001 - an error of the server of templates must never end the daemon's thread
            why = str(error) if isinstance(error, MakimonoError) else named(error)
            if why != self._download_error:
                self._emit("template.reload_failed", source=self.source, error=why, kept=_name_of(self.current))
            self._download_error = why
        else:
            self._download_error = ""
        finally:
            self._downloading.release()

    def _mark(self) -> tuple[str, float]:
        """Returns (the mark of the present state of the templates' source, the time of the newest change of the
        source)."""
        return mark_of(self.folder) if self.folder is not None else mark_of_download(self.settings)

    def _read_stored(self) -> Stored:
        return template_store.read_stored(self.settings.base_dir, self.source, self._report_unusable)

    def _settled(self, mark: str, changed: float) -> str:
        """Wait until nobody has written to the folder of templates for SETTLED seconds, at most PATIENCE; returns the
        mark of the folder, a text that differs after each change of a template."""
        until = clock.monotonic() + PATIENCE
        while clock.monotonic() < until:
            age = clock.now().timestamp() - changed
            if not 0 <= age < SETTLED:
                break
            clock.sleep(SETTLED - age)
            mark, changed = self._mark()
        return mark

    def _read_set(self, mark: str, *, force: bool) -> None:
        """Use the set of templates that another process has stored for this state of the source, or read the source."""
        try:
            if not self._stores:
                self._adopt(self._read_stored())
                if force or not self._is_known(self._stored, mark):
                    self._read(mark)
                return
            durable_files.make_dir(self.settings.base_dir, durable_files.passable())
            with durable_files.locked(self.settings.base_dir / f".{template_store.NAME}.lock"):
                stored = self._read_stored()
                self._adopt(stored)
                if force or not self._is_known(stored, mark):
                    self._read(mark)
        except (DiskError, LockHeld):
            self._read(mark)  # base_dir cannot be written: this process does not store the set of templates

    def _adopt(self, stored: Stored) -> None:
        """Start to use the set of templates that base_dir stores; nothing changes if it stores none."""
        if stored.program:
            known, found = self.current, stored.templates
            same = known is not None and (found is None or found.sha256 == known.sha256)
            self._stored = replace(stored, templates=known if same else found)
            self._loaded_at = clock.monotonic()

    def _read(self, mark: str) -> None:
        """Read and check the source of the templates, and put its set of templates in use, or announce the failure
        once."""
        before = self._stored
        program = template_store.program_hash()
        try:
            found, mark = self._checked()
        except Exception as error:  # noqa: BLE001 - an error in a template must never end a task
            why = str(error) if isinstance(error, MakimonoError) else named(error)
            after = replace(before, program=program, failed_mark=mark, error=why, at=clock.stamp())
            self._stored = after
            if (before.error, before.failed_mark) != (why, mark):
                self._emit("template.reload_failed", source=self.source, error=why, kept=_name_of(before.templates))
        else:
            self._stored = Stored(self.source, mark, program, found, at=clock.stamp())
            if before.templates is None or found.sha256 != before.templates.sha256:
                self._emit(
                    "template.reloaded",
                    source=self.source,
                    previous=_name_of(before.templates),
                    new=_name_of(found),
                    templates=len(found.revisions),
                )
        self._loaded_at = clock.monotonic()
        if self._stores:
            with suppress(DiskError):
                template_store.write_stored(self.settings.base_dir, self._stored)

    def _checked(self) -> tuple[TemplateSet, str]:
        """Returns (the set of templates, the mark of the state of the source that was read)."""
        for left in reversed(range(TRIES)):
            mark = self._mark()[0]
            try:
                files, schemas = self._files()
            except FolderChanges:
                if not left:
                    raise
                continue
            if self._mark()[0] == mark or not left:
                checked = [check(path, fields, schemas) for path, fields in files]
                return make_set(checked, schemas, clock.stamp(), self._report_unusable), mark
        raise FolderChanges(f"{self.source} changes all the time")

    def _files(self) -> tuple[list[tuple[str, dict[str, Any]]], dict[str, Any]]:
        if self.folder is not None:
            return read_folder(self.folder)
        found = read_download(self.settings)
        if found is None:
            raise TemplateRefused(f"prompts.url: nothing was downloaded from {self.url} yet; run `prompts reload`")
        return parse_document(self.source, found.text)

    def _report_unusable(self, name: str, error: str) -> None:
        self._emit("template.render_failed", template=name, error=error)

    # --- tasks ---------------------------------------------------------------------------------------------------

    def of_task(self, folder: Path) -> TemplateSet | None:
        """The set of templates of the task with this folder: the set that the folder records, or for a task without
        messages the newest valid set, which is then recorded. Returns None if the task uses the program's own
        templates; if the record is damaged, that is announced, and the task uses the program's own templates too.
        Raises DiskError."""
        try:
            found = template_store.read_of_task(folder, self._report_unusable)
        except TemplateRefused as error:
            self._emit("template.reload_failed", source=str(folder), error=str(error), kept=_name_of(None))
            return None
        if found is not None or has_begun(folder):
            return found
        found = self.refresh()
        if found is not None:
            template_store.write_of_task(folder, found)
        return found


def has_begun(folder: Path) -> bool:
    """Whether the task has messages."""
    try:
        return (folder / "messages.jsonl").stat().st_size > 0
    except FileNotFoundError:
        return False


def _name_of(templates: TemplateSet | None) -> str:
    return templates.sha256[:12] if templates is not None else "packaged"


def packaged(name: str) -> TemplateRevision:
    """One of the program's own templates as a revision. Raises TemplateRefused for an unknown name of a template."""
    if name not in rendering.program_templates():
        raise TemplateRefused(f"there is no template {name!r}; known are {', '.join(rendering.program_templates())}")
    text = rendering.source(name)
    variables = {one.name: one.meaning for one in rendering.describe(name)[1]}
    fields: dict[str, Any] = {"name": name, "template": text, "variables": variables}
    return TemplateRevision(name, rendering.versions()[name], "", text, variables, "", None, hash_of(fields))
