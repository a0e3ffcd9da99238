# %% [markdown]
# # Puzzle 5: Pipeline parallel
#
# FSDP moves the whole model three times for every micro-batch. What if weights never travel? Cut the model, not the
# batch: each rank holds some of the layers, its *stage*, and passes their output on to the next rank.
#
# ![before and after a send and its receive](picture:pass_to)
#
# `pass_to` takes {{cost.send}} ticks and never waits for the receiver. `receive` waits until the message is there, and
# then takes {{cost.receive}}:
#
# ```python
# await model.pass_to(1, model.activations.pop(2))  # on rank 0
# model.activations[2] = await model.receive(src=0)  # on rank 1
# ```

# %%
from drawing import beside_target, draw, play
from lib import Model, grade, hint, run, solution, why

# %% tags=["spec"]
PUZZLE = {
    "number": 5,
    "name": "pipeline",
    "title": "Pipeline parallel",
    "size": {"ranks": 4, "layers": 8, "batches": 4},
    "other_sizes": "pipeline",
    "target": {"time": 67.4, "memory": 3145728},
    "star": {"time": 67.4, "memory": 2621440},
    "frontier": [
        {"time": 67.4, "memory": 2621440, "by": "pipeline"},
    ],
    "layout": "stages",
    "begins_with": "basic",
    "ideas": ["own_layers", "whole_batch"],
    "difficulty": "medium",
    "minutes": 20,
    "hints_for": {"slow": 2, "large": 2},
    "star_hint": "The time is that of the target. What is still in memory after it has been passed on, "
    "or after its backward has read it?",
    "hints": [
        "First work out from `model.rank`, `model.RANKS` and `model.LAYERS` which layers are yours. Then ask, for "
        "the forward and for the backward pass: where does my input come from, and who needs my output? The first "
        "and the last rank are special.",
        "With `n = model.LAYERS // model.RANKS`, rank r runs the layers from `r * n` up to, but not including, `(r "
        "+ 1) * n`. The first rank begins with `get_activation`, all others with `receive`. The last rank calls "
        "`loss`; all others pass their output on and wait for the gradient to come back. A rank that waits does "
        "nothing: what does it need from you before you do anything else? And what can leave your memory once it is "
        "passed on?",
        "Your layers are those from `first` up to, but not including, `end`. "
        "`model.activations[first] = await model.receive(src=model.rank - 1)`, forward through your layers, "
        "`await model.pass_to(model.rank + 1, model.activations.pop(end))`, "
        "`model.grad_activations[end] = await model.receive(src=model.rank + 1)`, backward through your layers, and "
        "`pass_to` the rank before. Then update. A message takes time: send only one up and one back between "
        "neighbors. What is passed on, or read for the last time, takes up memory until you take it out of its "
        "dictionary with `pop`.",
    ],
}

# %% [markdown]
# ## Your task
#
# Train one step with the layers spread over the ranks.
#
# - Each layer is on one rank, with its weight and optimizer state, and every rank has the same number of layers.
# - {{ideas}}
# - Other sizes are tried, too.
#
# Target: **{{target.time}}** ticks, peak memory **{{target.memory}}** elements.


# %%
async def pipeline(model: Model) -> Model:
    """The layers spread over the ranks, the whole batch in one piece."""
    ### BEGIN SOLUTION
    share = model.LAYERS // model.RANKS
    first, end = model.rank * share, (model.rank + 1) * share
    is_first, is_last = model.rank == 0, model.rank == model.RANKS - 1
    for layer in range(first, end):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    if is_first:
        model.activations[first] = model.get_activation(range(model.BATCHES))
    else:
        model.activations[first] = await model.receive(src=model.rank - 1)
    for layer in range(first, end):
        model.activations[layer + 1] = model.forward(
            layer, model.activations[layer], model.weights[layer]
        )

    if is_last:
        model.grad_activations[end] = model.loss(model.activations.pop(end))
    else:
        await model.pass_to(model.rank + 1, model.activations.pop(end))
        model.grad_activations[end] = await model.receive(src=model.rank + 1)
    for layer in reversed(range(first, end)):
        inp, grad = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        model.grad_weights[layer], model.grad_activations[layer] = model.backward(
            layer, inp, grad, model.weights[layer]
        )
    if not is_first:
        await model.pass_to(model.rank - 1, model.grad_activations.pop(first))

    for layer in range(first, end):
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    ### END SOLUTION
    return model


