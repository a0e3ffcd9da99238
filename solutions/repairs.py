# %% [markdown]
# # What is wrong here?
#
# Good to have you, detective. On your desk are some short programs. Each has one mistake, of a kind that people
# really make. Some stop with an error and leave a trail. Others are quieter: they run to their end, they train the
# model, and still something is wrong with them.
#
# Take them one at a time. Run the cells and look at the picture. A flag marks where the program stops, and red
# hatching shows who waits, and for whom. Read the verdict. Then name the line that did it, *before* you change
# anything. You need not write a program anew: a few lines close the case, and the result is graded like any other
# puzzle. There are no stars here.
#
# For each case you should have solved a puzzle before. R1 needs puzzle 1, R2 and R3 puzzle 2, R4 puzzle 4, R5 puzzle
# 5, R6 puzzle 7, R7 and R8 puzzle 8, R9 puzzle 13, R10 puzzle 27, R11 puzzle 25, R12 puzzle 18, R13 puzzle 6, R14 puzzle 27, R15 puzzle 33, R16 puzzle 17, R17 and R18 puzzle 13, R19 puzzle 14,
# R20 puzzle 8. Stuck? `hint("R1")` whispers, three times.
#
# **R12 to R16 are quiet.** In real code nothing knows what a sum should have in it, so nothing stops a wrong one. Here
# it is the same: the program runs to its end, and then the verdict says which final weights are wrong, on which ranks,
# and whether the copies of one weight are still equal. You could print that yourself, next to a run on one GPU. It
# says much. If copies differ, something was not summed. If they agree, and are wrong, something was summed too often,
# or divided by a wrong number.

# %%
from drawing import beside_target, draw
from lib import (
    Cost,
    ExpertRingCost,
    Model,
    RingCost,
    Uneven,
    grade,
    hint,
    run,
    schedule,
    solution,
    why,
)

# %% [markdown]
# ## R1. Four in a row
#
# *Take it after puzzle 1.* Gradient accumulation: one micro-batch after the other, and an update with the sum of
# their gradients. The author swears that every gradient was there a moment ago. Where was it last seen?
#
# Target, for 1 rank, 2 layers, 4 micro-batches: **{{R1.time}}** ticks, peak memory **{{R1.memory}}** elements.
#
# The grader also checks this:
#
# - {{R1.ideas}}

# %% tags=["spec"]
PUZZLE = {
    "number": "R1",
    "name": "repair_local",
    "title": "Four in a row",
    "size": {"ranks": 1, "layers": 2, "batches": 4},
    "other_sizes": "one_rank",
    "target": {"time": 17.0, "memory": 1966080},
    "frontier": [
        {"time": 17.0, "memory": 1966080, "by": "repair_local"},
    ],
    "layout": "whole",
    "ideas": ["one_micro_batch"],
    "difficulty": "easy",
    "minutes": 5,
    "hints": [
        "The error names a tensor, and the operation at which it was lost. Where was that tensor kept then?",
        "`sums` is a variable of your function, and a variable is on no device: what is only there is gone with the "
        "next operation. A device's memory is the five dictionaries of `model`, and nothing else.",
        "There is a dictionary for gradients of weights, `model.grad_weights`. Use it in place of `sums`.",
    ],
}


# %%
def repair_local(model: Model) -> Model:
    """One micro-batch after the other, the gradients added up."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    ### BEGIN SOLUTION
    sums = model.grad_weights
    ### BROKEN
    # sums = {}
    ### END SOLUTION
    for batch in range(model.BATCHES):
        model.activations[0] = model.get_activation([batch])
        for layer in range(model.LAYERS):
            model.activations[layer + 1] = model.forward(
                layer, model.activations[layer], model.weights[layer]
            )
        model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))
        for layer in reversed(range(model.LAYERS)):
            inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
            grad, model.grad_activations[layer] = model.backward(
                layer, inp, grad_out, model.weights[layer]
            )
            sums[layer] = sums[layer] + grad if layer in sums else grad
        del model.grad_activations[0]

    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, sums.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


# %%
draw(run(repair_local, ranks=1, layers=2, batches=4))

# %%
grade(repair_local)

# %% [markdown] tags=["solution"]
# `sums` was a plain dictionary, so the gradients in it were stored on no device. `model.grad_weights` is a dictionary
# of the device. On a real GPU this mistake has the opposite effect: a list of tensors that somebody forgot keeps them
# all alive, and memory grows until there is none left.

# %% [markdown]
# ## R2. Two turns each
#
# *Take it after puzzle 2.* Gradient accumulation *and* data parallel: every rank trains on two micro-batches, one
# after the other, and the update needs the gradients of all ranks. The first turn goes well, and everyone relaxes.
# Follow one gradient through the second.
#
# Target, for 4 ranks, 2 layers, 8 micro-batches: **{{R2.time}}** ticks, peak memory **{{R2.memory}}** elements.
#
# The grader also checks this:
#
# - {{R2.ideas}}

# %% tags=["spec"]
PUZZLE = {
    "number": "R2",
    "name": "repair_twice",
    "title": "Two turns each",
    "size": {"ranks": 4, "layers": 2, "batches": 8},
    "other_sizes": "two_each",
    "target": {"time": 9.6, "memory": 2097152},
    "frontier": [
        {"time": 9.0, "memory": 2097152, "by": "sums_in_the_last_backward"},
        {"time": 9.3, "memory": 1966080, "by": "sums_under_updates"},
    ],
    "layout": "whole",
    "ideas": ["one_micro_batch", "as_many_each", "weights_stay"],
    "difficulty": "medium",
    "minutes": 10,
    "hints": [
        "The first micro-batch of each rank goes well. What does `model.grad_weights[layer]` hold after it: your "
        "own gradient, or that of all ranks? And what happens to it the second time around?",
        "A sum over the ranks adds up whatever the ranks bring. What has been summed once must not be brought again.",
        "Add up your own gradients first: `model.grad_weights[layer] = grad`, the second time "
        "`model.grad_weights[layer] + grad`. One `allreduce` for each layer, in the loop of the updates.",
    ],
}


# %%
async def repair_twice(model: Model) -> Model:
    """Two micro-batches for each rank, one after the other."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    for batch in (model.rank, model.rank + model.RANKS):
        model.activations[0] = model.get_activation([batch])
        for layer in range(model.LAYERS):
            model.activations[layer + 1] = model.forward(
                layer, model.activations[layer], model.weights[layer]
            )
        model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))
        for layer in reversed(range(model.LAYERS)):
            inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
            grad, model.grad_activations[layer] = model.backward(
                layer, inp, grad_out, model.weights[layer]
            )
            if layer in model.grad_weights:
                grad = model.grad_weights[layer] + grad
            ### BEGIN SOLUTION
            model.grad_weights[layer] = grad
            ### BROKEN
            # model.grad_weights[layer] = await model.allreduce(grad, layer)
            ### END SOLUTION
        del model.grad_activations[0]

    for layer in range(model.LAYERS):
        ### BEGIN SOLUTION
        grad = await model.allreduce(model.grad_weights.pop(layer), layer)
        ### BROKEN
        # grad = model.grad_weights.pop(layer)
        ### END SOLUTION
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


# %%
draw(run(repair_twice, ranks=4, layers=2, batches=8))

# %%
grade(repair_twice)

# %% [markdown] tags=["solution"]
# After the first micro-batch every rank held the sum of all ranks, and the second reduction added that sum once for
# each rank. With real numbers there is no error: the gradient is merely wrong, and training gets worse without a
# word. The program was also slower, since it communicated after each micro-batch. In PyTorch, `no_sync` prevents
# this: it keeps `DistributedDataParallel` from reducing before the last micro-batch.

# %% [markdown]
# ## R3. Nothing to see here
#
# *Take it after puzzle 2.* Every rank trains on its two micro-batches, then the gradients are summed: data parallel,
# as in R2, and done right. It trains the model within the target, and has done so for months on these four ranks.
# Then, one night, somebody ran it on another machine, with another batch. Draw it: you will find nothing. Then ask
# the grader, who tries other sizes.
#
# Target, for 4 ranks, 2 layers, 8 micro-batches: **{{R3.time}}** ticks, peak memory **{{R3.memory}}** elements.
#
# The grader also checks this:
#
# - {{R3.ideas}}

# %% tags=["spec"]
PUZZLE = {
    "number": "R3",
    "name": "repair_quiet",
    "title": "Nothing to see here",
    "size": {"ranks": 4, "layers": 2, "batches": 8},
    "other_sizes": "one_or_three_each",
    "target": {"time": 9.6, "memory": 2097152},
    "frontier": [
        {"time": 9.0, "memory": 2097152, "by": "sums_in_the_last_backward"},
        {"time": 9.3, "memory": 1966080, "by": "sums_under_updates"},
    ],
    "layout": "whole",
    "ideas": ["as_many_each", "weights_stay"],
    "difficulty": "easy",
    "minutes": 10,
    "hints": [
        "The verdict says at which size it fails, and how. Which micro-batches are there, and which of them does "
        "each rank take? Write them down for that size.",
        "Some number in this program is true of one machine with one batch, and is written down as if it were true "
        "of all. Work it out from `model.RANKS` and `model.BATCHES`.",
        "With `share = model.BATCHES // model.RANKS`, rank r takes the micro-batches from `r * share` up to, but "
        "not including, `(r + 1) * share`.",
    ],
}


