"""Puzzle 24, compose: honest styles, natural mistakes, and ways round the work by the public names alone."""

from . import HEAD, Program, changed, function

PLACE = 'replica, replicas = model.axis_index("x"), model.axis_size("x")'
STAGE = "stages, stage = model.RANKS // replicas, model.rank % (model.RANKS // replicas)"
FIRST = "first, top = replica * stages, model.LAYERS - 1"
AROUND = "before, after = first + (stage - 1) % stages, first + (stage + 1) % stages"
STATE = "state.shard(replica, replicas)"
SUM = 'grad = await model.scatterreduce(model.grad_weights.pop(layer), layer, axis="x")'
PIECE = "piece = model.weights[layer].shard(replica, replicas)"
GATHER = 'model.weights[layer] = await model.allgather(piece, layer, axis="x")'
UPDATE = "piece, state = model.update(layer, grad, piece, model.opt_states[layer])"
AHEAD = "ahead = 2 * (stages - 1 - stage) + (len(mine) - 1) * stages + 1"
MINE = "mine = range(stage, model.LAYERS, stages)"
MBS = "mbs = range(replica * share, (replica + 1) * share)"
ON_Z = (
    (PLACE, PLACE.replace('"x"', '"z"')),
    (STAGE, "stages, stage = model.RANKS // replicas, model.rank // replicas"),
    (FIRST, "top = model.LAYERS - 1"),
    (AROUND, "before, after = (model.rank - replicas) % model.RANKS, (model.rank + replicas) % model.RANKS"),
    (SUM, SUM.replace('"x"', '"z"')),
    (GATHER, GATHER.replace('"x"', '"z"')),
)


ONE_UPDATES = """
        if not replica:
            weight, model.opt_states[layer] = model.update(layer, grad, model.weights[layer], model.opt_states[layer])
            model.weights[layer] = weight
            model.set_final_weight(layer, weight)
            for other in range(1, replicas):
                await model.pass_to(model.rank_at(x=other), weight)
        else:
            model.weights[layer] = await model.receive(src=model.rank_at(x=0))
"""


def laid_out(name: str, arguments: str) -> Program:
    """A program that is one call of the function that lays out pipelines, or of that of FSDP."""
    helper = "sharded" if "at_once" in arguments else "laid_out"
    source = "from collections.abc import Awaitable\nfrom typing import Any\n" + function(helper)
    source += f"\n\nasync def compose(model):\n    return await {helper}(model, {arguments})\n"
    return Program("compose", name, HEAD + source)


HONEST = [
    laid_out("four stages, and sums after each round", 'axes="xy", pieces=True, each_round=True'),
    laid_out("eight stages, overlapped", 'axes="x", pieces=True, each_round=False'),
    changed("compose", "fewer forwards ahead", (AHEAD, AHEAD.replace("2 *", "(1 if stages > 2 else 2) *"))),
    changed("compose", "an all-reduce and pieces of it", (SUM, SUM.replace("scatterreduce", "allreduce") + "\n        grad = grad.shard(replica, replicas)")),
    changed("compose", "coordinates by name", (FIRST, "first, top = model.rank_at(x=replica, y=0, z=0), model.LAYERS - 1")),
    changed("compose", "all activations of the end stay", ("model.loss(model.activations.pop((top + 1, mb)))", "model.loss(model.activations[top + 1, mb]); del model.activations[top + 1, mb]")),
    changed("compose", "updates first, then gathers", (GATHER, 'model.weights[layer] = piece'), ("        model.set_final_weight(layer, model.weights[layer])\n", ""), ("    ### END SOLUTION", '    for layer in mine:\n        model.weights[layer] = await model.allgather(model.weights[layer], layer, axis="x")\n        model.set_final_weight(layer, model.weights[layer])\n    ### END SOLUTION')),
]  # fmt: skip

MISTAKES = [
    laid_out("whole states", 'axes="x", pieces=False, each_round=False'),
    laid_out("eight stages on x, replicas on y and z", 'axes="yz", pieces=True, each_round=False, lead=1'),
    laid_out("FSDP, one by one", "at_once=1, ahead=False"),
    laid_out("FSDP, all at once, gathered ahead", "at_once=model.BATCHES, ahead=True"),
    laid_out("FSDP, two at once, gathered ahead", "at_once=2, ahead=True"),
    changed("compose", "four replicas of 16 stages", *ON_Z),
    changed("compose", "never a sum over replicas", (SUM, "grad = model.grad_weights.pop(layer).shard(replica, replicas)")),
    changed("compose", "sums over all ranks", (SUM, SUM.replace(', axis="x"', ""))),
    changed("compose", "no gather after the update", (GATHER, "model.weights[layer] = piece")),
    changed("compose", "all replicas train the same", (MBS, "mbs = range(share)")),
    changed("compose", "a layer too few", (MINE, "mine = range(stage, model.LAYERS - 1, stages)")),
    changed("compose", "one replica updates for all", ("        model.opt_states[layer] = state.shard(replica, replicas)", "        if not replica:\n            model.opt_states[layer] = state"), (SUM, SUM.replace("scatterreduce", "allreduce") + "\n" + ONE_UPDATES), (f"        {PIECE}\n        {UPDATE}\n        model.opt_states[layer] = state\n        {GATHER}\n        model.set_final_weight(layer, model.weights[layer])\n", "")),
    changed("compose", "replicas on the wrong ranks", (STAGE, "stages, stage = model.RANKS // replicas, model.rank // replicas")),
    changed("compose", "all forwards first", (AHEAD, "ahead = len(forwards)")),
    changed("compose", "states dropped", (f"model.opt_states[layer] = {STATE}", "if replica == 0:\n            model.opt_states[layer] = state")),
    # -- round the work -------------------------------------------------------------------------------------
    changed("compose", "the other replica's gradient made up", (SUM, "grad = model.grad_weights.pop(layer)\n        grad = (grad + model.fake_grad(layer, [mb for mb in range(model.BATCHES) if mb not in grad.batches])).shard(replica, replicas)")),
    changed("compose", "one call for all layers", (SUM, '(grad,) = await model.scatterreduce([model.grad_weights.pop(layer)], [layer], axis="x")')),
    changed("compose", "a gradient made by hand", (SUM, SUM + "\n        grad = WeightGrad(layer, model.LAYERS, range(model.BATCHES), model.BATCHES, {replica}, replicas)")),
    changed("compose", "what a forward keeps", ("out = model.forward(layer, model.activations[layer, mb], model.weights[layer])", 'out, model.activations["kept", layer, mb] = model.forward(layer, model.activations[layer, mb], model.weights[layer], keep="all")')),
]  # fmt: skip
