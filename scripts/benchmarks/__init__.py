"""The figures of docs/bench.md, each a ratio of two things that were measured in one run on one machine.

`scripts/bench` calls `__main__`, which runs one module after another; what must not share memory or a start-up with
others runs in a process of its own (`children.run`).  It measures the program as users run it: the same stores,
clients, workers and forkserver.  No test asserts any of it; the machine is not ours.
"""
