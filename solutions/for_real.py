# %% [markdown]
# # For real
#
# So far every tensor was a name without numbers, and every GPU a row in a picture. Now the same functions run on real
# processes with real tensors: one process of the operating system for each rank, `torch.distributed` between them.
# The result is compared with what torch's own autograd and Adam give for the same training on one device.
#
# You need PyTorch for this. If something is missing, the first run says how to get it. You need no GPU: without one
# for each rank, the ranks use the processor.

# %%
from drawing import compare, draw
from lib import Model, PuzzleError, attempt, run


def on_processes(fn, **options):
    """A run on 4 processes, 6 layers, 4 micro-batches; what goes wrong is printed."""
    try:
        return run(fn, ranks=4, layers=6, batches=4, engine="processes", **options)
    except PuzzleError as error:
        print(error)


# %% [markdown]
# ## Your own function
#
# `attempt("fsdp")` takes your function out of the notebook of puzzle 4 beside this one. (In Colab, where there is no
# such notebook, paste it into this cell instead.) Nothing in it has to be changed.

# %%
try:
    fsdp = attempt("fsdp")
except PuzzleError as error:
    print(error)
    fsdp = None

done = on_processes(fsdp)
done

# %% [markdown]
# Is it right? `check` asks twice: whether the weights are those of plain training, as in every puzzle, and whether
# the *numbers* are those that torch's autograd and Adam give. They are never equal to the last bit, since sums are
# made in another order. What counts is the error relative to the largest change of a weight.

# %%
if done and done.attempted:
    done.check()
    print(done.agreement)

# %% [markdown]
# ## By the clock on the wall
#
# This is the same picture, with measured times, in milliseconds. Below its title it says how long a tick was, the
# time of one micro-batch in one layer: some tenths of a millisecond. Do not be surprised: on the processors of one
# machine talking takes far longer than computing such small layers. That is why real layers are large, and why links
# matter.

# %%
draw(done.measured) if done and done.attempted else None

# %% [markdown]
# To see the shape of the schedule, let computing take its time: `pace=0.03` sets the least length of a tick, in
# seconds. Now measured and simulated look alike. Side by side, both are in milliseconds.

# %%
paced = on_processes(fsdp, pace=0.03)
compare(paced, paced.measured, titles=["simulated", "measured"]) if paced else None

# %% [markdown]
# ## Somebody dies
#
# Machines fail. Training Llama 3 on {{gpus}} GPUs was unexpectedly interrupted {{unexpected}} times in {{days}} days,
# once in {{round(24 * days / unexpected):word}} hours (arXiv 2407.21783). Often a rank that dies says nothing, and
# all the *others* complain ten minutes later (NCCL's timeout in PyTorch). Here the process of rank 2 is killed when
# it begins its third operation, its first all-gather:


# %%
async def gathers(model: Model) -> Model:
    """Every rank gathers the weights of two layers."""
    for layer in range(2):
        model.weights[layer], _ = model.load_weights(layer, model.rank, model.RANKS)
    for layer in range(2):
        await model.allgather(model.weights[layer], layer)
    return model


on_processes(gathers, kill=(2, 3))

# %% [markdown]
# Try others: a rank that raises, that waits for a message nobody sends, that calls another collective than the rest,
# that never ends. Each ends with a message that names the rank and the line, before anything real has begun: your
# function runs on the simulated machine first. The real run then repeats the operations of the simulated one. So your
# function must do the same in every process, and one that asks `random` what to do is refused.
#
# ## Overlap
#
# A collective that is started before a layer and awaited after it travels while the layer computes. Both functions
# below do the forward half of FSDP. The second one asks for the next weight before it uses the one it has.
# [Puzzle 12](p12_prefetch.ipynb) is about this skill.


# %%
async def one_by_one(model: Model) -> Model:
    """Gather, compute, gather, compute."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(
            layer, model.rank, model.RANKS
        )
    model.activations[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        whole = await model.allgather(model.weights[layer], layer)
        model.activations[layer + 1] = model.forward(layer, model.activations[layer], whole)
    return model


async def ahead(model: Model) -> Model:
    """The next weight comes while this one is used."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(
            layer, model.rank, model.RANKS
        )
    model.activations[0] = model.get_activation([model.rank])
    coming = model.allgather(model.weights[0], 0)
    for layer in range(model.LAYERS):
        model.weights["whole"] = await coming
        if layer + 1 < model.LAYERS:
            coming = model.allgather(model.weights[layer + 1], layer + 1)
        model.activations[layer + 1] = model.forward(
            layer, model.activations[layer], model.weights.pop("whole")
        )
    return model


large = {"hidden": 512, "pace": 0.03}
runs = [on_processes(one_by_one, **large), on_processes(ahead, **large)]
compare(*[one.measured for one in runs], titles=["one by one", "ahead"]) if all(runs) else None

# %% [markdown]
# ## Many machines
#
# From here it is one step to a cluster. On each machine, with its own number for `--node-rank`:
#
# ```
# torchrun --nnodes 2 --node-rank 0 --nproc-per-node 4 --master-addr FIRST --master-port 29500 \
#     -m lib worker my_fsdp.py:fsdp --layers 6 --batches 8
# ```
#
# Ranks use NCCL if each has a GPU of its own, and gloo otherwise.

# %% tags=["figures"]
gpus, days, unexpected = (published(value, "arXiv 2407.21783") for value in (16_384, 54, 419))
