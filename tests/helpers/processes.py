"""Programs in processes of their own, two of them under torchrun."""

from __future__ import annotations

import atexit
import os
import runpy
import signal
import socket
import subprocess
import sys
import traceback

PLUGIN = """
from dataclasses import replace
from csst.data import Toy

def task(seed):  # no random views: then one process and two see exactly the same inputs
    made = Toy("toy", labeled=64, unlabeled=128, validation=33, test=40).load(seed)
    return replace(made, views=None)
"""

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def go(command: list[str], folder) -> str:
    path = os.pathsep.join([str(folder), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def run_twice(program: str, words: list[str], folder) -> str:
    """Run a program in two processes, as torchrun starts them; return what they print.

    They are forks of this one: what it has imported they need not import again, which took most of their time.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    settings |= {"GROUP_WORLD_SIZE": "1", "GROUP_RANK": "0", "TORCHELASTIC_RUN_ID": "none"}
    processes = []
    for rank in ("0", "1"):
        process = os.fork()
        if not process:
            os.environ |= {**settings, "RANK": rank, "LOCAL_RANK": rank}
            _run_to_the_end(program, words, folder, folder / f"printed-{rank}.txt")
        processes.append(process)
    ends = [os.waitpid(process, 0)[1] for process in processes]
    printed = "".join((folder / f"printed-{rank}.txt").read_text() for rank in "01")
    assert ends == [0, 0], printed[-3000:]
    return printed


def _run_to_the_end(program: str, words: list[str], folder, output) -> None:
    """Run a program in this process, which prints into a file and ends, with what it registered to be done then."""
    status = 1
    try:
        file = os.open(output, os.O_WRONLY | os.O_CREAT)
        os.dup2(file, 1)
        os.dup2(file, 2)
        sys.stdout = os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", closefd=False)
        signal.alarm(240)  # a process whose partner has failed would wait for it
        atexit._clear()  # what the tests registered is not for a copy of their process
        os.chdir(folder)
        sys.path.insert(0, str(folder))
        sys.argv = [program, *words]
        try:
            runpy.run_path(program, run_name="__main__")
            status = 0
        except SystemExit as end:
            status = end.code or 0
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def flat(value) -> list[float]:
    return [x for v in value for x in flat(v)] if isinstance(value, list) else [value]