# %%
async def repair_quiet(model: Model) -> Model:
    """An equal share of the micro-batches for each rank, one after the other."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    ### BEGIN SOLUTION
    share = model.BATCHES // model.RANKS
    mine = range(model.rank * share, (model.rank + 1) * share)
    ### BROKEN
    # mine = (2 * model.rank, 2 * model.rank + 1)
    ### END SOLUTION
    for batch in mine:
        model.activations[0] = model.get_activation([batch])
        for layer in range(model.LAYERS):
            model.activations[layer + 1] = model.forward(
                layer, model.activations[layer], model.weights[layer]
            )
        model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))
        for layer in reversed(range(model.LAYERS)):
            inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
            grad, model.grad_activations[layer] = model.backward(
                layer, inp, grad_out, model.weights[layer]
            )
            so_far = model.grad_weights.get(layer)
            model.grad_weights[layer] = so_far + grad if so_far else grad
        del model.grad_activations[0]

    for layer in range(model.LAYERS):
        grad = await model.allreduce(model.grad_weights.pop(layer), layer)
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


# %%
draw(run(repair_quiet, ranks=4, layers=2, batches=8))

# %%
grade(repair_quiet)

# %% [markdown] tags=["solution"]
# The 2 was true of four ranks and eight micro-batches. With any other numbers it leaves some micro-batches out, or
# asks for some that are not there. In a real script this number is called `gradient_accumulation_steps`, and nothing
# complains there: with half the GPUs the batch is half as large, with the learning rate that was tuned for the whole
# one. `torchrun` may restart you on another number of machines (`--nnodes=2:4`), and its documentation warns that
# `WORLD_SIZE` and a rank need not stay what they were. So DeepSpeed insists that `train_batch_size` is
# `train_micro_batch_size_per_gpu` times `gradient_accumulation_steps` times the number of GPUs: give it any two, and
# it works out the third. Test what you write at a size where no two numbers are the same.

# %% [markdown]
# ## R4. A bargain
#
# *Take it after puzzle 4.* Fully sharded data parallel. A colleague has changed two lines of puzzle 4's answer, and
# now it takes {{bargain.time}} ticks instead of {{plain.time}}, with the same result. You can see below that this is
# true. He would like to be congratulated. Nothing is free, detective: what does it cost, and when is it paid?
#
# Target, for 4 ranks, 6 layers, 4 micro-batches: **{{R4.time}}** ticks, peak memory **{{R4.memory}}** elements, as in
# puzzle 4.
#
# The grader also checks this:
#
# - {{R4.ideas}}

# %% tags=["spec"]
PUZZLE = {
    "number": "R4",
    "name": "repair_bargain",
    "title": "A bargain",
    "size": {"ranks": 4, "layers": 6, "batches": 4},
    "other_sizes": "data_parallel",
    "target": {"time": 20.4, "memory": 2359296},
    "frontier": [
        {"time": 15.3, "memory": 2228224, "by": "fsdp_in_15_3"},
        {"time": 15.6, "memory": 2097152, "by": "fsdp_in_15_6"},
        {"time": 15.9, "memory": 1966080, "by": "fsdp_in_15_9"},
    ],
    "layout": "sharded",
    "ideas": ["as_many_each", "no_whole_gradient"],
    "difficulty": "easy",
    "minutes": 10,
    "hints": [
        "The verdict says where memory is highest, and what it is made of. Look at the picture of memory: what grows on "
        "the way up, layer by layer, that did not grow in puzzle 4?",
        "How long does a whole weight stay in memory here? When is it used for the first time, and when again?",
        "Keep the gathered weight in a variable, so that it takes up no memory after `forward`, and gather it "
        "again before `backward`: `weight = await model.allgather(model.weights[layer], layer)`, twice.",
    ],
}


# %%
async def repair_bargain(model: Model) -> Model:
    """Data parallel, with weights, optimizer states and gradients in shards."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(
            layer, model.rank, model.RANKS
        )

    model.activations[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        ### BEGIN SOLUTION
        weight = await model.allgather(model.weights[layer], layer)
        ### BROKEN
        # weight = await model.allgather(model.weights[layer], layer)
        # model.weights["whole", layer] = weight
        ### END SOLUTION
        model.activations[layer + 1] = model.forward(layer, model.activations[layer], weight)
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        ### BEGIN SOLUTION
        weight = await model.allgather(model.weights[layer], layer)
        ### BROKEN
        # weight = model.weights.pop(("whole", layer))
        ### END SOLUTION
        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        grad, model.grad_activations[layer] = model.backward(layer, inp, grad_out, weight)
        model.grad_weights[layer] = await model.scatterreduce(grad, layer)
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


# %%
draw(run(repair_bargain, ranks=4, layers=6, batches=4))

# %%
grade(repair_bargain)

# %% [markdown] tags=["solution"]
# Every whole weight stayed from forward to backward. So at the end of forward each rank held the whole model, which
# sharding is there to avoid. Counted in activations, the peak was {{worth(bargain)}} instead of {{worth(plain)}}, and
# with twelve layers {{worth(bargain_of_12)}} instead of {{worth(plain_of_12)}}. The price of the bargain grows with
# the model, and the gain is one all-gather a layer.
#
# In PyTorch this is a parameter, `fully_shard(..., reshard_after_forward=False)`, and its default is a trap. By
# default it is `True` for all modules except the root. It is `False` for the root, whose weights are needed again at
# once when backward begins. Parameters belong to the innermost module that was given to `fully_shard`. So if you call
# it on the whole model and forget the layers, the root owns everything: all of it is gathered at once, and stays. For
# the last layer alone it is a real bargain: keeping the last weight saves {{cost.collective}} ticks here and takes
# not an element more.

# %% [markdown]
# ## R5. Two witnesses
#
# *Take it after puzzle 5.* A pipeline of two stages, with all micro-batches at once. Each rank has half of the
# layers. Rank 0 passes an activation on and gets its gradient back. Hear both ranks, one after the other: each says
# that it is the other's turn.
#
# Target, for 2 ranks, 4 layers, 4 micro-batches: **{{R5.time}}** ticks, peak memory **{{R5.memory}}** elements.
#
# The grader also checks this:
#
# - {{R5.ideas}}

# %% tags=["spec"]
PUZZLE = {
    "number": "R5",
    "name": "repair_deadlock",
    "title": "Two witnesses",
    "size": {"ranks": 2, "layers": 4, "batches": 4},
    "other_sizes": "two_stages",
    "target": {"time": 34.8, "memory": 2621440},
    "frontier": [
        {"time": 33.8, "memory": 2621440, "by": "pipeline"},
    ],
    "layout": "stages",
    "ideas": ["own_layers", "whole_batch"],
    "difficulty": "easy",
    "minutes": 5,
    "hints": [
        "The error says what each of the two ranks waits for, and in which line. Could either of them go on?",
        "Rank 1 can do nothing before it has the activation. What does rank 0 do before it sends that?",
        "Rank 0 must send before it receives: exchange the two lines.",
    ],
}


# %%
async def repair_deadlock(model: Model) -> Model:
    """The first half of the layers on rank 0, the second on rank 1."""
    half = model.LAYERS // 2
    mine = range(half) if model.rank == 0 else range(half, model.LAYERS)
    for layer in mine:
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    if model.rank == 0:
        model.activations[0] = model.get_activation(range(model.BATCHES))
    else:
        model.activations[half] = await model.receive()
    for layer in mine:
        model.activations[layer + 1] = model.forward(
            layer, model.activations[layer], model.weights[layer]
        )

    if model.rank == 0:
        ### BEGIN SOLUTION
        await model.pass_to(1, model.activations.pop(half))
        model.grad_activations[half] = await model.receive()
        ### BROKEN
        # model.grad_activations[half] = await model.receive()
        # await model.pass_to(1, model.activations.pop(half))
        ### END SOLUTION
    else:
        model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))
    for layer in reversed(mine):
        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        grad, model.grad_activations[layer] = model.backward(
            layer, inp, grad_out, model.weights[layer]
        )
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    if model.rank == 1:
        await model.pass_to(0, model.grad_activations.pop(half))
    return model


# %%
draw(run(repair_deadlock, ranks=2, layers=4, batches=4))

# %%
grade(repair_deadlock)

# %% [markdown] tags=["solution"]
# Both ranks waited for a message that the other had not sent. On real machines this hangs. Or worse, it hangs for
# large messages only, because small ones are buffered, and their send returns before anyone has received. So
# libraries for pipelines issue their sends and receives in one batch, such as `batch_isend_irecv` in PyTorch.

# %% [markdown]
# ## R6. Three for four
#
# *Take it after puzzle 7.* Data parallel, as in puzzle 2, but there are fewer micro-batches than ranks: the last
# batch of an epoch often comes up short. The rank without a micro-batch still has to end with all weights updated.
# Three ranks were at work that night, and the fourth was in the house. Who was not at the meeting? (In puzzle 7 you
# saw what a rank brings to a sum when it has no gradient.)
#
# Target, for 4 ranks, 2 layers, 3 micro-batches: **{{R6.time}}** ticks, peak memory **{{R6.memory}}** elements.
#
# The grader also checks this:
#
# - {{R6.ideas}}

# %% tags=["spec"]
PUZZLE = {
    "number": "R6",
    "name": "repair_skip",
    "title": "Three for four",
    "size": {"ranks": 4, "layers": 2, "batches": 3},
    "other_sizes": "uneven",
    "target": {"time": 5.6, "memory": 1572864},
    "frontier": [
        {"time": 5.6, "memory": 1572864, "by": "repair_skip"},
    ],
    "layout": "whole",
    "ideas": ["weights_stay"],
    "difficulty": "medium",
    "minutes": 10,
    "hints": [
        "The list in the error says what each rank waits for, and which have finished. Who is missing where?",
        "A collective needs all ranks, also those that have nothing to bring. So the rank without a micro-batch has "
        "to take part in every `allreduce`, and it needs the results for its own `update`.",
        "What the rank without a micro-batch brings must not change the sum: `grad = model.fake_grad(layer, [])` is "
        "the gradient of no micro-batches. `allreduce`, `update` and `set_final_weight` are for all ranks.",
    ],
}


