"""Kills a piece of work at its n-th call of a function, Python's or C's, in a process of its own."""

import os
import signal
import sys
import traceback


def killed_at(number, watched, setting, work):
    """Do the work in a forked process that is killed at its `number`-th call of a function from a file that has one of
    `watched` in its path; returns the number of calls it got to.

    `setting` gives a context manager, whose calls do not count; `work` gets what it yields.  A run may need fewer calls
    than the one before; then it is done.
    """
    receive, send = os.pipe()
    pid = os.fork()
    if pid == 0:
        count = 0

        def watch(frame, event, _):
            nonlocal count
            if event in ("call", "c_call") and any(part in frame.f_code.co_filename for part in watched):
                count += 1
                if count == number:
                    os.kill(os.getpid(), signal.SIGKILL)

        code = 1
        try:
            with setting() as given:
                sys.setprofile(watch)
                work(given)
                sys.setprofile(None)
            os.write(send, str(count).encode())
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(send)
    with os.fdopen(receive) as report:
        said = report.read()
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return number
    assert status == 0, "the work failed without a kill"
    return int(said)
