"""The structured log: structlog in front, a file and stderr behind; what libraries log comes here too.

Lines have fixed event names and fields, never sentences.  A file gets JSON lines (`worker.log` in a task's folder),
stderr a short human form or JSON; any value fits into one (`fit.py`).  Every finished line passes a Redact callable.
A log that cannot be written never stops the work.  `setup` is called once by whoever owns the process; rooms call
`get`.
"""

from __future__ import annotations

import io
import logging
import os
import re
import sys
import traceback
from contextlib import suppress
from functools import cache
from json import JSONEncoder
from typing import TYPE_CHECKING, Any

import orjson

from agent import clock, disk
from agent.config.passwords import without_passwords
from agent.observe.fit import fit, shortened, text_of
from agent.registry import without

# structlog takes in rich where it is installed, to draw tracebacks with the values of variables: 8 MB in each worker
# for something that is never used here, and that must not be (a value may be a secret).
with without("rich"):
    import structlog

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping
    from pathlib import Path

    from structlog.typing import FilteringBoundLogger

    from agent.values import Redact

    Render = Callable[[dict[str, Any]], str]

LEVELS = ("debug", "info", "warning", "error")
# C0 and C1 signs, DEL, and the marks that turn text around: none of them may reach a terminal.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_encode = JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_BARE = re.compile(r"[^\s\"'=\x00-\x1f]+")


class _Log:
    """Where the lines of this process go."""

    def __init__(self) -> None:
        self.least = 0  # place in LEVELS
        self.uuid: str | None = None
        self.redact: Redact | None = None
        self.file = -1
        self.on_stderr: Render | None = None

    def write(self, level: str, room: str, event: str, found: MutableMapping[str, Any]) -> None:
        """One line, wherever it is wanted."""
        level = level if level in LEVELS else "error"
        if (self.file < 0 and self.on_stderr is None) or LEVELS.index(level) < self.least:
            return
        fields = _fields(level, room, event, self.uuid, found)
        if self.file >= 0:
            with suppress(OSError):  # a full disk stops the log, not the work
                os.write(self.file, self._line(_json_line, fields).encode("utf-8", "backslashreplace"))
        if self.on_stderr is not None:
            with suppress(OSError, ValueError):  # nor does a closed pipe; whatever stderr is at the time
                sys.stderr.write(self._line(self.on_stderr, fields))
                sys.stderr.flush()

    def _line(self, render: Render, fields: dict[str, Any]) -> str:
        text = render(fields)
        return f"{without_passwords(self.redact(text) if self.redact is not None else text)}\n"


_log = _Log()


