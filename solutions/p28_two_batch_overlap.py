# %% [markdown]
# # Puzzle 28: Two batches overlapped
#
# Experts are often on other nodes, and between nodes the links are slow. In DeepSeek-V3, tokens take as much time to
# travel as GPUs take to compute. Had they waited for their tokens, training would have taken twice as long. What did
# the GPUs do meanwhile?
#
# ![Puzzle 27's answer over slow links](picture:slow_links)
#
# This is puzzle 27's answer over links with a quarter of the bandwidth, with one micro-batch on each rank. An
# all-to-all takes up to {{slowest:.2f}} ticks, nearly as long as a forward.

# %%
from drawing import beside_target, draw, play
from lib import ExpertRingCost, Model, grade, hint, run, solution, why

# %% tags=["spec"]
PUZZLE = {
    "number": 28,
    "name": "two_batch_overlap",
    "title": "Two batches overlapped",
    "size": {"ranks": 4, "layers": 8, "batches": 8, "experts": 8},
    "other_sizes": "experts",
    "target": {"time": 64.0, "memory": 11272192},
    "star": {"time": 60.5, "memory": 11010048},
    "frontier": [{"time": 60.32, "memory": 10616832, "by": "updates_while_tokens_travel"}],
    "cost": "far_experts",
    "layout": "experts_sharded",
    "ideas": ["as_many_each", "weights_stay"],
    "words": ["alltoall", "expert"],
    "begins_with": "expert_parallel",
    "hints_for": {"slow": 1, "large": 2},
    "difficulty": "hard",
    "minutes": 45,
    "star_hint": "Look at the end of your schedule: which of the updates and sums there could have been made while "
    "some rank waited for the busiest one?",
    "hints": [
        "Each rank has two micro-batches, and they need nothing of each other. While the tokens of one travel, a "
        "rank need not wait: what could be computed for the other? Between any two layers here there is an "
        "all-to-all.",
        "Keep the call of each micro-batch: `on_their_way[turn] = model.alltoall(out, layer + 1)`. In every layer, "
        "for each of the two: `await on_their_way.pop(turn)`, compute, call the next all-to-all. What came for the "
        "first is computed while the tokens of the second travel. The inputs of both stay stored, under "
        "`model.activations[turn, layer]`. An update may come as soon as a gradient is complete: then the gradient "
        "is gone from memory.",
        "The sums of dense gradients can be started all together at the end, before the updates of the experts. For "
        "the star, start each as soon as both micro-batches are through its layer.",
    ],
}

# %% [markdown]
# ## Your task
#
# Train {{ours.batches}} micro-batches, two on each rank. Weights and optimizer states are where puzzle 27 has them:
# dense layers whole on every rank, and shard `r` of the experts on rank `r`.
#
# - {{ideas}}
# - `alltoall`, `expert` and `backward_expert` are allowed, as in puzzle 27.
# - Other sizes are tried, too.
#
# Target: **{{target.time}}** ticks, peak memory **{{target.memory}}** elements.


# %%
async def two_batch_overlap(model: Model) -> Model:
    """Expert parallel over slow links, with two micro-batches a rank."""
    ### BEGIN SOLUTION
    acts, grads, sums = model.activations, model.grad_activations, model.grad_weights
    for layer in range(model.LAYERS):
        piece = (model.rank, model.RANKS) if model.experts(layer) else (0, 1)
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, *piece)

    mine = range(model.rank, model.BATCHES, model.RANKS)
    on_their_way = {}
    for layer in range(model.LAYERS):
        verb = model.expert if model.experts(layer) else model.forward
        for turn, mb in enumerate(mine):
            inp = await on_their_way.pop(turn) if layer else model.get_activation([mb])
            acts[turn, layer] = inp
            out = verb(layer, inp, model.weights[layer])
            on_their_way[turn] = model.alltoall(out, layer + 1)
    for turn in range(len(mine)):
        grad = model.loss(await on_their_way.pop(turn))
        on_their_way[turn] = model.alltoall(grad, model.LAYERS - 1)

    for layer in reversed(range(model.LAYERS)):
        verb = model.backward_expert if model.experts(layer) else model.backward
        for turn in range(len(mine)):
            grad = await on_their_way.pop(turn)
            inp, weight = acts.pop((turn, layer)), model.weights[layer]
            grad, grads["last"] = verb(layer, inp, grad, weight)
            sums[layer] = sums[layer] + grad if turn else grad
            grad = grads.pop("last")
            if layer > 0:
                on_their_way[turn] = model.alltoall(grad, layer - 1)

    dense = [layer for layer in range(model.LAYERS) if not model.experts(layer)]
    totals = {layer: model.allreduce(sums.pop(layer), layer) for layer in dense}
    experts = [layer for layer in range(model.LAYERS) if model.experts(layer)]
    for layer in [*experts, *dense]:
        grad = await totals[layer] if layer in totals else sums.pop(layer)
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    ### END SOLUTION
    return model


