"""The server of the page is imported by its command alone."""

import subprocess
import sys

from cli_home import ROOT

HEAVY = ("starlette", "uvicorn", "agent.dashboard.server")


def test_no_other_command_imports_the_server():
    code = f"import sys, agent.cli.main, agent.daemon.preload; print([one for one in {HEAVY} if one in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_page_needs_no_library_that_speaks_with_servers():
    code = "import sys, agent.dashboard.server; print([one for one in ('requests', 'urllib3', 'watchfiles') if one in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
