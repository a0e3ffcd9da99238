# %% [markdown]
# # Puzzle 23: LoRA
#
# A model of {{model / BILLION}} billion parameters fits on your GPU, with {{WEIGHT * model / BILLION}} GB. To train
# all of it takes {{trained(model) / BILLION}}. So *LoRA*, low-rank adaptation, freezes the weights, and trains two
# thin matrices beside each. What of FSDP is still needed when almost nothing is trained?
#
# ![Puzzle 4's answer, in which all weights are trained](picture:all_weights)
#
# Rank 0 with puzzle 4's answer. The thin matrices of a layer are its *adapter*,
# {{Fraction(cost.adapter_elements, cost.weight_elements):word}} of the size of its weight:
#
# ```python
# adapter, opt_state = model.load_adapter(layer)  # the weight has no state of its own
# out = model.forward(layer, inp, weight, adapter=adapter)  # both whole
# of_adapter, of_inp = model.backward(layer, inp, grad, weight, adapter=adapter)  # half as long as before
# ```

# %%
from drawing import beside_target, draw, play
from lib import HIDDEN, Cost, Model, grade, hint, run, solution, why

# %% tags=["spec"]
PUZZLE = {
    "number": 23,
    "name": "lora",
    "title": "LoRA",
    "size": {"ranks": 4, "layers": 6, "batches": 4, "train": "adapters"},
    "other_sizes": "data_parallel",
    "target": {"time": 17.4, "memory": 1933312},
    "star": {"time": 12.6, "memory": 1671168},
    "frontier": [
        {"time": 12.3, "memory": 1933312, "by": "lora_early"},
        {"time": 12.6, "memory": 1671168, "by": "lora_overlap"},
        {"time": 14.6, "memory": 1417216, "by": "lora_checkpointed"},
    ],
    "layout": "frozen_shards",
    "ideas": ["as_many_each"],
    "words": ["adapter"],
    "begins_with": "fsdp",
    "hints_for": {"slow": 2, "large": 2},
    "difficulty": "medium",
    "minutes": 30,
    "star_hint": "In the backward pass a rank waits for each gathered weight. What is there to do "
    "meanwhile that needs no weight?",
    "hints": [
        "Start from FSDP, puzzle 4. Its weights are in shards, and gathered for each forward and each backward: that "
        "stays. What does it do with gradients and optimizer states, and of which of these is there anything left?",
        "`weight = await model.allgather(model.weights[layer], layer)`, and then `model.forward(layer, inp, weight, "
        "adapter=adapter)`; `backward` takes the adapter, too. What it gives is the gradient of the adapter. All "
        "ranks have the whole adapter, as in data parallel, so the gradients are summed by an all-reduce. Take "
        "activations and gradients out of their dictionaries once they are used, so that they take up no memory. "
        "And what could be on its way while a layer is computed?",
        "In the forward pass, gather the next weight while a layer is computed. In the backward pass that would put "
        "one more weight into memory just when memory is highest. But there is something to do while a weight is on "
        "its way: the update of a layer can wait for as long as you like. Start the gather first and the all-reduce "
        "after it, since the gather is what the next backward waits for.",
    ],
}

# %% [markdown]
# ## Your task
#
# Train the adapters. Every rank begins and ends with all of them, and with their optimizer states. Of each frozen
# weight, rank `r` has shard `r` of `RANKS` from beginning to end, and no state.
#
# - {{ideas}}
# - Store an adapter in `model.weights` under a key of its own: `model.weights["adapter", layer]`.
# - `update` and collectives take adapters as they take weights.
# - The final weights are the adapters: `model.set_final_weight(layer, adapter)`.
# - Other sizes are tried, too.
#
# Target: **{{target.time}}** ticks, peak memory **{{target.memory}}** elements.


