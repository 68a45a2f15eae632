"""One of two processes is killed: torchrun starts both again, and they end as two that nobody killed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest
import torch

from csst.training.engine import rejoin_after_restart
from tests.helpers.runs import compared, same

PLUGIN = """
import os, signal
from dataclasses import replace
from pathlib import Path
from csst.data import Toy
from csst.data.task import identity_view

class Deadly:
    def __init__(self, marker):
        self.marker, self.calls = Path(marker), 0

    def __call__(self, x, *rest):
        self.calls += 1
        if os.environ.get("RANK") == "1" and self.calls == 25 and not self.marker.exists():
            self.marker.write_text("killed")
            os.kill(os.getpid(), signal.SIGKILL)
        return identity_view(x, *rest)

def task(seed):
    made = Toy("toy", labeled=64, unlabeled=128, validation=33, test=40).load(seed)
    return replace(made, views=(identity_view, Deadly(os.environ["MARKER"])))
"""


def test_processes_that_were_started_again_meet_under_a_name_of_their_own(monkeypatch):
    """torchrun's store still holds the addresses of those that were killed."""
    met = {}
    for name, value in {
        **{"TORCHELASTIC_RESTART_COUNT": "1", "TORCHELASTIC_USE_AGENT_STORE": "True", "GROUP_WORLD_SIZE": "1"},
        **{"WORLD_SIZE": "2", "RANK": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"},
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.distributed, "TCPStore", lambda *where, **how: "store")
    monkeypatch.setattr(torch.distributed, "PrefixStore", lambda prefix, store: (prefix, store))
    monkeypatch.setattr(torch.distributed, "init_process_group", lambda backend, **how: met.update(how))
    rejoin_after_restart("cpu")
    assert met == {"store": ("attempt-1", "store"), "rank": 1, "world_size": 2}
    met.clear()
    for name, value in (("TORCHELASTIC_RESTART_COUNT", "0"), ("GROUP_WORLD_SIZE", "2")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            rejoin_after_restart("cpu")
        assert not met  # not restarted, or on several machines: nothing to do


def run_agents(folder, name: str, agents: int, options: list[str]) -> str:
    """Train under as many agents of torchrun, each with the same options; return what they say."""
    words = ["train", "custom", "--data.source", "plugin_for_ranks:task", "--training.steps", "40", "--resume"]
    words += ["--training.labeled_batch", "16", "--training.unlabeled_batch", "32", "--dual.steps_per_update", "10"]
    words += ["--checkpoint_seconds", "0", "--out", name]
    command = [sys.executable, "-m", "torch.distributed.run", *options, "--max-restarts", "1", "-m", "csst", *words]
    path = os.pathsep.join([str(folder), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    environment = {**os.environ, "PYTHONPATH": path, "MARKER": str(folder / f"{name}.marker"), "OMP_NUM_THREADS": "1"}
    if agents > 1:  # as docs/how-to/devices.md says
        environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, cwd=folder, env=environment, **pipes) for _ in range(agents)]
    messages = [process.communicate(timeout=400)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * agents, "".join(messages)[-3000:]
    return "".join(messages)


def meet_at_a_port() -> list[str]:
    """Return the options of an agent that stands for a machine with one process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = ["--nnodes", "2", "--nproc-per-node", "1", "--local-addr", "127.0.0.1"]
    return [*options, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}"]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals and torchrun as on Linux")
@pytest.mark.parametrize("agents", [1, 2], ids=["two processes of a machine", "one process each of two machines"])
def test_a_killed_rank_costs_nothing(tmp_path, agents):
    (tmp_path / "plugin_for_ranks.py").write_text(PLUGIN)
    (tmp_path / "whole.marker").write_text("nobody is killed")
    messages = {}
    for name in ("whole", "cut"):
        options = ["--standalone", "--nproc-per-node", "2"] if agents == 1 else meet_at_a_port()
        messages[name] = run_agents(tmp_path, name, agents, options)
    assert (tmp_path / "cut.marker").read_text() == "killed"
    assert "exitcode: -9" in messages["cut"]
    assert "exitcode" not in messages["whole"]
    assert same(compared(tmp_path / "whole"), compared(tmp_path / "cut"))