class _Lossy(io.RawIOBase):
    """A descriptor that takes everything: what cannot be written is lost."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self.descriptor

    def isatty(self) -> bool:
        return os.isatty(self.descriptor)

    def write(self, data: Any, /) -> int:
        with suppress(OSError):
            disk.write_all(self.descriptor, data)
        return memoryview(data).nbytes


def lose_what_stderr_refuses() -> None:
    """From now on a write to `sys.stderr` never fails, and nothing waits in a buffer of it.

    With a full disk or a reader that is gone behind it, its buffer would fail at every flush, and multiprocessing
    flushes it before each start of a process (`util._flush_std_streams`): the daemon could start no worker.
    """
    before = sys.stderr
    if before is None or isinstance(getattr(before, "buffer", None), _Lossy):
        return
    try:
        descriptor = before.fileno()
    except (OSError, ValueError):
        return  # no file: a test, or a notebook
    with suppress(OSError, ValueError):
        before.flush()
    raw: Any = _Lossy(descriptor)  # as `python -u` does it: text straight onto a raw stream
    sys.stderr = io.TextIOWrapper(raw, before.encoding, before.errors, write_through=True)


def setup(
    path: Path | None = None,
    *,
    level: str = "info",
    json: bool = False,
    uuid: str | None = None,
    redact: Redact | None = None,
    stderr: bool = True,
) -> None:
    """Send the log of this process to the file `path` (JSON lines, mode 0600) and, unless `stderr` is False, to
    stderr (human, or JSON lines with `json`).  `level` is the least that is written.  `uuid` goes into every line,
    whichever thread writes it.  Calling it again replaces what was set up before.  A file that cannot be opened is said
    on stderr, which gets the lines then.  ValueError for another level.
    """
    if level not in LEVELS:
        raise ValueError(f"log level {level!r} is not known; known are {', '.join(LEVELS)}")
    close()
    refused = ""
    if path is not None:
        # No symlink is followed; the file follows a renamed folder, since it stays open.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            _log.file = os.open(path, flags, 0o600)
        except OSError as error:
            refused, stderr = f"{path}: {error.strerror}", True
    _log.on_stderr = (_json_line if json else _human_line) if stderr else None
    _log.least, _log.uuid, _log.redact = LEVELS.index(level), uuid, redact
    # The library's switches for what no line here tells: finding the caller walks the whole stack.
    logging._srcfile = None  # noqa: SLF001 - documented under "Optimization" in the logging HOWTO
    logging.logThreads = logging.logMultiprocessing = logging.logProcesses = False
    root = logging.getLogger()
    root.setLevel(level.upper())
    root.addHandler(_Libraries())
    # What libraries say below a warning (each connection of urllib3) is noise here.
    for noisy in ("urllib3", "requests", "charset_normalizer"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    if refused:
        get("log").warning("log_refused", why=refused)


def close() -> None:
    """Take away what `setup` made and close its file."""
    root = logging.getLogger()
    for handler in list(root.handlers):
        if isinstance(handler, _Libraries):
            root.removeHandler(handler)
    if _log.file >= 0:
        os.close(_log.file)
    _log.file, _log.on_stderr = -1, None


@cache
def get(name: str) -> FilteringBoundLogger:
    """The log of a room: `get("llm").info("request_sent", bytes=12)`.  Goes where `setup` said, whenever that is
    called; nowhere before."""
    room: FilteringBoundLogger = structlog.wrap_logger(
        None, processors=[_write], wrapper_class=_Room, context_class=dict, _room=name
    ).bind()
    return room


def tell(level: str, room: str, event: str, fields: dict[str, Any]) -> None:
    """`getattr(get(room), level)(event, **fields)` by the shortest way, for what is said several times a turn."""
    _log.write(level, room, event, fields)


_Room = structlog.make_filtering_bound_logger(logging.NOTSET)  # `_Log` knows the level, also of loggers got before


def _write(_logger: Any, level: str, found: MutableMapping[str, Any]) -> Any:
    """The one processor of structlog: writes the line, so that nothing is left to do behind it."""
    _log.write(level, found.pop("_room"), str(found.pop("event", "")), found)
    raise structlog.DropEvent


class _Libraries(logging.Handler):
    """Takes in what libraries log: their sentence is the `message` of an event `library`."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            said = record.getMessage()
        except Exception:  # noqa: BLE001 - what a library logs may raise anything when it is put in words
            said = text_of(record.msg)
        found = {"message": said, "exc_info": record.exc_info}
        _log.write(record.levelname.lower(), record.name, "library", found)


def _fields(level: str, room: str, event: str, uuid: str | None, found: MutableMapping[str, Any]) -> dict[str, Any]:
    """What a line says, in the order in which it is read."""
    error = found.pop("exc_info", None)
    fields: dict[str, Any] = {"timestamp": clock.stamp(), "level": level, "event": event, "logger": room}
    if uuid:
        fields["uuid"] = uuid
    fields.update({key: fit(value) for key, value in found.items() if key not in fields or key == "uuid"})
    if trace := _trace(error):
        fields["exception"] = shortened(trace)
    return fields


def _trace(error: Any) -> str:
    """The traceback of `exc_info=True`, of an exception, or of what `sys.exc_info` gives."""
    if isinstance(error, BaseException):
        return "".join(traceback.format_exception(error)).rstrip()
    if isinstance(error, tuple):
        return _trace(error[1])
    return _trace(sys.exception()) if error else ""


def _json_line(fields: dict[str, Any]) -> str:
    try:
        return orjson.dumps(fields).decode()
    except TypeError:  # half a character, a number beyond 64 bits
        return _encode(fields)


def _human_line(fields: dict[str, Any]) -> str:
    """`09:15:00 info    task_started uuid=… task=…`, without any sign that a terminal would obey."""
    rest = {key: value for key, value in fields.items() if key not in ("timestamp", "level", "event", "exception")}
    rest.pop("logger")
    message = rest.pop("message", None)
    words = [fields["timestamp"][11:19], f"{fields['level']:<7}", fields["event"]]
    if message:
        words.append(f"({message})")
    words.extend(f"{key}={_word(value)}" for key, value in rest.items())
    text = " ".join(words)
    if "exception" in fields:
        text += "\n" + "\n".join(f"    {line}" for line in fields["exception"].splitlines())
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _word(value: Any) -> str:
    if isinstance(value, str) and _BARE.fullmatch(value):
        return value
    return _encode(value)
