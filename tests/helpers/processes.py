"""Programs in processes of their own, two of them under torchrun."""

from __future__ import annotations

import os
import subprocess
import sys

PLUGIN = """
from dataclasses import replace
from csst.data import Toy

def task(seed):  # no random views: then one process and two see exactly the same inputs
    made = Toy("toy", labeled=64, unlabeled=128, validation=33, test=40).load(seed)
    return replace(made, views=None)
"""

#: two processes as torchrun starts them, which import what they need once
FORK = """
import os, runpy, socket, sys
import csst.cli.train, torch.distributed.fsdp
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
os.environ |= {"GROUP_WORLD_SIZE": "1", "GROUP_RANK": "0", "TORCHELASTIC_RUN_ID": "none"}
other = os.fork()
os.environ |= {"RANK": "0" if other else "1", "LOCAL_RANK": "0" if other else "1"}
del sys.argv[0]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit as end:
    if end.code:
        raise
if other and os.waitpid(other, 0)[1]:
    raise SystemExit("the other process failed")
"""

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def go(command: list[str], folder) -> str:
    path = os.pathsep.join([str(folder), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def flat(value) -> list[float]:
    return [x for v in value for x in flat(v)] if isinstance(value, list) else [value]