# %%
async def repair_skip(model: Model) -> Model:
    """One micro-batch for each rank, as far as there are any."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    busy = model.rank < model.BATCHES
    if busy:
        model.activations[0] = model.get_activation([model.rank])
        for layer in range(model.LAYERS):
            model.activations[layer + 1] = model.forward(
                layer, model.activations[layer], model.weights[layer]
            )
        model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        ### BEGIN SOLUTION
        grad = model.fake_grad(layer, [])
        if busy:
            inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
            grad, model.grad_activations[layer] = model.backward(
                layer, inp, grad_out, model.weights[layer]
            )
        ### BROKEN
        # if not busy:
        #     continue
        # inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        # grad, model.grad_activations[layer] = model.backward(
        #     layer, inp, grad_out, model.weights[layer]
        # )
        ### END SOLUTION
        grad = await model.allreduce(grad, layer)
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


# %%
draw(run(repair_skip, ranks=4, layers=2, batches=3))

# %%
grade(repair_skip)

# %% [markdown] tags=["solution"]
# The rank without a micro-batch left the loop early, and the others met for a sum that could never be complete. Now
# it brings a zero. PyTorch has the same problem and the same fix: without its `join` context manager,
# `DistributedDataParallel` hangs when one rank runs out of data before the others. PyTorch does not tell you who is
# missing; after ten minutes, with NCCL, there is a timeout.

# %% [markdown]
# ## R7. Two nodes of four
#
# *Take it after puzzle 8.* Hybrid sharding, in its simple form: two nodes of four ranks. Every node has a replica of
# everything, in four pieces, weight *and* state: rank `r` has piece `model.axis_index("shard")`. Each rank trains on
# a micro-batch of its own. Whole weights are gathered inside a node. For gradients, the plan is this: reduce-scatter
# them inside the node, then sum the resulting quarters over the replicas, across the slow links. Every rank came to
# both meetings, and none was late. And still they came home with the wrong pieces.
#
# Target, for 8 ranks, mesh replica 2 x shard 4, 2 layers: **{{R7.time}}** ticks, peak memory **{{R7.memory}}**
# elements.
#
# The grader also checks this:
#
# - {{R7.ideas}}

# %% tags=["spec"]
PUZZLE = {
    "number": "R7",
    "name": "repair_groups",
    "title": "Two nodes of four",
    "size": {
        "ranks": 8,
        "layers": 2,
        "batches": 8,
        "mesh": {"replica": 2, "shard": 4},
        "node_size": 4,
    },
    "other_sizes": "replica_fsdp",
    "target": {"time": 9.8, "memory": 917504},
    "frontier": [
        {"time": 7.7, "memory": 917504, "by": "hybrid_in_7_7"},
    ],
    "layout": "hybrid_sharded",
    "ideas": ["as_many_each", "no_whole_gradient"],
    "difficulty": "medium",
    "minutes": 10,
    "hints": [
        "Which piece of the weight does a rank have, and which piece of the gradient has it got? Follow one rank "
        "through the two reductions, and write down after each: which piece, of which micro-batches?",
        "`axis` names the ranks that meet: those that differ from you in that coordinate only. Along which axis are "
        "the pieces different? Along which are they the same?",
        "Reduce-scatter over `shard`, where each rank keeps a different piece. Then all-reduce over `replica`, where "
        "all ranks have the same piece.",
    ],
}


# %%
async def repair_groups(model: Model) -> Model:
    """Sharded inside a node, replicated across nodes."""
    shard, shards = model.axis_index("shard"), model.axis_size("shard")
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, shard, shards)

    model.activations[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        weight = await model.allgather(model.weights[layer], layer, axis="shard")
        model.activations[layer + 1] = model.forward(layer, model.activations[layer], weight)
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        weight = await model.allgather(model.weights[layer], layer, axis="shard")
        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        grad, model.grad_activations[layer] = model.backward(layer, inp, grad_out, weight)
        ### BEGIN SOLUTION
        grad = await model.scatterreduce(grad, layer, axis="shard")
        grad = await model.allreduce(grad, layer, axis="replica")
        ### BROKEN
        # grad = await model.scatterreduce(grad, layer, axis="replica")
        # grad = await model.allreduce(grad, layer, axis="shard")
        ### END SOLUTION
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


# %%
draw(
    run(
        repair_groups,
        ranks=8,
        layers=2,
        batches=8,
        mesh={"replica": 2, "shard": 4},
        node_size=4,
    )
)

# %%
grade(repair_groups)

# %% [markdown] tags=["solution"]
# The groups were swapped: a reduce-scatter over two replicas leaves halves, which fit no quarter. If both axes had
# the same size, the pieces would even have had the right shape, and on some ranks only the values would be wrong.
# That is why meshes have names for their axes, in PyTorch's `DeviceMesh` too. In PyTorch, this way of sharding is
# called `HYBRID_SHARD`. Puzzle 8 goes further and shards the states over both axes.

# %% [markdown]
# ## R8. By the book
#
# *Take it after puzzle 8, and best after R7.* The same two nodes, farther apart: a collective between them takes
# {{far.collective_across}} ticks. Hybrid sharding as in R7, and now every rank trains four micro-batches, one after
# the other. Each gradient is reduce-scattered inside the node, summed across the nodes, and added up. Nobody makes a
# mistake, no gradient is lost, none is counted twice; a well-known library does exactly this unless it is told
# otherwise. It also takes {{Fraction(round(4 * book.time / mended.time - 4), 4):word}} more time than it has to.
# Where does the time go?
#
# Target, for 8 ranks, mesh replica 2 x shard 4, 4 layers, 32 micro-batches: **{{R8.time}}** ticks, peak memory
# **{{R8.memory}}** elements.
#
# The grader also checks this:
#
# - {{R8.ideas}}

# %% tags=["spec"]
PUZZLE = {
    "number": "R8",
    "name": "repair_book",
    "title": "By the book",
    "size": {
        "ranks": 8,
        "layers": 4,
        "batches": 32,
        "mesh": {"replica": 2, "shard": 4},
        "node_size": 4,
    },
    "other_sizes": "replica_fsdp",
    "target": {"time": 64.4, "memory": 1703936},
    "frontier": [
        {"time": 53.3, "memory": 1703936, "by": "hybrid_in_53_3"},
    ],
    "cost": "far_nodes",
    "layout": "hybrid_sharded",
    "ideas": ["as_many_each", "no_whole_gradient"],
    "difficulty": "medium",
    "minutes": 10,
    "hints": [
        "Rest the pointer on the longest boxes that are not computing. Which ranks take part, how long does one of "
        "them take, and how many of them are there in a step?",
        "Each gradient is summed twice, inside the node and across the nodes, and the order of sums does not matter. "
        "Which of the two sums has to be done before the next micro-batch begins, and which only before the update?",
        "A sum across the nodes takes most of the time. Take the `allreduce` over `replica` out of the loop. "
        "Each rank adds up its own reduce-scattered gradients, and sums the total across the nodes once, right "
        "before `update`.",
    ],
}


# %%
async def repair_book(model: Model) -> Model:
    """Sharded inside a node, replicated across nodes, with several micro-batches for each rank."""
    shard, shards = model.axis_index("shard"), model.axis_size("shard")
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, shard, shards)

    share = model.BATCHES // model.RANKS
    for batch in range(model.rank * share, (model.rank + 1) * share):
        model.activations[0] = model.get_activation([batch])
        for layer in range(model.LAYERS):
            weight = await model.allgather(model.weights[layer], layer, axis="shard")
            model.activations[layer + 1] = model.forward(
                layer, model.activations[layer], weight
            )
        model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

        for layer in reversed(range(model.LAYERS)):
            weight = await model.allgather(model.weights[layer], layer, axis="shard")
            inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
            grad, model.grad_activations[layer] = model.backward(layer, inp, grad_out, weight)
            ### BEGIN SOLUTION
            grad = await model.scatterreduce(grad, layer, axis="shard")
            ### BROKEN
            # grad = await model.scatterreduce(grad, layer, axis="shard")
            # grad = await model.allreduce(grad, layer, axis="replica")
            ### END SOLUTION
            so_far = model.grad_weights.get(layer)
            model.grad_weights[layer] = so_far + grad if so_far else grad
        del model.grad_activations[0]

    for layer in range(model.LAYERS):
        ### BEGIN SOLUTION
        grad = await model.allreduce(model.grad_weights.pop(layer), layer, axis="replica")
        ### BROKEN
        # grad = model.grad_weights.pop(layer)
        ### END SOLUTION
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


# %%
nodes = {"mesh": {"replica": 2, "shard": 4}, "node_size": 4}
far = Cost(collective_across=4)
draw(run(repair_book, ranks=8, layers=4, batches=32, cost=far, **nodes))

# %%
beside_target(run(repair_book, ranks=8, layers=4, batches=32, cost=far, **nodes))

# %%
grade(repair_book)

# %% [markdown] tags=["solution"]
# An all-reduce across the nodes takes {{far.collective_across}} ticks, and there was one for each layer *and* each
# micro-batch: {{sums}} of them, {{sums * far.collective_across}} ticks of {{book.time}} in which everyone stands
# still. Each layer needs this sum only once, before its update: {{deep}} sums, {{deep * far.collective_across}}
# ticks. Hiding the sums under the work does not help here, because the network alone needs longer for all of them
# than the repaired program takes. The more micro-batches, the worse: with sixteen on each rank the program by the
# book takes {{book_of_16.time}} ticks, and the repaired one {{mended_of_16.time}}. Memory is the same.
#
# The well-known library is PyTorch. Give `fully_shard` a mesh with two axes, and each backward ends with a
# reduce-scatter in the node and an all-reduce across. `set_requires_all_reduce(False)` leaves out the second; use it
# for all micro-batches but the last. (`set_requires_gradient_sync(False)` leaves out both, and keeps whole gradients:
# as fast, but it takes more memory.) You have to know that, for nothing is wrong with the result. The end of puzzle 8
# says what the extra sums cost on real machines.

# %% [markdown]
# ## R9. One of them is warm
#
# *Take it after puzzle 13.* Data parallel with gradient accumulation: each rank trains its micro-batches one after
# the other, and the gradients are summed once. A fan has failed. Rank 0 is too warm, and takes {{warm_part:.0%}}
# longer for all that it computes. The gradients are right, and most of the ranks wait at the end. You cannot repair
# the fan. What can you do?
#
# Target, for 4 ranks, 2 layers, 43 micro-batches: **{{R9.time}}** ticks, peak memory **{{R9.memory}}** elements.
#
# The grader also checks this:
#
# - {{R9.ideas}}

# %% tags=["spec"]
PUZZLE = {
    "number": "R9",
    "name": "repair_straggler",
    "title": "One of them is warm",
    "size": {"ranks": 4, "layers": 2, "batches": 43},
    "other_sizes": "one_short",
    "target": {"time": 45.7, "memory": 1966080},
    "frontier": [
        {"time": 45.4, "memory": 1966080, "by": "sums_under_updates"},
    ],
    "cost": "warm_rank",
    "layout": "whole",
    "ideas": ["weights_stay"],
    "difficulty": "easy",
    "minutes": 5,
    "hints": [
        "Look at the end of the picture. Who comes to the sums last, and how many micro-batches has that rank had?",
        "The gradient is a sum over micro-batches. It is the same whichever rank trains a micro-batch, and however "
        "many each rank has.",
        "The numbers from `model.rank` up in steps of `model.RANKS` give the first ranks one micro-batch more, and all "
        "others wait for the slow rank. Begin at the other end: `range(model.RANKS - 1 - model.rank, "
        "model.BATCHES, model.RANKS)`.",
    ],
}


# %%
async def repair_straggler(model: Model) -> Model:
    """Data parallel with gradient accumulation, on four ranks of which one is warm."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    ### BEGIN SOLUTION
    mine = range(model.RANKS - 1 - model.rank, model.BATCHES, model.RANKS)
    ### BROKEN
    # mine = range(model.rank, model.BATCHES, model.RANKS)
    ### END SOLUTION
    for batch in mine:
        model.activations[0] = model.get_activation([batch])
        for layer in range(model.LAYERS):
            model.activations[layer + 1] = model.forward(
                layer, model.activations[layer], model.weights[layer]
            )
        model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))
        for layer in reversed(range(model.LAYERS)):
            inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
            grad, model.grad_activations[layer] = model.backward(
                layer, inp, grad_out, model.weights[layer]
            )
            so_far = model.grad_weights.get(layer)
            model.grad_weights[layer] = so_far + grad if so_far else grad
        del model.grad_activations[0]

    for layer in reversed(range(model.LAYERS)):
        grad = await model.allreduce(model.grad_weights.pop(layer), layer)
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


