"""Devices, precision and processes: the only file that knows Lightning Fabric, and the CPU's memory settings."""

from __future__ import annotations

import atexit
import contextlib
import copy
import ctypes
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from csst.errors import InputError
from csst.settings import Hardware

#: values that one process sends to the others
Values = TypeVar("Values")

PRECISIONS = {"32": "32-true", "bf16": "bf16-mixed", "fp16": "16-mixed"}


class Engine:
    """Trains a model on one CPU, several devices, or several processes that hold the same λ and G.

    Under `torchrun`, torchrun sets the number of processes; otherwise `hardware.devices` and `hardware.nodes` do.

    Args:
        hardware: settings of devices, precision and processes.
    """

    def __init__(self, hardware: Hardware) -> None:
        from lightning_fabric import Fabric

        keep_freed_memory()
        if hardware.threads:
            torch.set_num_threads(hardware.threads)
        self.hardware = hardware
        local = int(os.environ.get("LOCAL_WORLD_SIZE", hardware.devices))
        nodes = int(os.environ.get("WORLD_SIZE", local * hardware.nodes)) // local
        accelerator = hardware.accelerator
        if accelerator == "auto":
            accelerator = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            self.fabric = Fabric(
                accelerator=accelerator,
                devices=local,
                num_nodes=nodes,
                strategy="ddp" if local * nodes > 1 else "auto",
                precision=PRECISIONS[self._precision(accelerator)],  # type: ignore[arg-type]
            )
        except Exception as error:  # Fabric has an exception of its own for every kind of absent hardware
            reason = " ".join(str(error).split())
            raise InputError(f"{local} {accelerator} device(s) cannot be used here: {reason}") from None
        rejoin_after_restart(accelerator)
        self.fabric.launch()
        if self.processes > 1:
            atexit.register(destroy_group)

    def _precision(self, accelerator: str) -> str:
        if self.hardware.precision != "auto":
            return self.hardware.precision
        if accelerator != "cuda":
            return "32"  # sixteen bits are ten times slower on a CPU without the instructions for them
        return "bf16" if torch.cuda.is_bf16_supported() else "fp16"

    @property
    def device(self) -> torch.device:
        return self.fabric.device

    @property
    def rank(self) -> int:
        return self.fabric.global_rank

    @property
    def processes(self) -> int:
        return self.fabric.world_size

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and shows progress."""
        return self.rank == 0

    def place(self, model: nn.Module) -> nn.Module:
        """Return the model on the device, in the memory layout that is fastest there."""
        if self.hardware.sync_batchnorm and self.processes > 1:
            model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
        model = model.to(self.device)
        # Only four-dimensional weights change: convolutions are up to twice as fast with the channels last.
        return model.to(memory_format=torch.channels_last) if self.hardware.channels_last else model  # type: ignore[call-overload]

    @property
    def is_sharded(self) -> bool:
        """Whether each process holds only a part of the weights (FSDP)."""
        return self.hardware.strategy == "fsdp" and self.processes > 1

    def make_average(self, model: nn.Module, average: Any) -> AveragedModel:
        """Return the moving average of a model, made before `shard`; `average` combines lists of tensors in place."""
        # Sharded weights and whole buffers cannot be averaged in one call: then the buffers are copied.
        return AveragedModel(model, multi_avg_fn=average, use_buffers=not self.is_sharded)

    def make_template(self, averaged: nn.Module) -> nn.Module:
        """Return a whole model to load weights into: the averaged one, or a copy of it made before `shard`."""
        return copy.deepcopy(averaged) if self.is_sharded else averaged

    def shard(self, *models: nn.Module) -> None:
        """Spread the weights of these models over the processes, child by child (FSDP2); nothing otherwise."""
        if self.is_sharded:
            from torch.distributed.device_mesh import init_device_mesh
            from torch.distributed.fsdp import fully_shard

            mesh = init_device_mesh(self.device.type, (self.processes,))
            for model in models:
                for child in model.children():
                    if any(True for _ in child.parameters()):
                        fully_shard(child, mesh=mesh)
                fully_shard(model, mesh=mesh)

    def prepare(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[Any, Any]:
        """Return the model to call and the optimizer to step, wrapped for precision and processes."""
        network: Any = torch.compile(model) if self.hardware.compile else model
        if self.is_sharded:  # the model talks to the other processes by itself

            def forward(x: Tensor) -> Tensor:
                with self.fabric.autocast():
                    return network(x)

            return forward, optimizer
        return self.fabric.setup(network, optimizer, move_to_device=False)

    @contextlib.contextmanager
    def seeded(self, seed: int) -> Iterator[None]:
        """Seed torch's global generators inside the block, and restore them afterwards."""
        if self.device.type != "cpu":
            with torch.random.fork_rng():
                torch.manual_seed(seed)
                yield
            return
        with torch.random.fork_rng(devices=[]):
            # torch.manual_seed would also record the stack, for the day when CUDA is first used: at every step.
            torch.default_generator.manual_seed(seed)
            yield

    def backward(self, loss: Tensor) -> None:
        self.fabric.backward(loss)

    def without_sync(self, model: Any, enabled: bool) -> AbstractContextManager[Any]:
        """Keep gradients local inside the block; used for all but the last part of an accumulated batch."""
        if self.processes == 1 or self.is_sharded:
            return contextlib.nullcontext()
        return self.fabric.no_backward_sync(model, enabled=enabled)

    def clip(self, model: Any, optimizer: Any) -> None:
        if self.hardware.clip and self.is_sharded:
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            torch.nn.utils.clip_grad_norm_(parameters, self.hardware.clip)
        elif self.hardware.clip:
            self.fabric.clip_gradients(model, optimizer, max_norm=self.hardware.clip)

    def total(self, values: Tensor) -> Tensor:
        """Return the sum over all processes, on the CPU."""
        if self.processes == 1:
            return values.cpu()
        sums = self.fabric.all_reduce(values.to(self.device), reduce_op="sum")
        assert isinstance(sums, Tensor)
        return sums.cpu()

    def require_same(self, values: Tensor, what: str) -> None:
        """Raise an error if the processes hold different values: they would train different games."""
        if self.processes == 1:
            return
        copies = self.fabric.all_gather(values.to(self.device))
        assert isinstance(copies, Tensor)
        if not all(torch.equal(copies[0], copy) for copy in copies[1:]):
            raise RuntimeError(f"the processes hold different {what}: {copies.tolist()}")

    def broadcast(self, values: Values) -> Values:
        """Return the first process's values on all processes."""
        return self.fabric.broadcast(values) if self.processes > 1 else values

    def barrier(self) -> None:
        self.fabric.barrier()

    def weights(self, model: nn.Module) -> dict[str, Tensor]:
        """Return a copy of the model's whole state on the CPU; if sharded, all processes must call this together."""
        # Every process assembles every sharded weight, because all of them store the best model.
        return {
            name: (value.full_tensor() if hasattr(value, "full_tensor") else value).detach().cpu().clone()
            for name, value in model.state_dict().items()
        }

    def load_weights(self, model: nn.Module, state: dict[str, Tensor]) -> None:
        if self.is_sharded:
            from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

            set_model_state_dict(model, dict(state), options=StateDictOptions(full_state_dict=True))
        else:
            model.load_state_dict(state)

    def optimizer_state(self, model: nn.Module, optimizer: Any) -> dict[str, Any]:
        """Return the optimizer's whole state; if it is sharded, all processes must call this together."""
        if self.is_sharded:
            from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict

            options = StateDictOptions(full_state_dict=True, cpu_offload=True)
            return get_optimizer_state_dict(model, optimizer, options=options)
        return optimizer.state_dict()

    def load_optimizer_state(self, model: nn.Module, optimizer: Any, state: dict[str, Any]) -> None:
        if self.is_sharded:
            from torch.distributed.checkpoint.state_dict import StateDictOptions, set_optimizer_state_dict

            set_optimizer_state_dict(model, optimizer, state, options=StateDictOptions(full_state_dict=True))
        else:
            optimizer.load_state_dict(state)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the gradient scaler of fp16; empty otherwise."""
        return dict(self.fabric.strategy.precision.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state:
            self.fabric.strategy.precision.load_state_dict(state)


def keep_freed_memory() -> None:
    """Tell glibc to keep large freed blocks: by default it maps and unmaps every activation at every step.

    mallopt(M_MMAP_THRESHOLD = -3, M_TRIM_THRESHOLD = -1, M_MMAP_MAX = -4); does nothing outside of Linux.
    """
    if not sys.platform.startswith("linux"):
        return
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):  # a Linux without glibc
        return
    maximum = 2**31 - 1
    for parameter, value in ((-3, maximum), (-1, maximum), (-4, 0)):
        mallopt(ctypes.c_int(parameter), ctypes.c_int(value))


def rejoin_after_restart(accelerator: str) -> None:
    """Let processes that torchrun has restarted on one machine find each other under keys of this attempt.

    torchrun keeps one store over all restarts (pytorch issue 135712). It still holds the addresses of the killed
    processes, for which new ones would wait. Several machines count their restarts separately, so this cannot help
    them: they need TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 (docs/how-to/devices.md).
    """
    import torch.distributed as dist

    environment = os.environ
    attempt = environment.get("TORCHELASTIC_RESTART_COUNT", "0")
    is_shared = environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    is_one_machine = int(environment.get("WORLD_SIZE", 1)) > 1 and environment.get("GROUP_WORLD_SIZE") == "1"
    if attempt == "0" or not is_shared or not is_one_machine or dist.is_initialized():
        return
    store = dist.TCPStore(environment["MASTER_ADDR"], int(environment["MASTER_PORT"]), is_master=False)  # type: ignore[attr-defined]
    dist.init_process_group(
        "nccl" if accelerator == "cuda" else "gloo",
        store=dist.PrefixStore(f"attempt-{attempt}", store),  # type: ignore[attr-defined]
        rank=int(environment["RANK"]),
        world_size=int(environment["WORLD_SIZE"]),
    )


def destroy_group() -> None:
    """Leave the process group before the interpreter shuts down.

    gloo's threads release tensors; if that happens while the interpreter shuts down, the process is aborted after its
    work is done (seen under load; pytorch pull request 179291). Fabric does this for nccl only.
    """
    import torch.distributed as dist

    if dist.is_initialized():
        gc.collect()  # a wrapped model that is only waiting to be collected would keep the group's threads alive
        dist.destroy_process_group()
