"""A whole task with a network of named hosts: set-up, a command of the model, the check, by the proxy of this host."""

import subprocess
import sys

import pytest
from flow_home import SECONDS, do, finish, write
from outside import CompanyProxy, Files, Serving

from agent.config import settings_of
from agent.sandbox import probe

GET = "python3 -c 'import urllib.request, sys; print(urllib.request.urlopen(sys.argv[1], timeout=30).read().decode())'"


def test_set_up_commands_and_check_reach_the_hosts_that_are_named_and_the_refused_are_told(home, tmp_path):
    if not probe(settings_of({})).ok:
        pytest.skip("commands cannot be isolated on this machine")
    (tmp_path / "www").mkdir()
    (tmp_path / "www" / "f").write_text("from outside")
    inner = "http://169.254.169.254/latest"
    play = [
        do(
            "run_command", command=f"cat ~/got; {GET} http://index.invalid/f; {GET} {inner}; {GET} http://evil.invalid/"
        ),
        write("b.txt"),
        finish(),
    ]
    with Serving(Files, tmp_path / "www") as server, CompanyProxy(server.port) as proxy:
        here = home(
            {"One": play},
            sandbox="auto, network: [index.invalid]",
            config=(
                f'workspace: {{setup: {{command: "{GET} http://more.invalid/f > ~/got", network: [more.invalid]}}}}\n'
                f'verify: {{command: "{GET} http://index.invalid/f"}}\n'
            ),
        )
        here.issue(1, "One")
        argv = [sys.executable, str(here.main), "run", "--once", "--config", str(here.config)]
        env = {**here.environment, "http_proxy": proxy.url}
        done = subprocess.run(argv, cwd=here.folder, env=env, capture_output=True, text=True, timeout=SECONDS)
        assert done.returncode == 0, done.stdout + done.stderr
        assert proxy.asked == ["more.invalid:80", "index.invalid:80", "index.invalid:80"]
    assert here.row(1)["status"] == "completed"
    assert "draft: false" in here.pulls()[0]
    result = here.lines(1, "tools.jsonl")[0]["result"]
    head, _, rest = result.partition("\n")
    assert rest.count("from outside") == 2
    assert (
        "the network refused: 169.254.169.254 is not in sandbox.network; evil.invalid is not in sandbox.network" in head
    )
    logged = (here.kept(1) / "worker.log").read_text()
    assert '"network_used"' in logged
    assert logged.count('"network_refused"') == 2
    assert "s3cr3t" not in result + logged
    tools = {one["function"]["name"]: one["function"] for one in here.server.asked[0].json["tools"]}
    assert "reaches only index.invalid by http and https" in tools["run_command"]["description"]