# %%
warm = Cost(uneven=Uneven(slow={0: 1.1}))
draw(run(repair_straggler, ranks=4, layers=2, batches=43, cost=warm))

# %%
beside_target(run(repair_straggler, ranks=4, layers=2, batches=43, cost=warm))

# %%
grade(repair_straggler)

# %% [markdown] tags=["solution"]
# The last rank had a micro-batch less than the others, and everyone waited for the first. Now the warm rank does
# {{few}} micro-batches while the others do {{few + 1}}, and nobody waits. This takes {{mended_dp.time}} ticks, and on
# four cool ranks {{cool_dp.time}}. A sum over micro-batches is the same whoever adds which, so the model is the same.
# With few micro-batches there is nothing to shift. If each rank has one, the step takes as long as on the slowest
# rank, and loses {{one_each - 1:.1%}}.
#
# And a pipeline? 1F1B with four stages and {{many}} micro-batches loses {{piped[0] - 1:.1%}} if the warm rank has the
# first stage, and {{piped[3] - 1:.1%}} if it has the last. It loses less than data parallel, because the warm rank
# works in the bubble, where it waited before. The more micro-batches, the smaller the bubble and the larger the loss:
# with {{more}} of them it is {{piped_more[0] - 1:.1%}} and {{piped_more[3] - 1:.1%}}. In a pipeline you can't shift
# micro-batches, only layers: a stage of ten layers gives one away.
#
# Among thousands of GPUs there is always one that is warm. So first find it: time all of them on the same work, and
# replace the slow ones. Among more than ten thousand GPUs, the authors of MegaScale found hosts that took about
# {{warm_part:.0%}} longer for the same forward passes. Without these hosts the whole run reached {{mfu_gained:.1%}}
# more of the GPUs' peak speed (arXiv 2402.15627, section 6). NVIDIA's resiliency extension times GPUs like this while
# a model trains.

# %% [markdown]
# ## R10. All together now
#
# *Take it after puzzle 27.* Dense layers and layers with experts take turns, with a micro-batch on each rank. Tokens
# go to their experts and home again, forward and backward, and not one is lost on the way. Weights and states stay
# where they are. Every backward is right, and still nobody gets to the end.
#
# Target, for 4 ranks, 4 layers, 4 micro-batches: **{{R10.time}}** ticks, peak memory **{{R10.memory}}** elements.
#
# The grader also checks this:
#
# - {{R10.ideas}}

# %% tags=["spec"]
PUZZLE = {
    "number": "R10",
    "name": "repair_experts",
    "title": "All together now",
    "size": {"ranks": 4, "layers": 4, "batches": 4, "experts": 8},
    "other_sizes": "experts",
    "target": {"time": 19.22, "memory": 4980736},
    "frontier": [
        {"time": 17.8475, "memory": 4718592, "by": "tokens_before_sums"},
    ],
    "cost": "experts",
    "layout": "experts_sharded",
    "ideas": ["as_many_each", "weights_stay"],
    "words": ["alltoall", "expert"],
    "difficulty": "medium",
    "minutes": 10,
    "hints": [
        "The error names the layer. What does a rank have of this layer that no other rank has? And which micro-batches are in the gradient that "
        "it brings?",
        "A sum over ranks adds up what different micro-batches say about the same weight. Each rank has experts of its own, and the tokens of all micro-batches "
        "have come to them.",
        "Sum the gradients of dense layers only: `if not model.experts(layer)`. In the other layers, each rank updates "
        "its own experts with the gradient from `backward_expert`.",
    ],
}


