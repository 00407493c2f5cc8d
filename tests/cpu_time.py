"""The CPU time of a function, for tests that compare the times of a small and a large input."""

import gc
import time


def cpu_seconds(work, *arguments):
    """CPU time in seconds that this thread takes for `work(*arguments)`.

    The garbage collector is off meanwhile: the time of a collection grows with all objects of the process, and a
    collection may fall into only one of two measurements.  It is the thread's time because the process's time advances
    only in steps of some milliseconds while a timer is set.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        begin = time.thread_time()
        work(*arguments)
        return time.thread_time() - begin
    finally:
        if was_on:
            gc.enable()
