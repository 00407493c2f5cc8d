"""A session keyring with a secret in it, and a program that looks for that secret."""

import ctypes
import platform
import threading

from agent import session_keyring
from agent.durable_files import libc

ADD_KEY, REQUEST_KEY = {"x86_64": (248, 249), "aarch64": (217, 218)}.get(platform.machine(), (None, None))
DESCRIPTION = b"makimono-test-of-keyrings"
SESSION_KEYRING = -3

PROGRAM = f"""
import ctypes
number = ctypes.CDLL(None).syscall({REQUEST_KEY}, b"user", {DESCRIPTION!r}, None, 0)
print("none" if number == -1 else "found")
"""


def with_a_key(what):
    """Call `what` in a thread whose session keyring holds a key that only who possesses it may read; None where this
    kernel has no keys, or they may not be used."""
    answers = []

    def life():
        if ADD_KEY is None or not session_keyring.join_new():
            return
        if libc().syscall(ADD_KEY, b"user", DESCRIPTION, b"secret", ctypes.c_size_t(6), SESSION_KEYRING) != -1:
            answers.append(what())

    thread = threading.Thread(target=life)
    thread.start()
    thread.join()
    return answers[0] if answers else None
