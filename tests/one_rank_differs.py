"""Random programs in which one rank of many does otherwise, for one reason out of many ways to know its number."""

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

BASE = """\
async def program(model):
    {first}
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, {shard}, model.RANKS)
    for mb in {mine}:
        model.activations[0] = model.get_activation([mb])
        {second}
        for layer in range(model.LAYERS):
            weight = await model.allgather(model.weights[layer], layer)
            model.activations[layer + 1] = model.forward(layer, model.activations[layer], weight)
        grad = model.loss(model.activations.pop(model.LAYERS))
        for layer in reversed(range(model.LAYERS)):
            model.grad_activations[0] = grad
            weight = await model.allgather(model.weights[layer], layer)
            inp = model.activations.pop(layer)
            own, grad = model.backward(layer, inp, model.grad_activations.pop(0), weight)
            before = model.grad_weights.pop(layer, None)
            model.grad_weights[layer] = own if before is None else before + own
    for layer in range(model.LAYERS):
        grad = await model.scatterreduce(model.grad_weights.pop(layer), layer)
        {third}
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer])
        model.set_final_weight(layer, model.weights[layer])
    {last}
    return model
"""
MINE = ["range(model.rank, model.BATCHES, model.RANKS)", "[model.rank, model.rank + model.RANKS]"]
KNOWS = [
    "model.rank == @",
    "@ == model.rank",
    "int(model.rank) == @",
    "model.rank in (@, -1)",
    "model.rank in {@, 1000}",
    "{@: True}.get(model.rank)",
    "table[model.rank]",
    "f'{model.rank}' == '@'",
    "str(model.rank + 1) == str(@ + 1)",
    "not model.rank - @",
    "model.rank * 2 - @ == @",
    "model.rank // @ == 1 and model.rank % @ == 0 and model.rank < 2 * @",
    "abs(model.rank - @) < 1",
    "@ - 0.5 < model.rank < @ + 0.5",
    "model.rank / @ == 1",
    "hash(model.rank) == @",
    "divmod(model.rank, @) == (1, 0)",
    "min(model.rank, @) == max(model.rank, @)",
    "1 << model.rank == 1 << @",
    "model.rank ^ @ == 0",
    "list(range(model.rank, model.rank + 1)) == [@]",
    "sum([0] * model.rank + [1]) == 1 and len([0] * model.rank) == @",
    "max(model.weights[0].shards, default=0) == @ if 0 in model.weights else table[model.rank]",
    "'{@}' in repr(model.weights.get(0)) or repr(model.rank) == '@'",
    "f'rank={@},' in repr(model)",
    "pow(model.rank, 2) == @ * @",
    "float(model.rank) == @",
]
DOES = [
    "pass",
    "x = 1",
    "model.activations['more'] = model.get_activation([(model.rank + 1) % model.RANKS])",
    "model.activations.clear()",
    "model.opt_states['more'] = model.opt_states[0]",
    "await model.allgather(model.weights[0], 0)",
    "await model.pass_to((model.rank + 1) % model.RANKS, 'hello')",
    "model.set_final_weight(0, model.weights[0])",
    "model.weights[0] = model.weights.pop(0)",
    "model.weights[0].shard(0, 2)",
    "return model",
    "raise ValueError('not here')",
    "model.load_weights(0, 0, model.RANKS)",
    "model.weights[1], model.weights[0] = model.weights[0], model.weights[1]",
    "model.weights['more'] = await model.allgather(model.weights[0], 0)",
]
PLACES = ("first", "second", "third", "last")


class Differs(NamedTuple):
    """Such a program: its source, and which rank of it differs."""

    source: str
    rank: int

    def function(self) -> Callable[[Any], Any]:
        """The program."""
        names: dict[str, Any] = {"table": [rank == self.rank for rank in range(100)]}
        exec(compile(self.source, "differs.py", "exec"), names)
        return names["program"]  # type: ignore[no-any-return]


def one_rank_differs(seed: int, ranks: int) -> Differs:
    """Return program number ``seed``."""
    choose = Random(seed)
    rank = choose.randrange(1, ranks)
    knows = choose.choice(KNOWS).replace("@", str(rank))
    parts = dict.fromkeys(PLACES, "pass") | {"mine": choose.choice(MINE), "shard": "model.rank"}
    if choose.random() < 0.1:
        parts["shard"] = f"(model.rank + 1) % model.RANKS if ({knows}) else model.rank"
    else:
        parts[choose.choice(PLACES)] = f"if {knows}: {choose.choice(DOES)}"
    return Differs(BASE.format(**parts), rank)