# %%
async def repair_experts(model: Model) -> Model:
    """Layers with experts and layers without, by turns."""
    for layer in range(model.LAYERS):
        piece = (model.rank, model.RANKS) if model.experts(layer) else (0, 1)
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, *piece)

    acts, grads = model.activations, model.grad_activations
    acts[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        if model.experts(layer):
            acts["tokens", layer] = await model.alltoall(acts.pop(layer), layer)
            out = model.expert(layer, acts["tokens", layer], model.weights[layer])
            acts[layer + 1] = await model.alltoall(out, layer + 1)
        else:
            acts[layer + 1] = model.forward(layer, acts[layer], model.weights[layer])
    grads["last"] = model.loss(acts.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        weight = model.weights[layer]
        if model.experts(layer):
            grad = await model.alltoall(grads.pop("last"), layer)
            tokens = acts.pop(("tokens", layer))
            model.grad_weights[layer], grad = model.backward_expert(layer, tokens, grad, weight)
            grads["last"] = await model.alltoall(grad, layer - 1)
        else:
            model.grad_weights[layer], grads["last"] = model.backward(
                layer, acts.pop(layer), grads.pop("last"), weight
            )
    del grads["last"]

    for layer in reversed(range(model.LAYERS)):
        ### BEGIN SOLUTION
        grad = model.grad_weights.pop(layer)
        if not model.experts(layer):
            grad = await model.allreduce(grad, layer)
        ### BROKEN
        # grad = await model.allreduce(model.grad_weights.pop(layer), layer)
        ### END SOLUTION
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


# %%
uneven = ExpertRingCost(
    backward=2, loads=(4, 2, 2, 2, 2, 2, 1, 1), chosen=2, latency=0.02, bandwidth=1_310_720
)
draw(run(repair_experts, ranks=4, layers=4, batches=4, experts=8, cost=uneven))

# %%
grade(repair_experts)

# %% [markdown] tags=["solution"]
# Each rank has other experts, so their gradients are gradients of different weights, and their sum is the gradient of
# nothing. Here the labels show that. On a real GPU they are matrices of the same shape, so they add up without a
# word, and the model learns a little worse. That is why Megatron-LM has separate groups of ranks for the gradients of
# experts, and its `DistributedDataParallel` asks each parameter whether it belongs to an expert. If there are several
# copies of the same experts, their gradients are summed over these copies.

# %% [markdown]
# ## R11. Enough to see
#
# *Take it after puzzle 25.* One sequence. Each of four ranks has two slices, one from the front and one from the
# back, so all have the same work. Weights and states stay where they are, as in puzzle 25. The author has followed
# the first slice of rank 0 through the whole layer, line by line, and everything was right there. He went home early
# that day.
#
# Target, for 4 ranks, 2 layers, 1 micro-batch: **{{R11.time}}** ticks, peak memory **{{R11.memory}}** elements.
#
# The grader also checks this:
#
# - {{R11.ideas}}

# %% tags=["spec"]
PUZZLE = {
    "number": "R11",
    "name": "repair_zigzag",
    "title": "Enough to see",
    "size": {"ranks": 4, "layers": 2, "batches": 1},
    "other_sizes": "one_for_all",
    "target": {"time": 10.3, "memory": 2555904},
    "frontier": [
        {"time": 7.915, "memory": 2490368, "by": "ring_attention_in_28_32"},
        {"time": 8.915, "memory": 2228224, "by": "ring_attention_in_31_1"},
    ],
    "cost": "long_context",
    "layout": "whole",
    "ideas": ["weights_stay"],
    "words": ["project", "sliced=True"],
    "difficulty": "medium",
    "minutes": 10,
    "hints": [
        "The error says which slices are missing. Write down for each rank which two slices it has, and which ones these see.",
        "The slice from the back sees nearly everything, and so it needs keys and values of all ranks. The backward has a gather already: what does it gather, and when?",
        "`whole = await model.allgather(kv, layer)`, with the keys and values of this rank's own slices, and then `model.attend(layer, att, whole)`.",
    ],
}


# %%
async def repair_zigzag(model: Model) -> Model:
    """Each rank trains two slices of one sequence, one from the front and one from the back."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    acts, grads, n, r = model.activations, model.grad_activations, model.RANKS, model.rank
    inp = model.get_activation([0])
    acts[0] = inp.shard(r, 2 * n).combine(inp.shard(2 * n - 1 - r, 2 * n))
    for layer in range(model.LAYERS):
        inp, weight = acts[layer], model.weights[layer]
        acts["att", layer], acts["kv", layer] = model.project(layer, inp, weight)
        ### BEGIN SOLUTION
        kv = await model.allgather(acts["kv", layer], layer)
        ### BROKEN
        # kv = acts["kv", layer]
        ### END SOLUTION
        acts["att", layer] = model.attend(layer, acts["att", layer], kv)
        acts[layer + 1] = model.rest(layer, inp, weight, acts["att", layer])
    grads["out"] = model.loss(acts.pop(model.LAYERS), sliced=True)

    for layer in reversed(range(model.LAYERS)):
        inp, weight = acts.pop(layer), model.weights[layer]
        acts["inp"] = inp
        grads["att"] = model.backward_rest(
            layer, inp, grads["out"], weight, acts.pop(("att", layer))
        )
        kv = await model.allgather(acts.pop(("kv", layer)), layer)
        grads["att"], kv_grad = model.backward_attend(layer, grads["att"], kv)
        grads["kv"] = await model.scatterreduce(kv_grad, layer)
        model.grad_weights[layer], grads["out"] = model.backward_project(
            layer, acts.pop("inp"), grads.pop("out"), weight, grads.pop("att"), grads.pop("kv")
        )
    del grads["out"]

    for layer in reversed(range(model.LAYERS)):
        grad = await model.allreduce(model.grad_weights.pop(layer), layer)
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


# %%
long_context = RingCost(
    forward=4,
    project=0.5,
    attend=2,
    rest=1.5,
    backward=8,
    backward_rest=1.5,
    backward_attend=4,
    backward_project=2.5,
    activation_elements=524_288,
    keys_values_elements=262_144,
    attended_elements=1_048_576,
    latency=0.01,
    bandwidth=655_360,
)
draw(run(repair_zigzag, ranks=4, layers=2, batches=1, cost=long_context))

# %%
grade(repair_zigzag)

# %% [markdown] tags=["solution"]
# A gather was missing in the forward pass. The first slice of the sequence does not need it, since there is nothing
# before it. The slice from the back needs the keys and values of nearly all others. Until its queries have attended
# to all of these, its attention is not finished, and the machine says so. On a real GPU attention to a rank's own
# keys alone runs without an error, and gives a model that has read the sequence in snippets. The loss still falls. So
# if you write context parallel, compare it, on a short sequence, with attention on one GPU.

# %% [markdown]
# ## R12. Rows of their own
#
# *Take it after puzzle 18.* One sequence, on four ranks. Odd layers are large, and cut over the ranks, as in puzzle 18.
# Even layers look at each token alone, as norms do. So each rank has all of their weight, and runs them on its own slice
# of the sequence. That is what `sliced=True` says: a slice goes in, and the same slice comes out. In between, slices
# are gathered and scattered. The author has compared every activation and every gradient of an activation with a run
# on one GPU. They are all equal, on all ranks.
#
# Target, for 4 ranks, 4 layers, 1 micro-batch: **{{R12.time}}** ticks, peak memory **{{R12.memory}}** elements.
#
# The grader also checks this:
#
# - {{R12.ideas}}

# %% tags=["spec"]
PUZZLE = {
    "number": "R12",
    "name": "repair_rows",
    "title": "Rows of their own",
    "size": {"ranks": 4, "layers": 4, "batches": 1, "quiet": True},
    "other_sizes": "one_for_all",
    "target": {"time": 8.2, "memory": 2818048},
    "frontier": [
        {"time": 7.1, "memory": 2359296, "by": "sequence_parallel_in_14_6"},
        {"time": 7.35, "memory": 2228224, "by": "sequence_parallel_in_14_85"},
    ],
    "cost": "long_sequences",
    "layout": "anywhere",
    "ideas": ["weights_stay"],
    "words": ["sliced=True", "partial=True", "slices"],
    "difficulty": "medium",
    "minutes": 15,
    "hints": [
        "Which layers are wrong, and do their copies agree? Of which weights are there copies here?",
        "In an even layer, each rank has the gradient that its own slice of the sequence gives. What is the gradient of "
        "the whole sequence?",
        "The gradient of the whole sequence is the sum of all four. So in even layers, and only there, comes `grad = "
        "await model.allreduce(grad, layer)` before the update.",
    ],
}


# %%
async def repair_rows(model: Model) -> Model:
    """Whole layers on slices of one sequence, and layers in pieces, by turns."""
    acts, grads, n, r = model.activations, model.grad_activations, model.RANKS, model.rank
    for layer in range(model.LAYERS):
        piece = (r, n) if layer % 2 else (0, 1)
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, *piece)

    acts[0] = model.get_activation([0]).shard(r, n)
    for layer in range(model.LAYERS):
        inp, weight = acts[layer], model.weights[layer]
        if layer % 2:
            whole = await model.allgather(inp, layer)
            part = model.forward(layer, whole, weight, partial=True)
            acts[layer + 1] = await model.scatterreduce(part, layer + 1)
        else:
            acts[layer + 1] = model.forward(layer, inp, weight, sliced=True)
    grads["out"] = model.loss(acts.pop(model.LAYERS), sliced=True)

    for layer in reversed(range(model.LAYERS)):
        weight = model.weights[layer]
        if layer % 2:
            grads["whole"] = await model.allgather(grads.pop("out"), layer)
            whole = await model.allgather(acts.pop(layer), layer)
            of_weight, part = model.backward(
                layer, whole, grads.pop("whole"), weight, partial=True
            )
            model.grad_weights[layer] = of_weight
            grads["out"] = await model.scatterreduce(part, layer - 1)
        else:
            model.grad_weights[layer], grads["out"] = model.backward(
                layer, acts.pop(layer), grads.pop("out"), weight, sliced=True
            )
    del grads["out"]

    for layer in reversed(range(model.LAYERS)):
        ### BEGIN SOLUTION
        grad = model.grad_weights.pop(layer)
        if layer % 2 == 0:
            grad = await model.allreduce(grad, layer)
        ### BROKEN
        # grad = model.grad_weights.pop(layer)
        ### END SOLUTION
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


# %%
long_sequences = Cost(activation_elements=524_288, allreduce=0.6)
draw(run(repair_rows, ranks=4, layers=4, batches=1, cost=long_sequences, quiet=True))

# %%
grade(repair_rows)

# %% [markdown] tags=["solution"]
# The gradient of a cut layer is complete on its rank, since every rank has seen the whole sequence there. But where a
# rank has seen a slice only, its gradient is that of the slice. Each rank updated its copy with another one, and from
# the next step on the copies are four different layers. In real models these are the small layers between the large
# ones, such as norms: under sequence parallelism they look at each token alone, so nothing has to be gathered for
# them, and it is easy to forget that their weights need a sum (Megatron-LM issue 1446, NeMo RL issue 3716).

# %% [markdown]
# ## R13. Two ends of one matrix
#
# *Take it after puzzle 6.* GPipe, of a model whose last layer uses the weight of the first, as many language models use
# one matrix to read words and to write them. So layer {{last_layer}} has no weight of its own, and `forward` and `backward`
# of it take that of layer 0. Rank `r` is stage `r`. The first stage has that weight, and the last stage has a copy.
# Every stage adds up its gradients over the micro-batches.
#
# Target, for 4 ranks, 8 layers, 4 micro-batches: **{{R13.time}}** ticks, peak memory **{{R13.memory}}** elements.
#
# The grader also checks this:
#
# - {{R13.ideas}}

# %% tags=["spec"]
PUZZLE = {
    "number": "R13",
    "name": "repair_ends",
    "title": "Two ends of one matrix",
    "size": {"ranks": 4, "layers": 8, "batches": 4, "quiet": True, "tied": True},
    "other_sizes": "pipeline",
    "target": {"time": 35.2, "memory": 2883584},
    "frontier": [
        {"time": 35.2, "memory": 2883584, "by": "repair_ends"},
    ],
    "layout": "tied_stages",
    "ideas": ["weights_stay"],
    "difficulty": "medium",
    "minutes": 15,
    "hints": [
        "Which layer is wrong, on which ranks, and do its copies agree? Who else has a copy of a weight here?",
        "One weight is used twice, so its gradient is the sum of two. Which rank has which of them?",
        "The first stage and the last one send each other what they have of layer 0, and both add what comes: start the "
        "send, `grad + await model.receive(src=other)`, and then await the send.",
    ],
}


# %%
async def repair_ends(model: Model) -> Model:
    """A pipeline whose last layer uses the weight of the first."""
    ranks, rank, end = model.RANKS, model.rank, model.LAYERS
    share = end // ranks
    mine = range(rank * share, (rank + 1) * share)
    uses = {layer: 0 if layer == end - 1 else layer for layer in mine}  # which weight
    for layer in uses.values():
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    acts, grads, sums = model.activations, model.grad_activations, model.grad_weights
    for mb in range(model.BATCHES):
        inp = model.get_activation([mb]) if rank == 0 else await model.receive(src=rank - 1)
        acts[mine.start, mb] = inp
        for layer in mine:
            weight = model.weights[uses[layer]]
            acts[layer + 1, mb] = model.forward(layer, acts[layer, mb], weight)
        if rank < ranks - 1:
            await model.pass_to(rank + 1, acts.pop((mine.stop, mb)))

    for mb in range(model.BATCHES):
        if rank == ranks - 1:
            grads[mb] = model.loss(acts.pop((end, mb)))
        else:
            grads[mb] = await model.receive(src=rank + 1)
        for layer in reversed(mine):
            weight = model.weights[uses[layer]]
            grad, grads[mb] = model.backward(
                layer, acts.pop((layer, mb)), grads.pop(mb), weight
            )
            so_far = sums.get(uses[layer])
            sums[uses[layer]] = so_far + grad if so_far else grad
        if rank > 0:
            await model.pass_to(rank - 1, grads.pop(mb))
        else:
            del grads[mb]

    ### BEGIN SOLUTION
    if rank in (0, ranks - 1):
        other = ranks - 1 - rank
        sent = model.pass_to(other, sums[0])
        sums[0] = sums[0] + await model.receive(src=other)
        await sent
    ### BROKEN
    # del acts, grads  # of the micro-batches nothing is left
    ### END SOLUTION
    for layer in uses.values():
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, sums.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


# %%
draw(run(repair_ends, ranks=4, layers=8, batches=4, quiet=True, tied=True))

# %%
grade(repair_ends)

# %% [markdown] tags=["solution"]
# The matrix is there twice, and both copies are to stay equal. But the first stage had the gradient of the first use,
# and the last stage that of the other. Their sum belongs on both. Sent to one of them only, it leaves the other copy
# behind. Megatron-LM all-reduces this gradient over a group of its own, of the first stage and the last, and has had to
# mend it (issues 656 and 844).

# %% [markdown]
# ## R14. Experts, twice
#
# *Take it after puzzle 27.* The cluster has doubled, and the experts stay as they were. So there are two copies of
# four ranks with experts, and tokens travel along `axis="expert"`, among the four ranks of their copy. Every rank
# trains a micro-batch. The author took a program for one copy, named the axis, and saw the loss fall.
#
# Target, for 8 ranks, 4 layers, 8 micro-batches: **{{R14.time}}** ticks, peak memory **{{R14.memory}}** elements.
#
# The grader also checks this:
#
# - {{R14.ideas}}

# %% tags=["spec"]
PUZZLE = {
    "number": "R14",
    "name": "repair_copies",
    "title": "Experts, twice",
    "size": {
        "ranks": 8,
        "layers": 4,
        "batches": 8,
        "mesh": {"copy": 2, "expert": 4},
        "experts": 8,
        "quiet": True,
    },
    "other_sizes": "copies",
    "target": {"time": 20.52, "memory": 4980736},
    "frontier": [
        {"time": 20.52, "memory": 4980736, "by": "repair_copies"},
    ],
    "cost": "experts",
    "layout": "experts_sharded",
    "ideas": ["as_many_each", "weights_stay"],
    "words": ["alltoall", "expert"],
    "difficulty": "medium",
    "minutes": 15,
    "hints": [
        "Which layers are wrong, and do their copies agree? Of a layer with experts, which ranks have the same weight?",
        "Tokens of four micro-batches come to an expert of one copy, and those of the other four to its twin in the other "
        "copy. Each twin has the gradient of its own tokens. What does their weight need?",
        'The two ranks with the same experts are along `axis="copy"`. So in a layer with experts, the gradient is '
        'summed with `await model.allreduce(grad, layer, axis="copy")`.',
    ],
}


# %%
async def repair_copies(model: Model) -> Model:
    """Layers with experts and layers without, in two copies."""
    place, places = model.axis_index("expert"), model.axis_size("expert")
    for layer in range(model.LAYERS):
        piece = (place, places) if model.experts(layer) else (0, 1)
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, *piece)

    acts, grads = model.activations, model.grad_activations
    acts[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        if model.experts(layer):
            acts["tokens", layer] = await model.alltoall(acts.pop(layer), layer, axis="expert")
            out = model.expert(layer, acts["tokens", layer], model.weights[layer])
            acts[layer + 1] = await model.alltoall(out, layer + 1, axis="expert")
        else:
            acts[layer + 1] = model.forward(layer, acts[layer], model.weights[layer])
    grads["last"] = model.loss(acts.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        weight = model.weights[layer]
        if model.experts(layer):
            grad = await model.alltoall(grads.pop("last"), layer, axis="expert")
            tokens = acts.pop(("tokens", layer))
            model.grad_weights[layer], grad = model.backward_expert(layer, tokens, grad, weight)
            grads["last"] = await model.alltoall(grad, layer - 1, axis="expert")
        else:
            model.grad_weights[layer], grads["last"] = model.backward(
                layer, acts.pop(layer), grads.pop("last"), weight
            )
    del grads["last"]

    for layer in reversed(range(model.LAYERS)):
        grad = model.grad_weights.pop(layer)
        ### BEGIN SOLUTION
        axis = "copy" if model.experts(layer) else None
        grad = await model.allreduce(grad, layer, axis=axis)
        ### BROKEN
        # if not model.experts(layer):
        #     grad = await model.allreduce(grad, layer)
        ### END SOLUTION
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


# %%
uneven = ExpertRingCost(
    backward=2, loads=(4, 2, 2, 2, 2, 2, 1, 1), chosen=2, latency=0.02, bandwidth=1_310_720
)
copies = {"mesh": {"copy": 2, "expert": 4}, "experts": 8, "quiet": True}
draw(run(repair_copies, ranks=8, layers=4, batches=8, cost=uneven, **copies))

# %%
grade(repair_copies)

# %% [markdown] tags=["solution"]
# With one copy, an expert is on one rank, all its tokens come there, and nothing is left to sum. With two copies it is
# on two ranks, and each of them sees the tokens of its own copy only. So the twins were updated with different
# gradients. After the first step they are two different experts, and from then on a token's result depends on the copy
# that it is in. All dense layers were right, since they are summed over everybody. In Megatron-LM these sums have a
# group of their own, "expert data parallel", and PR 5916 mends a case in which they went round it.

# %% [markdown]
# ## R15. By how many?
#
# *Take it after puzzle 33.* Layers with experts once more, as in puzzle 27, in one copy. Every micro-batch has as many
# tokens as the others, and the step follows the mean over all of them. So gradients are divided by the number of ranks,
# `grad / model.RANKS`, before they are summed: a small number added to others loses less than a large one. All sums
# are right here.
#
# Target, for 4 ranks, 4 layers, 4 micro-batches: **{{R15.time}}** ticks, peak memory **{{R15.memory}}** elements.
#
# The grader also checks this:
#
# - {{R15.ideas}}

# %% tags=["spec"]
PUZZLE = {
    "number": "R15",
    "name": "repair_mean",
    "title": "By how many?",
    "size": {
        "ranks": 4,
        "layers": 4,
        "batches": 4,
        "experts": 8,
        "tokens": [1, 1, 1, 1],
        "quiet": True,
    },
    "other_sizes": "experts",
    "target": {"time": 19.22, "memory": 4980736},
    "frontier": [
        {"time": 19.22, "memory": 4980736, "by": "repair_mean"},
    ],
    "cost": "experts",
    "layout": "experts_sharded",
    "ideas": ["as_many_each", "weights_stay"],
    "words": ["alltoall", "expert"],
    "difficulty": "medium",
    "minutes": 15,
    "hints": [
        "Which layers are wrong, and do copies agree? How often does a micro-batch count in the gradient of such a layer, "
        "and how often in that of the others?",
        "A gradient of a dense layer is divided, and then summed over the ranks. That of an expert has the tokens of all "
        "micro-batches in it already. It needs no sum. Does it need the division?",
        "A mean is a sum, divided by the number of its parts, wherever the sum was made. So the gradient of an expert "
        "needs the division, too: after `backward_expert` comes `grad / model.RANKS`.",
    ],
}


# %%
async def repair_mean(model: Model) -> Model:
    """Layers with experts and layers without, and the mean over all micro-batches."""
    for layer in range(model.LAYERS):
        piece = (model.rank, model.RANKS) if model.experts(layer) else (0, 1)
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, *piece)

    acts, grads = model.activations, model.grad_activations
    acts[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        if model.experts(layer):
            acts["tokens", layer] = await model.alltoall(acts.pop(layer), layer)
            out = model.expert(layer, acts["tokens", layer], model.weights[layer])
            acts[layer + 1] = await model.alltoall(out, layer + 1)
        else:
            acts[layer + 1] = model.forward(layer, acts[layer], model.weights[layer])
    grads["last"] = model.loss(acts.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        weight = model.weights[layer]
        if model.experts(layer):
            grad = await model.alltoall(grads.pop("last"), layer)
            tokens = acts.pop(("tokens", layer))
            of_weight, grads["last"] = model.backward_expert(layer, tokens, grad, weight)
            ### BEGIN SOLUTION
            model.grad_weights[layer] = of_weight / model.RANKS
            ### BROKEN
            # model.grad_weights[layer] = of_weight
            ### END SOLUTION
            grads["last"] = await model.alltoall(grads.pop("last"), layer - 1)
        else:
            inp, grad_out = acts.pop(layer), grads.pop("last")
            of_weight, grads["last"] = model.backward(layer, inp, grad_out, weight)
            model.grad_weights[layer] = of_weight / model.RANKS
    del grads["last"]

    for layer in reversed(range(model.LAYERS)):
        grad = model.grad_weights.pop(layer)
        if not model.experts(layer):
            grad = await model.allreduce(grad, layer)
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


# %%
uneven = ExpertRingCost(
    backward=2, loads=(4, 2, 2, 2, 2, 2, 1, 1), chosen=2, latency=0.02, bandwidth=1_310_720
)
mean = {"experts": 8, "tokens": [1, 1, 1, 1], "quiet": True}
draw(run(repair_mean, ranks=4, layers=4, batches=4, cost=uneven, **mean))

# %%
grade(repair_mean)

# %% [markdown] tags=["solution"]
# An expert has all its tokens on one rank, so nothing is left to sum, and where the sum was, the division was forgotten,
# too. Its gradient was as many times too large as there are ranks. On a larger cluster it is worse, and nobody sees it:
# Adam divides by the size of past gradients, so the steps look much as before, and only the clipping of gradients
# changes. PyTorch (issue 160285), DeepSpeed (issue 5618) and Megatron-LM (PR 5956) have all divided the gradients of
# experts by another number than they should.

# %% [markdown]
# ## R16. To be safe
#
# *Take it after puzzle 17.* Two micro-batches, each on two ranks. Odd layers are cut into two pieces, as in puzzle 17.
# Even layers are small, and every rank has all of them. "Gradients must be summed, so I sum them", says the author,
# who would rather do too much than too little.
#
# Target, for 4 ranks, 4 layers, 2 micro-batches: **{{R16.time}}** ticks, peak memory **{{R16.memory}}** elements.
#
# The grader also checks this:
#
# - {{R16.ideas}}

# %% tags=["spec"]
PUZZLE = {
    "number": "R16",
    "name": "repair_safe",
    "title": "To be safe",
    "size": {
        "ranks": 4,
        "layers": 4,
        "batches": 2,
        "mesh": {"data": 2, "tensor": 2},
        "quiet": True,
    },
    "other_sizes": "beside_pieces",
    "target": {"time": 10.4, "memory": 2359296},
    "frontier": [
        {"time": 10.4, "memory": 2359296, "by": "repair_safe"},
    ],
    "layout": "anywhere",
    "ideas": ["weights_stay"],
    "words": ["partial=True"],
    "difficulty": "medium",
    "minutes": 15,
    "hints": [
        "Which layers are wrong, and do their copies agree? What do these layers have in common, and how are their "
        "gradients summed?",
        "The two ranks of one micro-batch compute the same in a layer that both have whole. So both have the same "
        "gradient of it. What comes of a sum over all four?",
        'Each micro-batch has to be in the sum once. So both kinds of layers are summed along `axis="data"`.',
    ],
}


# %%
async def repair_safe(model: Model) -> Model:
    """Layers in pieces and whole layers by turns, for several micro-batches."""
    place, places = model.axis_index("tensor"), model.axis_size("tensor")
    for layer in range(model.LAYERS):
        piece = (place, places) if layer % 2 else (0, 1)
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, *piece)

    acts, grads = model.activations, model.grad_activations
    acts[0] = model.get_activation([model.axis_index("data")])
    for layer in range(model.LAYERS):
        weight = model.weights[layer]
        if layer % 2:
            part = model.forward(layer, acts[layer], weight, partial=True)
            acts[layer + 1] = await model.allreduce(part, layer + 1, axis="tensor")
        else:
            acts[layer + 1] = model.forward(layer, acts[layer], weight)
    grads["out"] = model.loss(acts.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        inp, grad_out, weight = acts.pop(layer), grads.pop("out"), model.weights[layer]
        if layer % 2:
            grad, part = model.backward(layer, inp, grad_out, weight, partial=True)
            model.grad_weights[layer] = grad
            grads["out"] = await model.allreduce(part, layer - 1, axis="tensor")
        else:
            model.grad_weights[layer], grads["out"] = model.backward(
                layer, inp, grad_out, weight
            )
    del grads["out"]

    for layer in reversed(range(model.LAYERS)):
        grad = model.grad_weights.pop(layer)
        ### BEGIN SOLUTION
        grad = await model.allreduce(grad, layer, axis="data")
        ### BROKEN
        # grad = await model.allreduce(grad, layer, axis="data" if layer % 2 else None)
        ### END SOLUTION
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


# %%
pieces = {"mesh": {"data": 2, "tensor": 2}, "quiet": True}
draw(run(repair_safe, ranks=4, layers=4, batches=2, **pieces))

# %%
grade(repair_safe)

# %% [markdown] tags=["solution"]
# Both ranks of a micro-batch run a whole layer on the same input, so each has its whole gradient. In a sum over all
# ranks, every micro-batch is counted twice, and the update follows twice the gradient. Adam hides that well, since it
# divides by the size of past gradients. But the norm of all gradients, by which they are clipped, is wrong, too. If a
# rank ran these layers on a slice of the sequence only, the sum over all ranks would be right.

# %% [markdown]
# ## R17. Who sends first?
#
# *Take it after puzzle 13.* Data parallel, and each rank has read the micro-batch of its neighbor from its disk. So
# each hands it on to the next rank, in a ring, before anything else. On the author's desk it ran. On these links a
# send waits until its receive has been posted (`links="rendezvous"`), as it may on real ones. Four people stand at a
# door, and each says: after you.
#
# Target, for 4 ranks, 2 layers, 4 micro-batches: **{{R17.time}}** ticks, peak memory **{{R17.memory}}** elements.
#
# The grader also checks this:
#
# - {{R17.ideas}}

# %% tags=["spec"]
PUZZLE = {
    "number": "R17",
    "name": "repair_ring",
    "title": "Who sends first?",
    "size": {"ranks": 4, "layers": 2, "batches": 4, "links": "rendezvous"},
    "other_sizes": "data_parallel",
    "target": {"time": 6.0, "memory": 1572864},
    "frontier": [
        {"time": 5.6, "memory": 1572864, "by": "ddp"},
    ],
    "layout": "whole",
    "ideas": ["as_many_each", "weights_stay"],
    "words": ["exchange"],
    "difficulty": "easy",
    "minutes": 10,
    "hints": [
        "The error names the first call of each rank, and what that call waits for. Go round the ring: who could go on?",
        "If one rank receives before it sends, the ring is open, and the program ends. But then the messages go one "
        "after the other. `model.receive` posts a receive at once, without `await`: what if every rank has posted its own "
        "before it waits for anything?",
        "Start both calls, and wait only then: `sending = model.pass_to(after, ...)`, `coming = model.receive(before)`, "
        "`await sending`, and at last `await coming`.",
    ],
}


# %%
async def repair_ring(model: Model) -> Model:
    """Each rank hands its micro-batch to the next one, and trains on the one that comes."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    before, after = (model.rank - 1) % model.RANKS, (model.rank + 1) % model.RANKS
    model.activations[0] = model.get_activation([model.rank])
    if model.RANKS > 1:
        ### BEGIN SOLUTION
        sending = model.pass_to(after, model.activations.pop(0))
        coming = model.receive(before)
        await sending
        model.activations[0] = await coming
        ### BROKEN
        # await model.pass_to(after, model.activations.pop(0))
        # model.activations[0] = await model.receive(before)
        ### END SOLUTION

    for layer in range(model.LAYERS):
        model.activations[layer + 1] = model.forward(
            layer, model.activations[layer], model.weights[layer]
        )
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))
    for layer in reversed(range(model.LAYERS)):
        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        grad, model.grad_activations[layer] = model.backward(
            layer, inp, grad_out, model.weights[layer]
        )
        grad = await model.allreduce(grad, layer)
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


