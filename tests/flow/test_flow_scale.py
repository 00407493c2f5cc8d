"""Many tasks at once on one SQLite ledger: the short form of `scripts/bench scale`."""

from flow_home import FlowHome, finished
from test_flow_scaling import RECORDING

from agent.llm.replay_server import ReplayServer

TASKS = WORKERS = 16


def test_many_workers_at_once_share_the_ledger(tmp_path):
    with ReplayServer.serve(RECORDING) as model:
        home = FlowHome(tmp_path, url=model.url, config=f"scheduling: {{max_workers: {WORKERS}}}\n")
        try:
            for number in range(1, TASKS + 1):
                home.issue(number, f"Short task {number}")
            daemon = home.start("run", "--once")
            text = finished(daemon, 400)
            assert daemon.returncode == 0, text
            rows = home.rows()
            assert {row["status"] for row in rows.values()} == {"completed"}
            assert {row["attempt"] for row in rows.values()} == {1}
            assert len(rows) == len(home.pulls()) == TASKS
            assert len(home.branches()) == 1 + TASKS
            said = [text, *(path.read_text() for path in home.contexts.glob("completed/*/worker.log"))]
            for word in ("database is locked", "is busy: another", "Traceback"):
                assert not any(word in one for one in said), word
        finally:
            home.close()