# %%
draw(run(pipeline, ranks=4, layers=8, batches=4))

# %%
# Right? Fast and small enough? At other sizes, too?
grade(pipeline)

# %% [markdown]
# ## When it passes
#
# **The star:** {{star.time}} ticks, {{star.memory}} elements. That is the time of the target, in less memory: what can
# be freed earlier?
#
# Then look at the picture for a while. Memory is fine. But something about this schedule should bother you. Here it is
# step by step, with the line of your code that each rank is at:

# %%
play(run(pipeline, ranks=4, layers=8, batches=4))

# %% [markdown]
# ### Why it matters
#
# With {{LLAMA / BILLION}} billion parameters of {{WEIGHT}} bytes, FSDP moves {{times * weights:=}} GB for every
# micro-batch. Over a fast network link of {{BETWEEN}} GB/s ({{CABLE}} Gbit/s) that takes
# {{times * weights / BETWEEN:.1f}} seconds. To compute a micro-batch of {{CONTEXT}} tokens takes
# {{operations(LLAMA, CONTEXT) / PER_SECOND:.1f}} seconds ({{OPERATIONS}} x {{LLAMA / BILLION}} billion x {{CONTEXT}}
# operations, at {{PER_SECOND / 1e14}} x 10¹⁴ operations a second).
#
# A pipeline sends only activations. Between two layers of Llama 3 70B, those of this micro-batch are {{CONTEXT}} x
# {{LLAMA_HIDDEN}} numbers of {{WEIGHT}} bytes: {{sent / MILLION:.0f}} MB, or {{sent / BETWEEN / MILLION:.1f}}
# milliseconds.
#
# ### More about messages
#
# - Without `src`, `receive` takes the next message from any rank.
# - A message that has arrived, but has not been received, takes memory on its receiver.
# - You may also send a weight or its gradient. It takes longer: {{cost.collective}} ticks for one shard, so
#   {{ranks * cost.collective}} ticks for a whole weight on 4 ranks. Messages never beat a collective.
#
# ### Where real systems do this
#
# Cutting a model by layers and doing nothing else is called naive model parallelism. People use it when a model does
# not fit on one GPU and time does not matter; `device_map="auto"` in Hugging Face's libraries cuts models this way.
# PyTorch's `ScheduleGPipe` does it with a single micro-batch: the same work and the same messages in the same order, on
# every rank (recorded from PyTorch {{TORCH}}, `tests/torch_truth/TABLE.md`).
#
# You have seen what is wrong with it: one rank works while three wait. Four GPUs take a little longer than one would.
# With p stages and m micro-batches, a step takes p·m times as long as one stage
# needs for one micro-batch.
#
# It has one great strength. Only activations and their gradients cross the links, and only where the model is cut. So
# a pipeline gets along with links that are too slow for anything else.
#
# ### On real GPUs
#
# GPT-3 on {{gpus}} GPUs. A stage is a node of {{priced.cost.tensor}} GPUs, which share each of its layers among them
# (puzzle 17). In this run a stage has one layer, which stands for {{GPT_175B.layers // priced.layers:word}} layers of
# the model.
#
# ![What a step takes](picture:priced)
#
# Seven of eight nodes wait at any time. And all {{priced.batches}} sequences go through together, so the first stage
# has to keep the activations of all of them. That does not fit.

# %% tags=["priced"]
from lib.real import A100_MEGATRON, GPT_175B, report

priced = run(
    pipeline,
    ranks=8,
    layers=8,
    batches=64,
    cost=A100_MEGATRON.cost(
        GPT_175B, tensor=8, sequence_parallel=True, recompute="selective", gradients=4
    ),
)
print(report(priced))

# %% tags=["figures"]
times, weights = 3, LLAMA * WEIGHT / BILLION  # two gathers and a reduction of so many GB
sent = CONTEXT * LLAMA_HIDDEN * WEIGHT
gpus = priced.ranks * priced.cost.tensor