# %%
draw(run(repair_ring, ranks=4, layers=2, batches=4, links="rendezvous"))

# %%
grade(repair_ring)

# %% [markdown] tags=["solution"]
# Every rank was in its send, and no send could begin, since every receive stood behind a send. What this hop of the
# ring takes, done in several ways:
#
# | | eager | rendezvous | ordered |
# |---|---|---|---|
# | all send, then receive | {{hop["send", 0]}} | {{hop["send", 1]}} | {{hop["send", 2]}} |
# | rank 0 receives first | {{hop["one", 0]}} | {{hop["one", 1]}} | {{hop["one", 2]}} |
# | odd ranks receive first | {{hop["odd", 0]}} | {{hop["odd", 1]}} | {{hop["odd", 2]}} |
# | each starts both, then waits | {{hop["both", 0]}} | {{hop["both", 1]}} | {{hop["both", 2]}} |
# | `exchange` | {{hop["exchange", 0]}} | {{hop["exchange", 1]}} | {{hop["exchange", 2]}} |
#
# One rank that receives first is enough to open the ring, but then one send follows the other. Odd and even ranks need
# two turns. If every receive is posted before its rank waits for a send, all go at once. But on *ordered* links a
# receive is posted only when it is first in its rank's queue, and there it stands behind the send. Then only
# `model.exchange`, PyTorch's `batch_isend_irecv`, does it in one turn. The report is known: NCCL's issue 479 has two
# ranks that both send first.

