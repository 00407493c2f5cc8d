"""The structured log of a process, which is written to a file, to stderr, or to both.

Each line has the fixed name of an event and fields; the lines of some events also have a sentence in the field
`message`. A file gets JSON lines (`worker.log` in a task's folder), stderr a short human-readable form or JSON. Any
value fits into a line (`truncate.py`). The log includes records of the standard `logging` module, which libraries
write. A Redact callable masks secrets in every finished line of the log. An error in writing the log never stops the
work. The code that starts a process calls `setup`; other modules call `get` to obtain their log.
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

from agent import clock, durable_files
from agent.config.url_passwords import without_passwords
from agent.error_text import named
from agent.errors import is_unforeseen
from agent.observe.truncate import shorten, text_of, truncate
from agent.registry import without

# structlog imports rich where it is installed, to draw tracebacks with the values of variables. Importing rich takes 8
# MB in each worker for a function that the program must not use: the value of a variable may be a secret.
with without("rich"):
    import structlog

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping
    from pathlib import Path

    from structlog.typing import FilteringBoundLogger

    from agent.values import Redact

    Render = Callable[[dict[str, Any]], str]

LEVELS = ("debug", "info", "warning", "error")
# Matches the characters that must not reach a terminal: C0 and C1 control characters except tab and newline, DEL, line
# separators, and the characters that change the direction of text.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_encode = JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_BARE = re.compile(r"[^\s\"'=\x00-\x1f]+")


class _Log:
    """The destinations and settings of the log of this process."""

    def __init__(self) -> None:
        self.least = 0  # index in LEVELS of the lowest level that is written
        self.uuid: str | None = None
        self.redact: Redact | None = None
        self.file = -1
        self.on_stderr: Render | None = None

    def write(self, level: str, room: str, event: str, found: MutableMapping[str, Any]) -> None:
        """Write one line to each destination of the log."""
        level = level if level in LEVELS else "error"
        if (self.file < 0 and self.on_stderr is None) or LEVELS.index(level) < self.least:
            return
        fields = _fields(level, room, event, self.uuid, found)
        if self.file >= 0:
            with suppress(OSError):  # on a full disk, lines of the log are lost, and the work continues
                os.write(self.file, self._line(_json_line, fields).encode("utf-8", "backslashreplace"))
        if self.on_stderr is not None:
            # a closed pipe of stderr does not end the work either; another module may have replaced `sys.stderr`
            with suppress(OSError, ValueError):
                sys.stderr.write(self._line(self.on_stderr, fields))
                sys.stderr.flush()

    def _line(self, render: Render, fields: dict[str, Any]) -> str:
        text = render(fields)
        return f"{without_passwords(self.redact(text) if self.redact is not None else text)}\n"


_log = _Log()


class _Lossy(io.RawIOBase):
    """A raw stream on a file descriptor. A write to this stream never fails; bytes that cannot be written are lost."""

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
            durable_files.write_all(self.descriptor, data)
        return memoryview(data).nbytes


def lose_what_stderr_refuses() -> None:
    """Replace `sys.stderr` by a stream that has no buffer and never fails to write.

    When the disk is full or the reader has closed the pipe, the buffer of the original `sys.stderr` would fail at every
    flush.  The module multiprocessing flushes `sys.stderr` before each start of a process (`util._flush_std_streams`),
    so with the original stream the daemon could start no worker then.
    """
    before = sys.stderr
    if before is None or isinstance(getattr(before, "buffer", None), _Lossy):
        return
    try:
        descriptor = before.fileno()
    except (OSError, ValueError):
        return  # `sys.stderr` has no descriptor, as in a test or a notebook
    with suppress(OSError, ValueError):
        before.flush()
    raw: Any = _Lossy(descriptor)  # like `python -u`: the text layer writes directly to a raw stream
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
    """Send the log of this process to the file `path` (JSON lines, mode 0600) and, unless `stderr` is False, to stderr
    (human-readable lines, or JSON lines with `json`).

    `level` is the lowest level of lines that are written to the log. `uuid` is added to every line of the log, from any
    thread. A second call of `setup` replaces the settings of the first call. When the log file cannot be opened, a line
    on stderr reports this, and the log goes to stderr. Raises ValueError for an unknown level.
    """
    if level not in LEVELS:
        raise ValueError(f"log level {level!r} is not known; known are {', '.join(LEVELS)}")
    close()
    refused = ""
    if path is not None:
        # The path of the log must not be a symlink.  The descriptor of the log stays open, so writing continues after
        # the folder of the log is renamed.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            _log.file = os.open(path, flags, 0o600)
        except OSError as error:
            refused, stderr = f"{path}: {error.strerror}", True
    _log.on_stderr = (_json_line if json else _human_line) if stderr else None
    _log.least, _log.uuid, _log.redact = LEVELS.index(level), uuid, redact
    # Switch off the fields of log records that no line of this log shows: to find the calling code, `logging` would
    # walk the whole stack.
    logging._srcfile = None  # noqa: SLF001 - Python's logging HOWTO documents this attribute under "Optimization"
    logging.logThreads = logging.logMultiprocessing = logging.logProcesses = False
    root = logging.getLogger()
    root.setLevel(level.upper())
    root.addHandler(_Libraries())
    # messages of libraries below a warning (each connection of urllib3) are of no use in the program's log
    for noisy in ("urllib3", "requests", "charset_normalizer"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    if refused:
        get("log").warning("log_refused", why=refused)


def close() -> None:
    """Remove the handlers that `setup` added, and close the file of the log."""
    root = logging.getLogger()
    for handler in list(root.handlers):
        if isinstance(handler, _Libraries):
            root.removeHandler(handler)
    if _log.file >= 0:
        os.close(_log.file)
    _log.file, _log.on_stderr = -1, None


@cache
def get(name: str) -> FilteringBoundLogger:
    """The log with the name of a package or module: `get("llm").info("request_sent", bytes=12)`.

    The lines of the log go to the destinations of the latest call of `setup`, which may come after `get`; lines before
    the first `setup` are dropped.
    """
    room: FilteringBoundLogger = structlog.wrap_logger(
        None, processors=[_write], wrapper_class=_Room, context_class=dict, _room=name
    ).bind()
    return room


def mistake(room: str, item: str, error: BaseException) -> None:
    """Log an error of `item` with its traceback, as the line `bug`, if the error or one of its causes is a mistake of a
    program (`errors.MISTAKES`).

    `mistake` is called where every error counts as a failure of `item`, for example of a tool or of a plug-in, so that
    a mistake of this program does not look like a fault of something else."""
    if is_unforeseen(error):
        get(room).error("bug", item=item, error=named(error), exc_info=error)


def write(level: str, room: str, event: str, fields: dict[str, Any]) -> None:
    """`getattr(get(room), level)(event, **fields)`, but faster, for lines that are written several times a turn."""
    _log.write(level, room, event, fields)


# `_Log` filters the levels, even for loggers that exist before the call of `setup`
_Room = structlog.make_filtering_bound_logger(logging.NOTSET)


def _write(_logger: Any, level: str, found: MutableMapping[str, Any]) -> Any:
    """The only processor of structlog: it writes the line and raises DropEvent, so that structlog does nothing more
    with the line."""
    _log.write(level, found.pop("_room"), str(found.pop("event", "")), found)
    raise structlog.DropEvent


class _Libraries(logging.Handler):
    """Handles the log records of libraries: writes an event `library` with the text of the record as `message`."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            said = record.getMessage()
        except Exception:  # noqa: BLE001 - formatting the record of a library may raise any error
            said = text_of(record.msg)
        found = {"message": said, "exc_info": record.exc_info}
        _log.write(record.levelname.lower(), record.name, "library", found)


