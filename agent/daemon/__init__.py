"""The daemon (`main.py run`): polls the forges, starts one worker per task, and monitors workers, disk and ledger."""
