"""Small examples of collectives, for docstrings: what two ranks bring, and what each of them gets."""

import asyncio

from ..record.table import collective
from .dist import Dist
from .model import Model


def before_and_after(verb: str) -> None:
    """Print what each of two ranks brings to a collective, and what it gets."""
    dist = Dist(2)
    models = [Model(rank, dist, layers=1, batches=2) for rank in range(2)]
    brought = [collective(verb).example(model) for model in models]

    async def all_of_them() -> list[object]:
        return [*await asyncio.gather(*[getattr(model, verb)(brought[model.rank], 0) for model in models])]

    for rank, one in enumerate(brought):
        print(f"rank {rank} brings {one}")
    for rank, got in enumerate(asyncio.run(all_of_them())):
        print(f"rank {rank} gets {got}")