def _fields(level: str, room: str, event: str, uuid: str | None, found: MutableMapping[str, Any]) -> dict[str, Any]:
    """The fields of a log line in the order that suits a reader."""
    error = found.pop("exc_info", None)
    fields: dict[str, Any] = {"timestamp": clock.stamp(), "level": level, "event": event, "logger": room}
    if uuid:
        fields["uuid"] = uuid
    fields.update({key: truncate(value) for key, value in found.items() if key not in fields or key == "uuid"})
    if trace := _trace(error):
        fields["exception"] = shorten(trace)
    return fields


def _trace(error: Any) -> str:
    """The traceback for a value of `exc_info`: True, an exception, or a tuple from `sys.exc_info`; "" for any other
    value."""
    if isinstance(error, BaseException):
        return "".join(traceback.format_exception(error)).rstrip()
    if isinstance(error, tuple):
        return _trace(error[1])
    return _trace(sys.exception()) if error else ""


def _json_line(fields: dict[str, Any]) -> str:
    try:
        return orjson.dumps(fields).decode()
    except TypeError:  # orjson refuses the value: the value contains a lone surrogate or a number beyond 64 bits
        return _encode(fields)


def _human_line(fields: dict[str, Any]) -> str:
    """A log line for people, such as `09:15:00 info task_started uuid=… task=…`, with control characters escaped for a
    terminal."""
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