# %%
far = ExpertRingCost(
    backward=2,
    experts=8,
    loads=(4, 2, 2, 2, 2, 2, 1, 1),
    chosen=2,
    expert_elements=262_144,
    latency=0.02,
    bandwidth=327_680,
)
draw(run(two_batch_overlap, ranks=4, layers=8, batches=8, experts=8, cost=far))

# %%
# Right? Fast and small enough? At other sizes, too?
grade(two_batch_overlap)

# %% [markdown]
# ## When it passes
#
# **The star:** {{star.time}} ticks, {{star.memory}} elements. Look at what is left at the end of your schedule, and
# could have been on its way ([puzzle 12](p12_prefetch.ipynb) shows how). To watch your own run, with the line that
# each rank is at:

# %%
play(run(two_batch_overlap, ranks=4, layers=8, batches=8, experts=8, cost=far))

# %% [markdown]
# ### What it costs
#
# Both micro-batches can also go through every layer together. With the order of puzzle 27's star that takes
# {{together.time}} ticks, since nobody computes while tokens travel. If they take turns, so that one is computed
# while the tokens of the other travel, it takes {{ours.time}}. If both all-to-alls of a layer take no longer than it
# takes to compute one micro-batch, they cost nothing at all. What is left is the work of the busiest rank in every
# layer, an all-to-all at both ends, and the last updates.
#
# No schedule takes less than {{bound}} ticks, the bound that the verdict shows. One rank has that much work: it
# computes its experts for the tokens of all micro-batches, and the dense layers for its own, and it updates both. The
# rest of the time goes into waiting, since in every layer another rank may be the busiest one.
#
# The price is small pieces. A GPU computes half as many tokens at a time, and matrices that are too thin do not fill
# it. In this puzzle a micro-batch takes half of what two take. On real GPUs it takes a little more.

# %% [markdown] tags=["solution"]
# ### Smaller and faster: updates while tokens travel
#
# If the sum of a dense layer starts right after its backward, it runs beside the tokens. And in every layer some
# ranks have fewer tokens than the busiest one, and wait for it. An update that is made there costs nothing, and then
# its gradient is gone. One update after the backward of each layer takes {{early.time}} ticks and {{early.memory}}
# elements.

# %% tags=["solution"]
from drawing import Figure


async def updates_while_tokens_travel(model: Model) -> Model:
    """By turns, with an update after each layer's backward where a gradient is complete."""
    acts, grads, sums = model.activations, model.grad_activations, model.grad_weights
    for layer in range(model.LAYERS):
        piece = (model.rank, model.RANKS) if model.experts(layer) else (0, 1)
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, *piece)

    mine = range(model.rank, model.BATCHES, model.RANKS)
    on_their_way, totals, ready = {}, {}, []
    for layer in range(model.LAYERS):
        verb = model.expert if model.experts(layer) else model.forward
        for turn, mb in enumerate(mine):
            inp = await on_their_way.pop(turn) if layer else model.get_activation([mb])
            acts[turn, layer] = inp
            out = verb(layer, inp, model.weights[layer])
            on_their_way[turn] = model.alltoall(out, layer + 1)
    for turn in range(len(mine)):
        grad = model.loss(await on_their_way.pop(turn))
        on_their_way[turn] = model.alltoall(grad, model.LAYERS - 1)

    def update_one() -> None:
        if ready:
            layer = ready.pop(0)
            model.weights[layer], model.opt_states[layer] = model.update(
                layer, sums.pop(layer), model.weights[layer], model.opt_states[layer]
            )
            model.set_final_weight(layer, model.weights[layer])

    for layer in reversed(range(model.LAYERS)):
        verb = model.backward_expert if model.experts(layer) else model.backward
        for turn in range(len(mine)):
            grad = await on_their_way.pop(turn)
            inp, weight = acts.pop((turn, layer)), model.weights[layer]
            grad, grads["last"] = verb(layer, inp, grad, weight)
            sums[layer] = sums[layer] + grad if turn else grad
            grad = grads.pop("last")
            if layer > 0:
                on_their_way[turn] = model.alltoall(grad, layer - 1)
        if model.experts(layer):
            ready.append(layer)
        else:
            totals[layer] = model.allreduce(sums.pop(layer), layer)
        update_one()
        if layer + 2 in totals:
            sums[layer + 2] = await totals.pop(layer + 2)
            ready.append(layer + 2)
    while ready:
        update_one()
    for layer in sorted(totals, reverse=True):
        sums[layer] = await totals[layer]
        ready.append(layer)
        update_one()
    return model


