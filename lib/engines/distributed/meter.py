"""How many numbers are alive in a process at once, stored or not."""

import threading
import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter


class Meter:
    """Counts the bytes of all tensors that are alive in a process (``now``), and the most ever (``peak``).

    torch knows every tensor that is made: a dispatch mode sees it, and a finalizer of its storage says when it is gone.
    Besides what is stored there are inputs of operations while they run, gradients, buffers, m, v and Adam's update.
    """

    def __init__(self) -> None:
        self.now = self.peak = 0
        self.known: set[int] = set()
        self.lock = threading.RLock()

    def watch(self) -> Any:
        """Return a context that each thread which computes has to enter."""
        return _Watch(self)

    def saw(self, tensor: torch.Tensor) -> None:
        """Count the storage of a tensor, unless it is known already."""
        storage = tensor.untyped_storage()
        key, size = id(storage), storage.nbytes()
        with self.lock:
            if key in self.known or not size:
                return
            self.known.add(key)
            self.now += size
            self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._gone, key, size)

    def _gone(self, key: int, size: int) -> None:
        with self.lock:
            self.known.discard(key)
            self.now -= size


class _Watch(TorchDispatchMode):  # type: ignore[misc]
    """Looks at what every operation of torch makes."""

    def __init__(self, meter: Meter) -> None:
        super().__init__()
        self.meter = meter

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for one in tree_iter(made):
            if isinstance(one, torch.Tensor):
                self.meter.saw(one)
        return made
