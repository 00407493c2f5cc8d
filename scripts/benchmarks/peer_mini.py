"""The same task by mini-swe-agent, in its own environment: of ours only how a process is measured is imported."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchmarks import machine


def main(place: Path, url: str) -> None:
    import yaml
    from minisweagent import package_dir
    from minisweagent.agents.default import DefaultAgent
    from minisweagent.environments.local import LocalEnvironment
    from minisweagent.models.litellm_model import LitellmModel

    config = yaml.safe_load((package_dir / "config" / "mini.yaml").read_text(encoding="utf-8"))
    config["agent"].pop("mode", None)
    kwargs = config["model"].pop("model_kwargs", {}) | {"api_base": f"{url}/v1", "api_key": "bench-key-0000"}
    agent = DefaultAgent(
        LitellmModel(model_name="openai/bench-model", model_kwargs=kwargs, **config["model"]),
        LocalEnvironment(cwd=str(place / "repo"), **config["environment"]),
        **{**config["agent"], "cost_limit": 0.0},
    )
    started = machine.cpu_of_self()
    ended = agent.run("Totals are off: `total()` rounds each price; it must round the sum.")
    used = machine.cpu_of_self() - started
    assert ended.get("exit_status") == "Submitted", ended
    print(json.dumps({"cpu": used, "peak": machine.peak()}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