def slow_links(static: bool = False) -> Figure:
    """Puzzle 27's answer, a micro-batch on each rank, at the prices of this puzzle."""
    from solutions.p27_expert_parallel import expert_parallel

    slow = run(expert_parallel, ranks=4, layers=8, batches=4, experts=8, cost=far)
    return draw(slow, title="puzzle 27's answer, slow links", static=static)


draw(run(updates_while_tokens_travel, ranks=4, layers=8, batches=8, experts=8, cost=far))

# %% [markdown]
# ### Where real systems do this
#
# DeepSeek-V3's pipeline, DualPipe, lets the tokens of one micro-batch travel while another one is computed (arXiv
# 2412.19437). It is fed from both ends, so it has a forward of one micro-batch beside the backward of another, and
# cuts both into pieces that fit beside each other. Puzzle 30 is about it. For serving, where there is no backward,
# DeepSeek takes two micro-batches by turns, as you did. Megatron-LM has `--overlap-moe-expert-parallel-comm`.
#
# How much is at stake? The experts of DeepSeek-V3 are on {{nodes_deepseek:word}} nodes, and for each second of
# computing, tokens travel for {{ratio:word}} second. Its pre-training took {{hours / MILLION:.2f}} million GPU hours
# ({{in_all / MILLION:.2f}} million in all). Had the GPUs waited, it would have been about
# {{hours * (1 + ratio) / MILLION:.1f}} million.
#
# All-to-alls need GPU cores, too. Of the {{all_cores}} cores of each GPU, {{cores}} did nothing but send and receive
# tokens.

# %% [markdown]
# ### On real GPUs
#
# Four layers of DeepSeek-V3 on eight nodes, with {{ways}}-way expert parallelism as in its report: four of its
# {{experts_deepseek}} experts are on every GPU.
#
# ![What a step takes](picture:priced)

# %% tags=["priced"]
from dataclasses import replace

from lib.real import DEEPSEEK_V3, H100_DGX, report

stage = replace(DEEPSEEK_V3, layers=4, dense_layers=0, name="A stage of DeepSeek-V3")
priced = run(
    two_batch_overlap,
    ranks=64,
    layers=8,
    batches=128,
    experts=256,
    cost=H100_DGX.cost(stage, experts=256),
)
print(report(priced))

# %% tags=["figures"]
from typing import Any

from lib.course.bounds import bounds_of
from lib.course.specs import COSTS, find

from solutions.p27_expert_parallel import expert_parallel, tokens_before_sums

assert far == COSTS["far_experts"]
size: dict[str, Any] = {"ranks": 4, "layers": 8, "batches": 8, "experts": 8}
ours, early, together = (
    run(fn, **size, cost=far)
    for fn in (two_batch_overlap, updates_while_tokens_travel, tokens_before_sums)
)
bound = float(bounds_of(find("two_batch_overlap")).time)
slowest = max(event.length for event in ours.events if event.kind == "alltoall")
one_each = run(expert_parallel, **{**size, "batches": 4}, cost=far)
hours, in_all, nodes_deepseek, ratio = (
    published(each, "arXiv 2412.19437") for each in (2_664_000, 2_788_000, 8, 1)
)
cores, all_cores = (published(each, "arXiv 2412.19437") for each in (20, 132))
ways, experts_deepseek = (published(each, "arXiv 2412.19437") for each in (64, 256))
