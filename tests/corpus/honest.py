"""Programs that must pass: the same work in many hands."""

from tests.programs import COURSE, REPAIRS

from . import Program, after, changed, of_each_puzzle, whole
from .elsewhere import HONEST as ELSEWHERE
from .needless import HONEST as NEEDLESS
from .styles import HONEST as STYLES

UPDATES = """
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])
"""

HONEST: list[Program] = [
    # -- as it is, and second solutions --------------------------------------------------------------------
    *(changed(name, "as it is") for name in COURSE),
    changed("ddp", "sums awaited late", base="ddp_overlap"),
    changed("wsdp", "weights gathered ahead", base="wsdp_prefetch"),
    changed("wsdp", "weights gathered under updates", base="wsdp_under_updates"),
    changed("gpipe", "one forward one backward", base="one_forward_one_backward"),
    changed("wsdp", "a better technique", base="fsdp"),
    changed("basic", "micro-batch by micro-batch", base="grad_accum"),
    # -- keys --------------------------------------------------------------------------------------------------
    changed("basic", "keys that are texts", ("activations[layer]", 'activations[f"in {layer}"]'),
            ("activations[layer + 1] =", 'activations[f"in {layer + 1}"] ='), ("activations[0]", 'activations["in 0"]'),
            ("model.activations.pop(model.LAYERS)", 'model.activations.pop(f"in {model.LAYERS}")'),
            ("model.activations.pop(layer)", 'model.activations.pop(f"in {layer}")'),
            ("grad_activations[model.LAYERS]", 'grad_activations[f"in {model.LAYERS}"]'),
            ("grad_activations.pop(layer + 1)", 'grad_activations.pop(f"in {layer + 1}")')),
    changed("gpipe", "keys the other way round", ("[first, mb]", "[mb, first]"), ("[layer, mb]", "[mb, layer]"),
            ("[layer + 1, mb]", "[mb, layer + 1]"), ("(end, mb)", "(mb, end)"), ("(layer, mb)", "(mb, layer)")),
    changed("fsdp", "keys that are objects", ("model.grad_weights[layer]", "model.grad_weights[KEYS[layer]]"),
            ("model.grad_weights.pop(layer)", "model.grad_weights.pop(KEYS[layer])"),
            ("async def fsdp", "class Key: pass\n\nKEYS = [Key() for _ in range(99)]\n\nasync def fsdp")),
    changed("ddp", "one key for the gradient in hand", ("model.grad_activations[model.LAYERS]", 'model.grad_activations["g"]'),
            ("model.grad_activations.pop(layer + 1)", 'model.grad_activations.pop("g")'),
            ("grad, model.grad_activations[layer]", 'grad, model.grad_activations["g"]')),
    changed("pipeline", "keys that are None and True", ("model.grad_activations[end]", "model.grad_activations[None]"),
            ("model.grad_activations.pop(layer + 1)", "model.grad_activations.pop(None)"),
            ("model.grad_weights[layer], model.grad_activations[layer]", "model.grad_weights[layer], model.grad_activations[None]"),
            ("model.grad_activations.pop(first)", "model.grad_activations.pop(None)")),
    # -- what dictionaries can do --------------------------------------------------------------------------------
    changed("grad_accum", "setdefault", ("grad if mb == 0 else model.grad_weights[layer] + grad",
            "grad if model.grad_weights.setdefault(layer, grad) is grad else model.grad_weights[layer] + grad")),
    changed("fsdp", "update of a dictionary", ("model.grad_weights[layer] = await model.scatterreduce(grad, layer)",
            "model.grad_weights.update({layer: await model.scatterreduce(grad, layer)})")),
    changed("ddp", "a dictionary or'ed in", ("model.activations[0] = model.get_activation([model.rank])",
            "model.activations |= {0: model.get_activation([model.rank])}")),
    changed("basic", "popitem", ("model.activations.pop(layer), model.grad_activations.pop(layer + 1)",
            "model.activations.popitem()[1], model.grad_activations.popitem()[1]")),
    changed("gpipe", "clear at the end", ("    return model", "    model.activations.clear()\n    return model")),
    changed("pipeline_fsdp", "storage taken apart", ("    stages = model", "    weights, states, acts, gacts, grads = model.storage()\n    stages = model"),
            ("model.grad_weights[layer] =", "grads[layer] ="), ("model.grad_weights.pop", "grads.pop"), ("model.activations[", "acts[")),
    changed("wsdp", "get", ("model.activations[layer], weight)", "model.activations.get(layer), weight)")),
    changed("basic", "stored under two keys for a moment", ("    return model", '    model.weights["again"] = model.weights[0]\n    return model')),
    # -- styles of writing -----------------------------------------------------------------------------------------
    changed("fsdp", "keywords everywhere", ("model.forward(layer, model.activations[layer], weight)",
            "model.forward(layer=layer, inp=model.activations[layer], weight=weight)"),
            ("model.backward(layer, inp, grad_out, weight)", "model.backward(weight=weight, grad=grad_out, inp=inp, layer=layer)"),
            ("model.scatterreduce(grad, layer)", "model.scatterreduce(v=grad, layer=layer)"),
            ("layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]",
             "layer, weight_grad=model.grad_weights.pop(layer), weight=model.weights[layer], opt_state=model.opt_states[layer]"),
            ("layer, model.rank, model.RANKS", "layer, shard=model.rank, total=model.RANKS")),
    changed("ddp", "no type hints, short names", ("(model: Model) -> Model", "(m)"), ("model.", "m."), ("return model", "return m")),
    changed("replica_fsdp", "a helper for each half", ("    share = model", "    gather = functools.partial(model.allgather, axis=\"shard\")\n    share = model"),
            ('await model.allgather(model.weights[layer], layer, axis="shard")', "await gather(model.weights[layer], layer)")),
    changed("ddp", "checks itself", ("    return model", "    Model.check([model])\n    return model")),
    changed("fsdp", "returns nothing", ("return model", "return None")),
    changed("fsdp", "returns something else", ("return model", 'return {"weights": dict(model.weights)}')),
    changed("gpipe", "prints as it goes", ("    for mb in range(model.BATCHES):\n        if is_last", "    model.status()\n    print(model, model.time, model.memory(), len(model.log))\n    for mb in range(model.BATCHES):\n        if is_last")),
    changed("grad_accum", "a dangling pair", ("model.weights[layer], model.opt_states[layer] = model.load_weights(layer)",
            "w, o = model.load_weights(layer)\n        model.weights[layer], model.opt_states[layer] = w, o")),
    changed("basic", "a list of layers loaded in a comprehension", ("""    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
""", """    pairs = [model.load_weights(layer) for layer in range(model.LAYERS)]
    model.weights.update((layer, weight) for layer, (weight, _) in enumerate(pairs))
    model.opt_states.update({layer: state for layer, (_, state) in enumerate(pairs)})
""")),
    changed("ddp", "try and finally", ("        grad = await model.allreduce(grad, layer)", "        try:\n            grad = await model.allreduce(grad, layer)\n        finally:\n            pass")),
    changed("pipeline", "match", ("""    if is_first:
        model.activations[first] = model.get_activation(range(model.BATCHES))
    else:
        model.activations[first] = await model.receive(src=model.rank - 1)
""", """    match model.rank:
        case 0:
            model.activations[first] = model.get_activation(range(model.BATCHES))
        case rank:
            model.activations[first] = await model.receive(src=rank - 1)
""")),
    changed("wsdp", "a walrus", ("model.activations[layer + 1] = model.forward(layer, model.activations[layer], weight)",
            "model.activations[layer + 1] = (out := model.forward(layer, model.activations[layer], weight))\n        assert out.layer == layer + 1")),
    changed("fsdp", "an exit stack", ("    for layer in range(model.LAYERS):\n        weight = await", "    with contextlib.ExitStack() as stack:\n        stack.callback(lambda: None)\n    for layer in range(model.LAYERS):\n        weight = await")),
    changed("fsdp", "a set of micro-batches", ("model.get_activation([model.rank])", "model.get_activation({model.rank})")),
    changed("basic", "micro-batches from a generator", ("range(model.BATCHES))", "mb for mb in range(model.BATCHES))")),
    changed("fsdp", "late update, last layer first", ("    for layer in range(model.LAYERS):\n        model.weights[layer], model.opt_states[layer] = model.update(",
            "    for layer in sorted(model.grad_weights, reverse=True):\n        model.weights[layer], model.opt_states[layer] = model.update(")),
    after("fsdp", "a partial of a general function", """
async def general(model, how):
    return await how(model)

fsdp = functools.partial(general, how=honest)
"""),
    after("ddp", "made by a factory", """
def make(fn):
    @functools.wraps(fn)
    async def program(model):
        return await fn(model)
    return program

ddp = make(honest)
"""),
    after("pipeline", "a method of an object", """
class Trainer:
    async def train(self, model):
        await honest(model)

pipeline = Trainer().train
"""),
    after("gpipe", "an object that can be called", """
class GPipe:
    async def __call__(self, model):
        return await honest(model)

gpipe = GPipe()
"""),
    after("basic", "a plain function in an async puzzle's clothes", "async def basic(model):\n    honest(model)"),
    after("ddp", "a lambda", "ddp = lambda model: honest(model)"),
    after("replica_fsdp", "an experiment around it", """
OPTIONS = {"verbose": False}
print("not run")
if __name__ == "__main__":
    grade(replica_fsdp)
try:
    import a_module_that_is_not_there
except ImportError:
    a_module_that_is_not_there = None
result = run(honest, ranks=8)
dist = Dist(4)

async def replica_fsdp(model):
    return await honest(model)

grade(replica_fsdp)
"""),
    # -- order and memory of the work ------------------------------------------------------------------------------
    changed("grad_accum", "last micro-batch first", ("for mb in range(model.BATCHES)", "for mb in reversed(range(model.BATCHES))"),
            ("mb == 0", "mb == model.BATCHES - 1")),
    changed("grad_accum", "a sum of popped gradients", ("model.grad_weights[layer] + grad", "grad + model.grad_weights.pop(layer)")),
    changed("grad_accum", "sum()", ("model.grad_weights[layer] + grad", "sum([model.grad_weights[layer], grad])")),
    changed("grad_accum", "layers loaded when they are needed", ("""    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)

""", ""), ("            inp, weight = model.activations[layer]", """            if layer not in model.weights:
                model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
            inp, weight = model.activations[layer]""")),
    changed("grad_accum", "updated on the way down of the last micro-batch", ("        del model.grad_activations[0]\n", ""),
            ("            model.grad_weights[layer] = grad if mb == 0 else model.grad_weights[layer] + grad",
             """            model.grad_weights[layer] = grad if mb == 0 else model.grad_weights[layer] + grad
            if layer == 0:
                del model.grad_activations[0]""")),
    changed("ddp", "micro-batches dealt in another order", ("[model.rank]", "[(model.rank + 1) % model.RANKS]")),
    changed("fsdp", "micro-batches dealt backwards", ("[model.rank]", "[model.RANKS - 1 - model.rank]")),
    changed("pipeline_fsdp", "other micro-batches for the pipelines", ("stage, mb = model.rank % stages, model.rank // stages",
            "stage, mb = model.rank % stages, model.BATCHES - 1 - model.rank // stages")),
    changed("gpipe", "backwards last in, first out", ("    for mb in range(model.BATCHES):\n        if is_last", "    for mb in reversed(range(model.BATCHES)):\n        if is_last"),
            ("grad if mb == 0 else", "grad if mb == model.BATCHES - 1 else")),
    changed("gpipe", "micro-batches backwards all the way", ("for mb in range(model.BATCHES)", "for mb in reversed(range(model.BATCHES))"),
            ("mb == 0", "mb == model.BATCHES - 1")),
    changed("pipeline", "stages from the other end", ("first, end = model.rank * share, (model.rank + 1) * share", "place = model.RANKS - 1 - model.rank\n    first, end = place * share, (place + 1) * share"),
            ("is_first, is_last = model.rank == 0, model.rank == model.RANKS - 1", "is_first, is_last = place == 0, place == model.RANKS - 1"),
            ("model.rank - 1", "model.rank PLUS 1"), ("model.rank + 1,", "model.rank - 1,"), ("src=model.rank + 1", "src=model.rank - 1"), ("PLUS", "+")),
    changed("fsdp", "updated inside the way down", ("        model.grad_weights[layer] = await model.scatterreduce(grad, layer)\n", """        grad = await model.scatterreduce(grad, layer)
        model.weights[layer], model.opt_states[layer] = model.update(layer, grad, model.weights[layer], model.opt_states[layer])
        model.set_final_weight(layer, model.weights[layer])
"""), (UPDATES, "")),
    changed("ddp", "all sums first, all updates last", ("        grad = await model.allreduce(grad, layer)\n", "        model.grad_weights[layer] = await model.allreduce(grad, layer)\n    for layer in range(model.LAYERS):\n"),
            ("layer, grad, model.weights[layer]", "layer, model.grad_weights.pop(layer), model.weights[layer]")),
    changed("basic", "updated in two halves", ("        model.weights[layer], model.opt_states[layer] = model.update(\n            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]\n        )",
            "        model.weights[layer], model.opt_states[layer] = model.update(layer, model.grad_weights.pop(layer).shard(0, 1), model.weights[layer], model.opt_states[layer])")),
    changed("wsdp", "the sum cut to the shard", ("        model.weights[layer], model.opt_states[layer] = model.update(\n            layer, grad,",
            "        model.weights[layer], model.opt_states[layer] = model.update(\n            layer, grad.shard(model.rank, model.RANKS),")),
    changed("wsdp", "loaded in two halves of a shard", ("""        model.weights[layer], model.opt_states[layer] = model.load_weights(
            layer, model.rank, model.RANKS
        )
""", """        one, two = (model.load_weights(layer, 2 * model.rank + half, 2 * model.RANKS) for half in (0, 1))
        model.weights[layer], model.opt_states[layer] = one[0].combine(two[0]), one[1].combine(two[1])
""")),
    changed("ddp", "the honest zero added", ("        grad = await model.allreduce(grad, layer)", "        grad = await model.allreduce(grad + model.fake_grad(layer, []), layer)")),
    changed("fsdp", "final weights set at the very end", ("        model.set_final_weight(layer, model.weights[layer])\n", ""),
            ("    return model", "    for layer, weight in model.weights.items():\n        model.set_final_weight(layer, weight)\n    return model")),
    changed("replica_fsdp", "states loaded as eighths", ("model.weights[layer], state = model.load_weights(layer, shard, shards)", "model.weights[layer], _ = model.load_weights(layer, shard, shards)"),
            ("state.shard(replica, replicas)", "model.load_weights(layer, shard * replicas + replica, shards * replicas)[1]")),
    changed("replica_fsdp", "a quarter summed across and cut", ('grad = await model.scatterreduce(model.grad_weights.pop(layer), layer, axis="replica")', 'grad = await model.allreduce(model.grad_weights.pop(layer), layer, axis="replica")')),
    changed("fsdp", "zeros added", ("model.scatterreduce(grad, layer)", "model.scatterreduce(grad + model.fake_grad(layer, []), layer)")),
    # -- asyncio inside a rank ------------------------------------------------------------------------------------------
    changed("fsdp", "ensure_future", ("await model.allgather(model.weights[layer], layer)", "await asyncio.ensure_future(model.allgather(model.weights[layer], layer))")),
    changed("fsdp", "create_task of a coroutine", ("await model.scatterreduce(grad, layer)", "await asyncio.create_task(reduced(model, grad, layer))"),
            ("async def fsdp", "async def reduced(model, grad, layer):\n    return await model.scatterreduce(grad, layer)\n\nasync def fsdp")),
    changed("wsdp", "gather of one call", ("await model.allgather(model.weights[layer], layer)", "(await asyncio.gather(model.allgather(model.weights[layer], layer)))[0]")),
    changed("pipeline", "wait_for and shield", ("await model.receive(src=model.rank - 1)", "await asyncio.wait_for(asyncio.shield(model.receive(src=model.rank - 1)), 60)")),
    changed("ddp", "sleep between layers", ("        grad = await model.allreduce(grad, layer)", "        await asyncio.sleep(0)\n        grad = await model.allreduce(grad, layer)\n        await asyncio.sleep(5)")),
    changed("gpipe", "receive from anyone where there is one", ("await model.receive(src=model.rank - 1)", "await model.receive()")),
    changed("pipeline", "receive from anyone", ("model.receive(src=model.rank - 1)", "model.receive()"), ("model.receive(src=model.rank + 1)", "model.receive()")),
    changed("fsdp", "a task group", ("        model.grad_weights[layer] = await model.scatterreduce(grad, layer)", "        async with asyncio.TaskGroup() as group:\n            task = group.create_task(reduced(model, grad, layer))\n        model.grad_weights[layer] = task.result()"),
            ("async def fsdp", "async def reduced(model, grad, layer):\n    return await model.scatterreduce(grad, layer)\n\nasync def fsdp")),
    changed("ddp", "an async context manager", ("        grad = await model.allreduce(grad, layer)", "        async with summed(model, grad, layer) as grad:\n            pass"),
            ("async def ddp", "@contextlib.asynccontextmanager\nasync def summed(model, grad, layer):\n    yield await model.allreduce(grad, layer)\n\nasync def ddp")),
    changed("wsdp", "an async generator of weights", ("    for layer in range(model.LAYERS):\n        weight = await model.allgather(model.weights[layer], layer)\n        model.activations[layer + 1]",
            "    async for layer, weight in gathered(model):\n        model.activations[layer + 1]"),
            ("async def wsdp", "async def gathered(model):\n    for layer in range(model.LAYERS):\n        yield layer, await model.allgather(model.weights[layer], layer)\n\nasync def wsdp")),
    changed("ddp", "a lock and an event", ("        grad = await model.allreduce(grad, layer)", "        async with lock:\n            grad = await model.allreduce(grad, layer)\n        event.set()\n        await event.wait()"),
            ("    for layer in range(model.LAYERS):\n        model.weights[layer], model.opt", "    lock, event = asyncio.Lock(), asyncio.Event()\n    for layer in range(model.LAYERS):\n        model.weights[layer], model.opt")),
    changed("pipeline_fsdp", "the machine asked for every name it has", ("    return model", "    assert model.rank_at() == model.rank and len(model.storage()) == 5 and model.log and model.time\n    return model")),
    changed("gpipe", "sends awaited later", ("            await model.pass_to(model.rank + 1, model.activations.pop((end, mb)))", "            sends.append(model.pass_to(model.rank + 1, model.activations.pop((end, mb))))"),
            ("    for mb in range(model.BATCHES):\n        if is_first", "    sends = []\n    for mb in range(model.BATCHES):\n        if is_first"),
            ("    for mb in range(model.BATCHES):\n        if is_last", "    for send in sends:\n        await send\n    for mb in range(model.BATCHES):\n        if is_last")),
    # -- written out --------------------------------------------------------------------------------------------------------
    whole("basic", "recursion", """
def basic(model):
    def train(layer, x):
        if layer == model.LAYERS:
            return model.loss(x)
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
        model.activations[layer] = x
        g = train(layer + 1, model.forward(layer, x, model.weights[layer]))
        grad, g = model.backward(layer, model.activations.pop(layer), g, model.weights[layer])
        model.grad_activations[0] = g
        model.weights[layer], model.opt_states[layer] = model.update(layer, grad, model.weights[layer], model.opt_states[layer])
        model.set_final_weight(layer, model.weights[layer])
        return model.grad_activations.pop(0)
    train(0, model.get_activation(range(model.BATCHES)))
"""),
    whole("ddp", "a class around the model", """
@dataclasses.dataclass
class Rank:
    model: Model

    def load(self):
        for l in self.layers:
            self.model.weights[l], self.model.opt_states[l] = self.model.load_weights(l)

    @property
    def layers(self):
        return range(self.model.LAYERS)

    def up(self):
        m = self.model
        m.activations[0] = m.get_activation([m.rank])
        for l in self.layers:
            m.activations[l + 1] = m.forward(l, m.activations[l], m.weights[l])
        m.grad_activations["g"] = m.loss(m.activations.pop(m.LAYERS))

    async def down(self):
        m = self.model
        for l in reversed(self.layers):
            g, m.grad_activations["g"] = m.backward(l, m.activations.pop(l), m.grad_activations.pop("g"), m.weights[l])
            g = await m.allreduce(g, l)
            m.weights[l], m.opt_states[l] = m.update(l, g, m.weights[l], m.opt_states[l])
            m.set_final_weight(l, m.weights[l])


async def ddp(model):
    rank = Rank(model)
    rank.load()
    rank.up()
    await rank.down()
"""),
    whole("fsdp", "as short as it goes", """
async def fsdp(m):
    n, L = m.RANKS, range(m.LAYERS)
    for l in L: m.weights[l], m.opt_states[l] = m.load_weights(l, m.rank, n)
    m.activations[0] = m.get_activation([m.rank])
    for l in L: m.activations[l + 1] = m.forward(l, m.activations[l], await m.allgather(m.weights[l], l))
    m.grad_activations[0] = m.loss(m.activations.popitem()[1])
    for l in L[::-1]:
        w = await m.allgather(m.weights[l], l)
        g, m.grad_activations[0] = m.backward(l, m.activations.pop(l), m.grad_activations.pop(0), w)
        m.grad_weights[l] = await m.scatterreduce(g, l)
    for l in L:
        m.weights[l], m.opt_states[l] = m.update(l, m.grad_weights.pop(l), m.weights[l], m.opt_states[l])
        m.set_final_weight(l, m.weights[l])
"""),
    # -- programs repaired ----------------------------------------------------------------------------------------
    *(changed(name, "repaired") for name in REPAIRS),
    changed("repair_skip", "a zero only where there is nothing", ("        grad = model.fake_grad(layer, [])\n        if busy:", "        if not busy:\n            grad = model.fake_grad(layer, [])\n        else:")),
    changed("repair_twice", "summed with the last micro-batch", ("model.grad_weights[layer] = grad\n", "model.grad_weights[layer] = await model.allreduce(grad, layer) if batch >= model.RANKS else grad\n"), ("grad = await model.allreduce(model.grad_weights.pop(layer), layer)", "grad = model.grad_weights.pop(layer)")),
    changed("repair_deadlock", "says from whom", ("await model.receive()", "await model.receive(src=1 - model.rank)")),
    changed("repair_local", "sums under the key of the last micro-batch", ("sums = model.grad_weights", "sums, total = model.grad_weights, {}"), ("sums[layer] = sums[layer] + grad if layer in sums else grad", "sums[layer, batch] = grad\n            if batch:\n                sums[layer, batch] = sums.pop((layer, batch - 1)) + sums[layer, batch]"), ("sums.pop(layer)", "sums.pop((layer, model.BATCHES - 1))")),
    changed("repair_groups", "pieces stored, then summed across", ('grad = await model.scatterreduce(grad, layer, axis="shard")\n        grad = await model.allreduce(grad, layer, axis="replica")\n', 'model.grad_weights[layer] = await model.scatterreduce(grad, layer, axis="shard")\n        grad = await model.allreduce(model.grad_weights.pop(layer), layer, axis="replica")\n')),
    changed("repair_quiet", "dealt round and round", ("mine = range(model.rank * share, (model.rank + 1) * share)", "mine = range(model.rank, share * model.RANKS, model.RANKS)")),
    changed("repair_bargain", "the last weight is kept, which is used again at once", ("        weight = await model.allgather(model.weights[layer], layer)\n        ### BROKEN\n        # weight = model", "        if layer < model.LAYERS - 1:\n            weight = await model.allgather(model.weights[layer], layer)\n        else:\n            weight = model.weights.pop('whole')\n        ### BROKEN\n        # weight = model"), ("        model.activations[layer + 1] =", "        if layer == model.LAYERS - 1:\n            model.weights['whole'] = weight\n        model.activations[layer + 1] =")),
    changed("repair_straggler", "as far as the speed allows", ("    mine = range(model.RANKS - 1 - model.rank, model.BATCHES, model.RANKS)\n", """\
    until = [0.0] * model.RANKS  # when each rank is done with what it has so far
    mine = []
    for batch in range(model.BATCHES):
        soon = [until[rank] + (1.1 if rank == 0 else 1.0) for rank in range(model.RANKS)]
        rank = min(range(model.RANKS), key=lambda one: (soon[one], -one))
        until[rank] = soon[rank]
        if rank == model.rank:
            mine.append(batch)
""")),
    changed("repair_book", "summed across with the last micro-batch", ('            grad = await model.scatterreduce(grad, layer, axis="shard")\n            ### BROKEN', '            grad = await model.scatterreduce(grad, layer, axis="shard")\n            if batch == (model.rank + 1) * share - 1 and layer in model.grad_weights:\n                grad = await model.allreduce(model.grad_weights.pop(layer) + grad, layer, axis="replica")\n            ### BROKEN'), ('grad = await model.allreduce(model.grad_weights.pop(layer), layer, axis="replica")', "grad = model.grad_weights.pop(layer)")),
    *ELSEWHERE,
    *STYLES,
    *NEEDLESS,
    *of_each_puzzle("HONEST"),
]  # fmt: skip