# %%
async def lora(model: Model) -> Model:
    """Adapters on each rank, frozen weights in shards."""
    ### BEGIN SOLUTION
    for layer in range(model.LAYERS):
        model.weights[layer], _ = model.load_weights(layer, model.rank, model.RANKS)
        model.weights["adapter", layer], model.opt_states[layer] = model.load_adapter(layer)

    model.activations[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        inp, adapter = model.activations[layer], model.weights["adapter", layer]
        weight = await model.allgather(model.weights[layer], layer)
        model.activations[layer + 1] = model.forward(layer, inp, weight, adapter=adapter)
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        weight = await model.allgather(model.weights[layer], layer)
        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        adapter = model.weights["adapter", layer]
        grad, model.grad_activations[layer] = model.backward(
            layer, inp, grad_out, weight, adapter=adapter
        )
        grad = await model.allreduce(grad, layer)
        adapter, model.opt_states[layer] = model.update(
            layer, grad, adapter, model.opt_states[layer]
        )
        model.weights["adapter", layer] = adapter
        model.set_final_weight(layer, adapter)
    ### END SOLUTION
    return model


# %%
draw(run(lora, ranks=4, layers=6, batches=4, train="adapters"))

# %%
# Right? Fast and small enough? At other sizes, too?
grade(lora)

# %% [markdown]
# ## When it passes
#
# **The star:** {{star.time}} ticks, {{star.memory}} elements. It wants calls that are on their way while a rank
# works; [puzzle 12](p12_prefetch.ipynb) shows how. To watch your own run, with the line that each rank is at:

# %%
play(run(lora, ranks=4, layers=6, batches=4, train="adapters"))

# %% [markdown]
# ### What is left
#
# The picture at the top trains all weights, as in puzzle 4. This one has the same form, and trains adapters:
#
# ![Adapters](picture:adapters_only)
#
# A forward takes as long as before, and a backward half as long: the gradient of the weight was the other half. At the
# peak, {{parts[0]:%}} of the memory is activations and the gradient of one of them, whose sizes do not depend on what
# is trained. Frozen weights are {{parts[1]:%}}, and adapters with their states the other {{parts[2]:%}}. What would
# each idea of the course still save?
#
# - Sharded states and gradients (puzzles 4, 9 and 10): nothing that is worth a call. In the model of
#   {{model / BILLION}} billion parameters, {{rank}} columns and {{rank}} rows beside each matrix are
#   {{beside / MILLION:.0f}} million parameters. With all that belongs to them they take
#   {{trained(beside) / BILLION:.1f}} of {{(WEIGHT * model + trained(beside)) / BILLION:.1f}} GB.
# - Gathering weights for each layer (puzzle 4): all of it is still needed. In the run above, 2 x {{layers}} gathers
#   bring a rank as many elements as {{brought(ours, "allgather")}} weights have. The reduce-scatters of gradients,
#   another {{brought(everything, "scatterreduce")}}, are gone. The all-reduces of all six adapters bring it
#   {{brought(ours, "allreduce"):.2f}}.
# - Data parallel (puzzle 2): for adapters it is the right thing again, as it was for a model that fits.
# - Prefetching (puzzle 12) and checkpointing (puzzle 11): as before, since weights travel and activations stay.
# - A backward in two halves (puzzle 16): there is no second half.
#
# Nobody updates the frozen weights, so they need not be precise. With 4 bits instead of 16 bits a weight takes a
# quarter of its memory, and a gather carries a quarter. That is *QLoRA*. Try it with your function: `run(lora, ranks=4,
# layers=6, batches=4, train="adapters", cost=Cost(weight_elements=HIDDEN**2 // 4))` takes {{small.memory}} elements.
# Then {{small_parts[0]:%}} of the peak is activations and the gradient of one of them.

# %% [markdown] tags=["solution"]
# ### The program in which all weights are trained
#
# FSDP, at the same size, and the two pictures.

# %% tags=["solution"]
from drawing import Figure, compare


async def fsdp_again(model: Model) -> Model:
    """Puzzle 4: all weights are trained, in shards."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(
            layer, model.rank, model.RANKS
        )

    model.activations[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        weight = await model.allgather(model.weights[layer], layer)
        model.activations[layer + 1] = model.forward(layer, model.activations[layer], weight)
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        weight = await model.allgather(model.weights[layer], layer)
        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        grad, model.grad_activations[layer] = model.backward(layer, inp, grad_out, weight)
        grad = await model.scatterreduce(grad, layer)
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


def all_weights(static: bool = False) -> Figure:
    """Everything is trained."""
    first = run(fsdp_again, ranks=4, layers=6, batches=4).models[0]
    return draw(first, title="all weights", memory_target=1_933_312, static=static)


def adapters_only(static: bool = False) -> Figure:
    """Only adapters are trained."""
    first = run(lora, ranks=4, layers=6, batches=4, train="adapters").models[0]
    return draw(first, title="adapters", memory_target=1_933_312, static=static)


compare(
    run(fsdp_again, ranks=4, layers=6, batches=4),
    run(lora, ranks=4, layers=6, batches=4, train="adapters"),
)

# %% [markdown] tags=["solution"]
# ### Faster: gather while you update
#
# A backward takes {{cost.backward / 2:word}} a tick now, and a gather and an all-reduce together take
# {{2 * cost.collective}}. So the links are busy longer than the rank, and a prefetch alone does not hide them. But an
# update takes half a tick, too, and nothing waits for it. So a layer's update can be made whenever a weight is on its
# way. Then every gather but the first of each pass is hidden: {{computing}} ticks of computing and 2 gathers are
# {{overlap.time}} ticks, with no more memory than the plain program.
#
# With `early`, the second weight of the backward pass is gathered while the first backward runs, where memory is
# highest. That takes {{early.time}} ticks, and one more whole weight. Or the rank keeps the inputs of some layers only,
# and makes the rest again, as in puzzle 11. With every third input kept, it takes {{third.time}} ticks and
# {{third.memory}} elements. A plan, made before, says in which order layers are computed.


# %% tags=["solution"]
async def by_plan(model: Model, every: int, early: bool = False) -> Model:
    """The input of every ``every``-th layer is kept, and the others are made again; the next weight is gathered during
    a forward or an update, and with ``early`` once during a backward."""
    for layer in range(model.LAYERS):
        model.weights[layer], _ = model.load_weights(layer, model.rank, model.RANKS)
        model.weights["adapter", layer], model.opt_states[layer] = model.load_adapter(layer)

    last, kept = model.LAYERS - 1, range(0, model.LAYERS, every)
    plan = [("forward", layer) for layer in range(model.LAYERS)]
    for first in reversed(kept):
        inside = range(first, min(first + every, model.LAYERS))
        if first != kept[-1]:
            plan += [("forward", layer) for layer in inside[:-1]]
        plan += [("backward", layer) for layer in reversed(inside)]
    sums = {}

    def gather(step: int):
        """Start to gather the weight of a step, unless the step before has the same."""
        if step == len(plan) or plan[step][1] == plan[step - 1][1]:
            return None
        return model.allgather(model.weights[plan[step][1]], plan[step][1])

    async def update(layer: int) -> None:
        adapter, model.opt_states[layer] = model.update(
            layer,
            await sums.pop(layer),
            model.weights["adapter", layer],
            model.opt_states[layer],
        )
        model.weights["adapter", layer] = adapter
        model.set_final_weight(layer, adapter)

    model.activations[0] = model.get_activation([model.rank])
    coming = model.allgather(model.weights[0], 0)
    for step, (what, layer) in enumerate(plan):
        if coming:
            model.weights["whole"] = await coming
        weight, adapter = model.weights["whole"], model.weights["adapter", layer]
        coming = gather(step + 1) if what == "forward" or (early and layer == last) else None
        if coming:
            del model.weights["whole"]
        if what == "forward":
            inp = model.activations[layer]
            if step < kept[-1] and layer not in kept:
                del model.activations[layer]
            out = model.forward(layer, inp, weight, adapter=adapter)
            if layer < last:
                model.activations[layer + 1] = out
            else:
                model.grad_activations[last + 1] = model.loss(out)
            continue
        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        model.weights.pop("whole", None)
        model.grad_weights[layer], model.grad_activations[layer] = model.backward(
            layer, inp, grad_out, weight, adapter=adapter
        )
        coming = coming or gather(step + 1)
        sums[layer] = model.allreduce(model.grad_weights.pop(layer), layer)
        if layer + 1 in sums:
            await update(layer + 1)
    for layer in sorted(sums, reverse=True):
        await update(layer)
    return model


async def lora_overlap(model: Model) -> Model:
    """Gathers run during forwards and updates."""
    return await by_plan(model, every=model.LAYERS)


async def lora_early(model: Model) -> Model:
    """One more gather runs during the first backward."""
    return await by_plan(model, every=model.LAYERS, early=True)


async def lora_checkpointed(model: Model) -> Model:
    """Only every third layer's input is kept."""
    return await by_plan(model, every=3)


draw(run(lora_overlap, ranks=4, layers=6, batches=4, train="adapters"))

# %% [markdown]
# ### Where real systems do this
#
# LoRA is by Hu et al. (arXiv 2106.09685): of the {{GPT / BILLION}} billion parameters of GPT-3 they trained one in
# {{tenth}}. Hugging Face's PEFT and NeMo do it with many models, and so did torchtune, whose development stopped in
# July 2025. The {{beside / MILLION:.0f}} million above are for Llama 7B with rank {{rank}} beside all seven matrices
# of each layer. For NeMo, version 24.12, NVIDIA publishes what one H100 trains of Llama 2 7B in 8 bits: {{with_lora}}
# tokens a second with LoRA and {{without}} without, {{with_lora / without:.2f}} times as many (docs.nvidia.com, NeMo
# Framework User Guide, "Performance Summary": fine-tuning). If a forward and each half of a backward take the same
# time, LoRA does two parts of three. That would make it {{3 / (cost.forward + cost.backward)}} times as fast.
#
# QLoRA (arXiv 2305.14314) brought the memory to fine-tune {{large / BILLION}} billion parameters from more than
# {{STATE * large / BILLION}} GB to less than {{one_gpu}} GB, which is one GPU. Weights in 4 bits take
# {{large / 2 / BILLION}} GB, and the adapters, of rank {{wide}}, take {{trained(beside_large) / BILLION:.1f}} GB with
# all that belongs to them. Together with FSDP, which gathers the 4-bit weights, a model of {{LLAMA / BILLION}}
# billion parameters was fine-tuned on two gaming GPUs with {{gaming}} GB each (Answer.AI, March 2024). Your program
# works the same way.

# %% [markdown]
# ### On real GPUs
#
# Llama 2 7B in one node, with adapters of rank {{rank}} at all seven matrices of a layer.
#
# ![What a step takes](picture:priced)
#
# That makes {{speed(priced)}} tokens a second on each GPU, and {{speed(overlapped)}} in the order of the star. NeMo's
# {{with_lora}} were measured in 8 bits. With `fp8=True` among the prices, the order of the star makes
# {{speed(in_8_bits)}}, and {{speed(alone)}} where each GPU holds everything and gathers nothing.
#
# We give no MFU. `priced.mfu` says {{str(priced.mfu)}}. But that formula counts the gradients of all weights, and
# here nobody computes them.

# %% tags=["priced"]
from lib.real import H100_DGX, LLAMA_2_7B, report

priced = run(
    lora,
    ranks=8,
    layers=32,
    batches=8,
    train="adapters",
    cost=H100_DGX.cost(LLAMA_2_7B, adapter_rank=16),
)
print(report(priced))

# %% tags=["figures"]
from lib import Run
from lib.record.figures.score import peak_event
from lib.record.kinds import MEMORY_KINDS
from lib.record.table import collective


def adapters(width: int, deep: int, hidden: int, inner: int) -> int:
    """Parameters beside all matrices of Llama's layers: four of attention, three of the feed-forward part."""
    return deep * width * (4 * (hidden + hidden) + 3 * (hidden + inner))


model, rank, own = 7e9, 16, cost.adapter_elements // (2 * HIDDEN)
beside = adapters(rank, 32, 4096, 11_008)
large, wide, one_gpu = (
    published(value, "arXiv 2305.14314") for value in (65_000_000_000, 64, 48)
)
beside_large = adapters(wide, 80, 8192, 22_016)
gaming = published(24, "Answer.AI")
tenth = published(10_000, "arXiv 2106.09685")
with_lora, without = (published(value, "docs.nvidia.com") for value in (24_824, 16_891))

four_bits = Cost(weight_elements=HIDDEN**2 // 4)
ours, small, everything = (
    run(lora, **size),
    run(lora, **size, cost=four_bits),
    run(fsdp_again, ranks=4, layers=6, batches=4),
)


def of_the_peak(done: Run) -> list[Fraction]:
    """Shares of activations and their gradients, frozen weights, and adapters with their states."""
    held = dict(zip(MEMORY_KINDS, peak_event(done.events).held, strict=True))
    trained_ones = layers * cost.adapter_elements
    assert held["opt_states"] == trained_ones
    sizes = (
        held["activations"] + held["activation_grads"],
        held["weights"] - trained_ones,
        2 * trained_ones,
    )
    assert sum(sizes) == done.memory
    return shares(sizes)


parts, small_parts = of_the_peak(ours), of_the_peak(small)


def brought(done: Run, kind: str) -> float:
    """Weights' worth of elements that rank 0 gets from others: 3/4 of each tensor, of an all-reduce twice that."""
    calls = [event for event in done.events if event.rank == 0 and event.kind == kind]
    whole = sum(event.elements * (ranks if event.tensor == "Weight" else 1) for event in calls)
    return float(
        whole * collective(kind).rounds * Fraction(ranks - 1, ranks) / cost.weight_elements
    )


computing = layers * (cost.forward + cost.backward / 2 + cost.update)
overlap, early, third = (
    run(fn, **size) for fn in (lora_overlap, lora_early, lora_checkpointed)
)
there = {"layers": priced.layers, "train": "adapters", "cost": priced.cost}
overlapped = run(lora_overlap, ranks=priced.ranks, batches=priced.batches, **there)
there["cost"] = H100_DGX.cost(LLAMA_2_7B, adapter_rank=16, fp8=True)
in_8_bits = run(lora_overlap, ranks=priced.ranks, batches=priced.batches, **there)
alone = run(lora_overlap, ranks=1, batches=1, **there)


def speed(done: Run) -> float:
    """Tokens a second on each GPU, to three digits."""
    return round(done.batches / done.ranks * LLAMA_2_7B.sequence / done.seconds, -2)