# %% [markdown]
# ## R18. After a longer text
#
# *Take it after puzzle 13.* 1F1B, as in puzzle 13. For a year it trained with short texts. Then somebody doubled the
# length, and since that day it stops after a few micro-batches, and no rank reports an error. Small messages fitted
# into a buffer, and nobody waited. Now a send waits for its receive (`links="rendezvous"`). Which two ranks wait for
# each other?
#
# Target, for 4 ranks, 8 layers, 8 micro-batches: **{{R18.time}}** ticks, peak memory **{{R18.memory}}** elements.
#
# The grader also checks this:
#
# - {{R18.ideas}}

# %% tags=["spec"]
PUZZLE = {
    "number": "R18",
    "name": "repair_handshake",
    "title": "After a longer text",
    "size": {"ranks": 4, "layers": 8, "batches": 8, "links": "rendezvous"},
    "other_sizes": "pipeline",
    "target": {"time": 52.6, "memory": 2752512},
    "frontier": [
        {"time": 52.6, "memory": 2752512, "by": "repair_handshake"},
    ],
    "layout": "stages",
    "ideas": ["own_layers"],
    "words": ["exchange"],
    "difficulty": "medium",
    "minutes": 15,
    "hints": [
        "All four ranks wait, but two of them for each other. Which two, and in which line? The other two wait only "
        "since these do.",
        "One of the two has an output for the other, and that one has a gradient for it. Each sends first. When does "
        "each of them come to its receive?",
        "In `hand`, start the sends, then start the receives, and only then wait: first `await` each send, then the "
        "receives.",
    ],
}


# %%
async def repair_handshake(model: Model) -> Model:
    """1F1B. After each piece of work a rank hands on what it has made, and takes what it needs next."""
    share = model.LAYERS // model.RANKS
    first, end = model.rank * share, (model.rank + 1) * share
    is_first, is_last = model.rank == 0, model.rank == model.RANKS - 1
    above, below = [model.rank - 1] * (not is_first), [model.rank + 1] * (not is_last)
    for layer in range(first, end):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    def forward(mb, came):
        model.activations[first, mb] = model.get_activation([mb]) if is_first else came[0]
        for layer in range(first, end):
            inp, weight = model.activations[layer, mb], model.weights[layer]
            model.activations[layer + 1, mb] = model.forward(layer, inp, weight)
        return None if is_last else model.activations.pop((end, mb))

    def backward(mb, came):
        if is_last:
            came = [model.loss(model.activations.pop((end, mb)))]
        model.grad_activations[end] = came[0]
        for layer in reversed(range(first, end)):
            inp, grad_out = (
                model.activations.pop((layer, mb)),
                model.grad_activations.pop(layer + 1),
            )
            grad, model.grad_activations[layer] = model.backward(
                layer, inp, grad_out, model.weights[layer]
            )
            model.grad_weights[layer] = grad if mb == 0 else model.grad_weights[layer] + grad
        return model.grad_activations.pop(first)

    async def hand(out, to, sources):
        ### BEGIN SOLUTION
        sending = [model.pass_to(rank, out) for rank in to]
        coming = [model.receive(rank) for rank in sources]
        for call in sending:
            await call
        return [await call for call in coming]
        ### BROKEN
        # for rank in to:
        #     await model.pass_to(rank, out)
        # return [await model.receive(rank) for rank in sources]
        ### END SOLUTION

    ahead = min(model.RANKS - model.rank, model.BATCHES)
    work = [(forward, mb) for mb in range(ahead)]
    for mb in range(model.BATCHES):
        work.append((backward, mb))
        if mb + ahead < model.BATCHES:
            work.append((forward, mb + ahead))
    to, source = {forward: below, backward: above}, {forward: above, backward: below}

    came = await hand(None, [], above)
    for (do, mb), (then, _) in zip(work, [*work[1:], (None, 0)], strict=True):
        came = await hand(do(mb, came), to[do], source.get(then, []))

    for layer in range(first, end):
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


# %%
draw(run(repair_handshake, ranks=4, layers=8, batches=8, links="rendezvous"))

# %%
grade(repair_handshake)

# %% [markdown] tags=["solution"]
# A rank that has done its first forwards sends the last output down, and then wants the first gradient. The rank below
# it has made that gradient, and sends it up. Both are in a send, and neither has posted its receive. Now each posts
# its receive before it waits for its send. The time is that of puzzle 13, {{patient.time}} ticks, since on the usual
# links a rank waited for each of its sends, too.
#
# Megatron-LM does such a pair in one call (`send_forward_recv_backward`), and PyTorch's `Schedule1F1B` in one
# `batch_isend_irecv`. This repair would not do where receives stand in the same queue as sends: puzzle 36 has such
# links.

# %% [markdown]
# ## R19. Not before it is needed
#
# *Take it after puzzle 14.* Interleaved 1F1B, as rows of actions: the form in which PyTorch prints and loads its
# schedules. `1F0` is the forward of stage 1 for micro-batch 0, `1SEND_F0` sends its output to the next stage, and
# `1RECV_F0` takes the input. A rank was held up by receives that it started long before it needed them. So somebody
# moved every receive right before the work that reads it. On links where a rank's sends and receives stand in one
# queue (`links="ordered"`), this is what became of it. It really happened.
#
# Target, for 2 ranks, 4 layers, 2 micro-batches: **{{R19.time}}** ticks, peak memory **{{R19.memory}}** elements.
# Other sizes have more layers in each stage.
#
# The grader also checks this:
#
# - {{R19.ideas}}

# %% tags=["spec"]
PUZZLE = {
    "number": "R19",
    "name": "repair_deferred",
    "title": "Not before it is needed",
    "size": {"ranks": 2, "layers": 4, "batches": 2, "links": "ordered"},
    "other_sizes": "thicker_stages",
    "target": {"time": 15.0, "memory": 1966080},
    "frontier": [
        {"time": 13.8, "memory": 1835008, "by": "deferred_in_exchanges"},
    ],
    "layout": "stages",
    "ideas": ["own_layers", "dealt_like_cards"],
    "words": ["exchange"],
    "difficulty": "medium",
    "minutes": 15,
    "hints": [
        "The error names the first call of each rank. Find these two places in the rows. Which receive does each of the "
        "two sends wait for, and what stands before it?",
        "If both ranks send before they receive, nobody ever receives. It is enough that one of the two does it the other "
        "way round. Where may a receive go up in its row, and how far?",
        "Change the row of rank 1 only. Wherever there is a SEND right before a RECV, exchange the two. Between a SEND and "
        "the next RECV there may also be work: `1RECV_F1` goes right behind `1F0`, and `3RECV_F0` right behind `1F1`.",
    ],
}


