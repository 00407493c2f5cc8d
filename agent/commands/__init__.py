"""The commands of `main.py` except `run`, without their output: doctor, backup, cleanup, replay, solve, demo."""
