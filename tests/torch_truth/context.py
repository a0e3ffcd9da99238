"""What PyTorch's context_parallel says on a machine without a GPU: ``python -m tests.torch_truth.context`` prints it.

A program of its own, on torch's fake process group, as in ``record``. Two ranks share a sequence of 32 tokens.
"""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel
from torch.nn import functional
from torch.testing._internal.distributed.fake_pg import FakeStore


def main() -> None:
    """Attend once, forward, and print what becomes of it."""
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    mesh = init_device_mesh("cpu", (2,))
    query, key, value = (torch.randn(1, 2, 32, 8) for _ in range(3))
    try:
        with context_parallel(mesh, buffers=[query, key, value], buffer_seq_dims=[2, 2, 2]):
            functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        print("attended")
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
