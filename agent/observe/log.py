"""The structured log: structlog in front, the standard library's handlers behind, so that libraries log here too.

Lines have fixed event names and fields, never sentences.  A file gets JSON lines (`worker.log` in a task's folder),
stderr a short human form or JSON.  Every finished line passes a Redact callable.  A log that cannot be written never
stops the work.  `setup` is called once by whoever owns the process; rooms call `get`.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import traceback
from contextlib import suppress
from json import JSONEncoder
from typing import TYPE_CHECKING, Any

from agent import clock

# structlog takes in rich where it is installed, to draw tracebacks with the values of variables: 8 MB in each worker
# for something that is never used here, and that must not be (a value may be a secret).
_RICH = sys.modules.get("rich")
sys.modules["rich"] = None  # type: ignore[assignment]
try:
    import structlog
finally:
    if _RICH is None:
        del sys.modules["rich"]
    else:
        sys.modules["rich"] = _RICH

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping
    from pathlib import Path

    from agent.values import Redact

    Render = Callable[[dict[str, Any]], str]

LEVELS = ("debug", "info", "warning", "error")
LONGEST = 20_000
"""Characters of one field; the whole text is in the task's files."""

# C0 and C1 signs, DEL, and the marks that turn text around: none of them may reach a terminal.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_encode = JSONEncoder(ensure_ascii=False, default=str).encode
_BARE = re.compile(r"[^\s\"'=\x00-\x1f]+")


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
    whichever thread writes it.  Calling it again replaces what was set up before.  ValueError for another level.
    """
    if level not in LEVELS:
        raise ValueError(f"log level {level!r} is not known; known are {', '.join(LEVELS)}")
    _configure()
    # The library's switches for what no line here tells: finding the caller walks the whole stack.
    logging._srcfile = None  # noqa: SLF001 - documented under "Optimization" in the logging HOWTO
    logging.logThreads = logging.logMultiprocessing = logging.logProcesses = False
    root = logging.getLogger()
    close()
    root.setLevel(level.upper())
    # What libraries say below a warning (each connection of urllib3) is noise here.
    for noisy in ("urllib3", "requests", "charset_normalizer"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    if path is not None:
        root.addHandler(_ready(_File(path), uuid, redact, _json_line))
    if stderr:
        root.addHandler(_ready(_Stderr(), uuid, redact, _json_line if json else _human_line))


def _configure() -> None:
    """Send structlog to the standard library, where nothing is written before `setup` has said where."""
    logging.getLogger("makimono").addHandler(logging.NullHandler())
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.contextvars.merge_contextvars,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def close() -> None:
    """Take away what `setup` made and close its file."""
    root = logging.getLogger()
    for handler in list(root.handlers):
        if isinstance(handler, _File | _Stderr):
            root.removeHandler(handler)
            handler.close()


def get(name: str) -> structlog.stdlib.BoundLogger:
    """The log of a room: `get("llm").info("request_sent", bytes=12)`.  Goes where `setup` said, whenever that is
    called; nowhere before."""
    if not structlog.is_configured():
        _configure()
    logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(f"makimono.{name}")
    return logger


class _File(logging.StreamHandler[Any]):
    """Appends to a file of mode 0600 that is no symlink; follows a renamed folder, since it stays open."""

    def __init__(self, path: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        super().__init__(os.fdopen(os.open(path, flags, 0o600), "a", encoding="utf-8", errors="backslashreplace"))

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the library's name
        """A full disk stops the log, not the work."""

    def close(self) -> None:
        with suppress(OSError, ValueError):
            self.stream.close()
        super().close()


class _Stderr(logging.StreamHandler[Any]):
    """Writes to whatever stderr is at the time."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the library's name
        """A closed pipe stops the log, not the work."""


def _ready(handler: logging.Handler, uuid: str | None, redact: Redact | None, render: Render) -> logging.Handler:
    def line(_logger: Any, _method: str, found: MutableMapping[str, Any]) -> str:
        text = render(_fields(found, uuid))
        return redact(text) if redact is not None else text

    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processors=[line]))
    return handler


def _fields(found: MutableMapping[str, Any], uuid: str | None) -> dict[str, Any]:
    """What a line says, in the order in which it is read; a library's sentence is the `message` of event `library`."""
    record: logging.LogRecord = found.pop("_record")
    ours = found.pop("_from_structlog")
    event = str(found.pop("event", ""))
    error = found.pop("exc_info", None)
    fields: dict[str, Any] = {
        "timestamp": clock.stamp(),
        "level": record.levelname.lower(),
        "event": event if ours else "library",
        "logger": record.name.removeprefix("makimono."),
    }
    if uuid:
        fields["uuid"] = uuid
    if not ours:
        fields["message"] = event
    fields.update({key: _fit(value) for key, value in found.items() if key not in fields or key == "uuid"})
    trace = _trace(error)
    if trace:
        fields["exception"] = trace
    return fields


def _fit(value: Any) -> Any:
    if isinstance(value, str) and len(value) > LONGEST:
        return f"{value[:LONGEST]}… ({len(value)} characters)"
    return value


def _trace(error: Any) -> str:
    """The traceback of `exc_info=True`, of an exception, or of what `sys.exc_info` gives."""
    if isinstance(error, BaseException):
        return "".join(traceback.format_exception(error)).rstrip()
    if isinstance(error, tuple):
        return _trace(error[1])
    return _trace(sys.exception()) if error else ""


def _json_line(fields: dict[str, Any]) -> str:
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