# %%
async def repair_deferred(model: Model) -> Model:
    """Rows of two ranks with two stages each, and two micro-batches."""
    rows = [
        "0F0, 0SEND_F0, 0F1, 0SEND_F1, 2RECV_F0, 2F0, 2SEND_F0, 2RECV_F1, 2F1, 2SEND_F1, "
        "2RECV_B0, 2B0, 2SEND_B0, 2RECV_B1, 2B1, 2SEND_B1, 0RECV_B0, 0B0, 0RECV_B1, 0B1",
        ### BEGIN SOLUTION
        "1RECV_F0, 1F0, 1RECV_F1, 1SEND_F0, 1F1, 3RECV_F0, 1SEND_F1, 3F0, 3B0, 3RECV_F1, "
        "3SEND_B0, 3F1, 3B1, 1RECV_B0, 3SEND_B1, 1B0, 1RECV_B1, 1SEND_B0, 1B1, 1SEND_B1",
        ### BROKEN
        # "1RECV_F0, 1F0, 1SEND_F0, 1RECV_F1, 1F1, 1SEND_F1, 3RECV_F0, 3F0, 3B0, 3SEND_B0, "
        # "3RECV_F1, 3F1, 3B1, 3SEND_B1, 1RECV_B0, 1B0, 1SEND_B0, 1RECV_B1, 1B1, 1SEND_B1",
        ### END SOLUTION
    ]
    return await schedule("\n".join(rows))(model)


# %%
draw(run(repair_deferred, ranks=2, layers=4, batches=2, links="ordered"))

# %%
grade(repair_deferred)

# %% [markdown] tags=["solution"]
# Rank 0 would send micro-batch 1 to stage 1, rank 1 would send micro-batch 0 to stage 2, and each receive stood behind
# a send. Now rank 1 receives first wherever both have something for each other. So it takes turns with rank 0, and
# {{turns.time}} ticks with it: a receive that stands in the queue holds up the send behind it. On links where only
# sends wait, the rows came to their end as they were, in {{late.time}} ticks. On ordered links it takes
# {{exchanged.time}} ticks if each send and the receive that follows it are one `model.exchange`.
#
# This is the story of PyTorch's {{deferring}} and {{turning}}: `defer_pp_recv=True` put receives off and hung on some
# machines, and even and odd ranks that take turns mended it. docs/schedules.md of the project has the whole of it.
# `schedule(rows, links="ordered")` says at once, without a run, whether rows come to an end, and where they do not.

# %% [markdown]
# ## R20. Crosswise
#
# *Take it after puzzle 8.* Data parallel on a grid of ranks. Each gradient is summed along the rows and along the
# columns. One half of it goes along the columns first, the other along the rows, so that no cable is idle. Somebody
# lets every second rank begin with the other half, so that not everybody is on the same cable at once. Now nothing
# moves. Ask any group: all of its members have called the same. They are right.
#
# Target, for 4 ranks in a grid of 2 x 2, 2 layers, 4 micro-batches: **{{R20.time}}** ticks, peak memory
# **{{R20.memory}}** elements.
#
# The grader also checks this:
#
# - {{R20.ideas}}

# %% tags=["spec"]
PUZZLE = {
    "number": "R20",
    "name": "repair_crosswise",
    "title": "Crosswise",
    "size": {"ranks": 4, "layers": 2, "batches": 4, "mesh": {"row": 2, "column": 2}},
    "other_sizes": "squares",
    "target": {"time": 7.4, "memory": 1703936},
    "frontier": [
        {"time": 5.6, "memory": 1572864, "by": "ddp"},
    ],
    "layout": "whole",
    "ideas": ["as_many_each", "weights_stay"],
    "difficulty": "medium",
    "minutes": 15,
    "hints": [
        "Write down for each of the four ranks which of its two calls comes first, and who else is in that call. Who waits "
        "for whom?",
        "Rank 0 waits for a rank of its group which waits in another group, and so on, round in a circle. A call of a "
        "group begins only if it is the next one of all its members.",
        "All ranks make their calls in one order, whichever it is: no `halves.reverse()`.",
    ],
}


# %%
async def repair_crosswise(model: Model) -> Model:
    """Each half of a gradient is summed along both axes of the grid, one after the other."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

    model.activations[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        model.activations[layer + 1] = model.forward(
            layer, model.activations[layer], model.weights[layer]
        )
    model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        inp, grad_out = model.activations.pop(layer), model.grad_activations.pop(layer + 1)
        grad, model.grad_activations[layer] = model.backward(
            layer, inp, grad_out, model.weights[layer]
        )
        model.grad_weights["low"], model.grad_weights["high"] = (
            grad.shard(0, 2),
            grad.shard(1, 2),
        )
        for axes in ({"low": "row", "high": "column"}, {"low": "column", "high": "row"}):
            halves = ["low", "high"]
            ### BEGIN SOLUTION
            # All ranks begin with the same half.
            ### BROKEN
            # if (model.axis_index("row") + model.axis_index("column")) % 2:
            #     halves.reverse()
            ### END SOLUTION
            sums = {
                half: model.allreduce(model.grad_weights.pop(half), layer, axis=axes[half])
                for half in halves
            }
            for half in halves:
                model.grad_weights[half] = await sums[half]
        grad = model.grad_weights.pop("low").combine(model.grad_weights.pop("high"))
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
    return model


# %%
draw(run(repair_crosswise, ranks=4, layers=2, batches=4, mesh={"row": 2, "column": 2}))

# %%
grade(repair_crosswise)

# %% [markdown] tags=["solution"]
# Each group had the same calls in the same order. But rank 0 waited in its column for rank 2, rank 2 in its row for
# rank 3, rank 3 in its column for rank 1, and rank 1 in its row for rank 0. No group alone can see that. **What has to
# be the same on all ranks is the order of all their calls**, over all of their groups. NCCL's documentation says so of
# several communicators, and it is a hang without an error there.
#
# If the ranks of one row had begun with one half, and those of the other row with the other, the program would end:
# then there is no circle, and somebody can go first. That makes such a mistake treacherous: it depends on the shape of
# the grid.

# %% tags=["figures"]
from dataclasses import replace
from fractions import Fraction
from functools import partial

from lib import Deadlock, Run
from lib.machine.cost import LINKS

from solutions.p13_one_f_one_b import one_f_one_b
from solutions.p36_sends_that_wait import deferred_in_exchanges

wrong = broken("repairs")
last_layer = 8 - 1  # of R13

four = {"ranks": 4, "layers": 6, "batches": 4}
plain, bargain = (run(fn, **four) for fn in (repair_bargain, wrong["repair_bargain"]))
plain_of_12, bargain_of_12 = (
    run(fn, **{**four, "layers": 12}) for fn in (repair_bargain, wrong["repair_bargain"])
)


def worth(done: Run) -> float:
    """Peak memory, in activations."""
    return float(done.memory / cost.activation_elements)


deep, turns = 4, 4  # layers, and micro-batches of a rank
sums = deep * turns
two_nodes = {
    "ranks": 8,
    "layers": deep,
    "mesh": {"replica": 2, "shard": 4},
    "node_size": 4,
    "cost": far,
}
mended, book = (
    run(fn, **two_nodes, batches=8 * turns) for fn in (repair_book, wrong["repair_book"])
)
assert (
    round(book.time - mended.time, 9) == (sums - deep) * far.collective_across
    and book.memory == mended.memory
)
assert sums * (far.collective_across + far.collective) > mended.time
mended_of_16, book_of_16 = (
    run(fn, **two_nodes, batches=8 * 16) for fn in (repair_book, wrong["repair_book"])
)

warm_part, mfu_gained = (
    Fraction(1, 10),
    0.007,
)  # arXiv 2402.15627, section 6, on computational stragglers
few = 43 // 4
ours = {"ranks": 4, "layers": 2, "batches": 43}
warm_dp, mended_dp = (
    run(fn, **ours, cost=warm) for fn in (wrong["repair_straggler"], repair_straggler)
)
cool_dp = run(repair_straggler, **ours)
assert few * (1 + warm_part) == few + 1 and warm_dp.time > mended_dp.time


def lost(fn, layers: int, batches: int, slow: int) -> float:
    """How many times as long a step takes if that rank of four is slow. Messages are free."""
    free = Cost(send=0, receive=0)
    late = replace(free, uneven=Uneven(slow={slow: 1 + warm_part}))
    times = [run(fn, 4, layers, batches, cost=each).time for each in (free, late)]
    return float(times[1] / times[0])


one_each = lost(repair_straggler, 8, 4, 0)
many, more = 12, 48
piped, piped_more = (
    [lost(one_f_one_b, 4, number, rank) for rank in range(4)] for number in (many, more)
)


async def one_hop(model: Model, way: str) -> None:
    """Each rank hands its micro-batch to the next one, in one of these ways."""
    before, after = (model.rank - 1) % model.RANKS, (model.rank + 1) % model.RANKS
    mine = model.activations["own"] = model.get_activation([model.rank])
    if way == "exchange":
        [model.activations["came"]] = await model.exchange([(after, mine)], [before])
    elif way == "both":
        sending, coming = model.pass_to(after, mine), model.receive(before)
        await sending
        model.activations["came"] = await coming
    elif {"send": False, "one": model.rank == 0, "odd": model.rank % 2}[way]:
        model.activations["came"] = await model.receive(before)
        await model.pass_to(after, mine)
    else:
        await model.pass_to(after, mine)
        model.activations["came"] = await model.receive(before)


def hop_takes(way: str, links: str) -> str:
    """The ticks of that hop of a ring of four, or that it hangs."""
    try:
        return show(run(partial(one_hop, way=way), ranks=4, batches=4, links=links).time)
    except Deadlock:
        return "hangs"


hop = {
    (way, place): hop_takes(way, links)
    for way in ("send", "one", "odd", "both", "exchange")
    for place, links in enumerate(LINKS)
}
deferring, turning = "PR 172833", "PR 178815"
patient = run(one_f_one_b, 4, 8, 8)
turns = run(repair_deferred, 2, 4, 2, links="ordered")
late = run(wrong["repair_deferred"], 2, 4, 2, links="rendezvous")
exchanged = run(deferred_in_exchanges, 2, 4, 2, links="ordered")
