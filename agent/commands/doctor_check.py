"""A finding of `doctor`, and its three states."""

from __future__ import annotations

from dataclasses import dataclass

OK, WARN, FAIL = "ok", "warn", "fail"


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """One finding of `doctor` about the machine, the configuration or a host that the program uses.

    `state` is ok, warn or fail; `advice` is "" if there is nothing to do.
    """

    name: str
    state: str
    found: str
    advice: str = ""
