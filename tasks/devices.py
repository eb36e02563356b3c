"""The GPUs that a training in this process would get."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from data_contracts.errors import Problem
from tasks.resources import ResourceConfig

MIB = 2**20
ACTION = "Check the driver (`nvidia-smi`), CUDA_VISIBLE_DEVICES and that this torch is built for CUDA, or ask for less."


@dataclass(frozen=True)
class Gpu:
    """A device as torch sees it."""

    name: str
    memory_mib: int


def visible_gpus() -> tuple[Gpu, ...]:
    """What torch sees; imports it."""
    import torch

    found = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    return tuple(Gpu(str(one.name), int(one.total_memory) // MIB) for one in found)


def check_devices(needs: ResourceConfig, look: Callable[[], Sequence[Gpu]] = visible_gpus) -> Iterator[Problem]:
    """As many devices of the wished memory as the job declares; a job without any does not look."""
    if not needs.devices:
        return
    gpus = look()
    if len(gpus) < needs.devices:
        names = ", ".join(gpu.name for gpu in gpus) or "none"
        yield Problem("resources.devices", f"{needs.devices} that torch can use", f"{len(gpus)} ({names})", ACTION)
    for number, gpu in enumerate(gpus[: needs.devices]):
        if gpu.memory_mib < needs.device_memory_mib:
            expected = f"{needs.device_memory_mib} MiB on device {number}"
            yield Problem("resources.device_memory_mib", expected, f"{gpu.memory_mib} MiB ({gpu.name})", ACTION)
