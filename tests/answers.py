"""Answers as a learner writes them who has read the notebooks only: right, though not always fast or small enough. The
tests make the mistakes of such learners in them."""

from __future__ import annotations

from tests.corpus import Program, whole

ANSWERS = {
    "context_parallel": """
async def context_parallel(model: Model) -> Model:
    n, r, L = model.RANKS, model.rank, model.LAYERS
    acts, grads = model.activations, model.grad_activations
    for l in range(L):
        model.weights[l], model.opt_states[l] = model.load_weights(l)
    acts[0] = model.get_activation([0]).shard(r, n)
    for l in range(L):
        w = model.weights[l]
        acts["att", l], acts["kv", l] = model.project(l, acts[l], w)
        whole = await model.allgather(acts["kv", l], l)
        acts["att", l] = model.attend(l, acts["att", l], whole)
        acts[l + 1] = model.rest(l, acts[l], w, acts["att", l])
    grads[L] = model.loss(acts.pop(L), sliced=True)
    sums = {}
    for l in reversed(range(L)):
        w = model.weights[l]
        grads["att"] = model.backward_rest(l, acts[l], grads[l + 1], w, acts.pop(("att", l)))
        whole = await model.allgather(acts.pop(("kv", l)), l)
        grads["att"], kv_grad = model.backward_attend(l, grads["att"], whole)
        grads["kv"] = await model.scatterreduce(kv_grad, l)
        model.grad_weights[l], grads[l] = model.backward_project(
            l, acts.pop(l), grads.pop(l + 1), w, grads.pop("att"), grads.pop("kv")
        )
        sums[l] = model.allreduce(model.grad_weights.pop(l), l)
        if l + 1 in sums:
            await finish(model, l + 1, sums.pop(l + 1))
    await finish(model, 0, sums.pop(0))
    return model


async def finish(model, l, total):
    grad = await total
    model.weights[l], model.opt_states[l] = model.update(l, grad, model.weights[l], model.opt_states[l])
    model.set_final_weight(l, model.weights[l])
""",
    "ring_attention": """
async def ring_attention(model: Model) -> Model:
    n, r, L = model.RANKS, model.rank, model.LAYERS
    after, before = (r + 1) % n, (r - 1) % n
    acts, grads = model.activations, model.grad_activations
    for l in range(L):
        model.weights[l], model.opt_states[l] = model.load_weights(l)
    inp = model.get_activation([0])
    acts[0] = inp.shard(r, 2 * n).combine(inp.shard(2 * n - 1 - r, 2 * n))
    for l in range(L):
        w = model.weights[l]
        acts["att", l], acts["kv", l] = model.project(l, acts[l], w)
        kv = acts["kv", l]
        for step in range(n):
            acts["moving"] = kv
            if step < n - 1:
                send = model.pass_to(after, acts["moving"])
            acts["att", l] = model.attend(l, acts["att", l], acts["moving"])
            if step < n - 1:
                kv = await model.receive(before)
                await send
        acts.pop("moving")
        acts[l + 1] = model.rest(l, acts[l], w, acts["att", l])
    grads[L] = model.loss(acts.pop(L), sliced=True)
    for l in reversed(range(L)):
        w = model.weights[l]
        grads["att"] = model.backward_rest(l, acts[l], grads[l + 1], w, acts.pop(("att", l)))
        acts["moving"] = acts.pop(("kv", l))
        for step in range(n):
            if step < n - 1:
                send = model.pass_to(after, acts["moving"])
            grads["att"], mine = model.backward_attend(l, grads["att"], acts["moving"])
            grads["mine"] = mine
            if step > 0:
                theirs = await model.receive(before)
                grads["mine"] = theirs + grads["mine"]
            go = model.pass_to(after, grads["mine"])
            if step < n - 1:
                acts["moving"] = await model.receive(before)
                await send
            await go
        grads["kv"] = await model.receive(before)
        acts.pop("moving")
        grads.pop("mine")
        model.grad_weights[l], grads[l] = model.backward_project(
            l, acts.pop(l), grads.pop(l + 1), w, grads.pop("att"), grads.pop("kv")
        )
        grad = await model.allreduce(model.grad_weights.pop(l), l)
        model.weights[l], model.opt_states[l] = model.update(l, grad, w, model.opt_states[l])
        model.set_final_weight(l, model.weights[l])
    return model
""",
    "expert_parallel": """
async def expert_parallel(model: Model) -> Model:
    r, n, L = model.rank, model.RANKS, model.LAYERS
    acts, grads = model.activations, model.grad_activations
    for l in range(L):
        if model.experts(l):
            model.weights[l], model.opt_states[l] = model.load_weights(l, r, n)
        else:
            model.weights[l], model.opt_states[l] = model.load_weights(l)
    mine = list(range(r, model.BATCHES, n))
    acts[0] = model.get_activation(mine)
    for l in range(L):
        if model.experts(l):
            acts["tokens", l] = await model.alltoall(acts.pop(l), l)
            out = model.expert(l, acts["tokens", l], model.weights[l])
            acts[l + 1] = await model.alltoall(out, l + 1)
        else:
            acts[l + 1] = model.forward(l, acts[l], model.weights[l])
    grads["g"] = model.loss(acts.pop(L))
    for l in reversed(range(L)):
        if model.experts(l):
            grad = await model.alltoall(grads.pop("g"), l)
            model.grad_weights[l], grad = model.backward_expert(l, acts.pop(("tokens", l)), grad, model.weights[l])
            grads["g"] = await model.alltoall(grad, l - 1)
            of_weight = model.grad_weights.pop(l)
        else:
            of_weight, grads["g"] = model.backward(l, acts.pop(l), grads.pop("g"), model.weights[l])
            of_weight = await model.allreduce(of_weight, l)
        model.weights[l], model.opt_states[l] = model.update(l, of_weight, model.weights[l], model.opt_states[l])
        model.set_final_weight(l, model.weights[l])
    return model
""",
    "two_batch_overlap": """
async def two_batch_overlap(model: Model) -> Model:
    r, n, L = model.rank, model.RANKS, model.LAYERS
    acts, grads = model.activations, model.grad_activations
    for l in range(L):
        piece = (r, n) if model.experts(l) else (0, 1)
        model.weights[l], model.opt_states[l] = model.load_weights(l, *piece)
    mine = list(range(r, model.BATCHES, n))
    halves = (mine[0::2], mine[1::2])
    acts[0, 0] = model.get_activation(halves[0])
    acts[0, 1] = model.get_activation(halves[1])
    home = {}
    for l in range(0, L, 2):
        out = {}
        for b in (0, 1):
            if l > 0:
                acts[l, b] = await home.pop(b)
            x = model.forward(l, acts[l, b], model.weights[l])
            out[b] = model.alltoall(x, l + 1)
        for b in (0, 1):
            acts["tokens", l + 1, b] = await out.pop(b)
            y = model.expert(l + 1, acts["tokens", l + 1, b], model.weights[l + 1])
            home[b] = model.alltoall(y, l + 2)
    back = {}
    for b in (0, 1):
        acts[L, b] = await home.pop(b)
        g = model.loss(acts.pop((L, b)))
        back[b] = model.alltoall(g, L - 1)
    for l in reversed(range(1, L, 2)):
        come = {}
        for b in (0, 1):
            grads["tokens", b] = await back.pop(b)
            tokens, g = acts.pop(("tokens", l, b)), grads.pop(("tokens", b))
            w, g = model.backward_expert(l, tokens, g, model.weights[l])
            add(model, l, w)
            come[b] = model.alltoall(g, l - 1)
        step(model, l, model.grad_weights.pop(l))
        for b in (0, 1):
            grads[b] = await come.pop(b)
            w, g = model.backward(l - 1, acts.pop((l - 1, b)), grads.pop(b), model.weights[l - 1])
            add(model, l - 1, w)
            if l > 1:
                back[b] = model.alltoall(g, l - 2)
        total = await model.allreduce(model.grad_weights.pop(l - 1), l - 1)
        step(model, l - 1, total)
    return model


def add(model, l, w):
    model.grad_weights[l] = model.grad_weights[l] + w if l in model.grad_weights else w


def step(model, l, grad):
    model.weights[l], model.opt_states[l] = model.update(l, grad, model.weights[l], model.opt_states[l])
    model.set_final_weight(l, model.weights[l])
""",
    "zbv": """
async def zbv(model: Model) -> Model:
    r, n, L = model.rank, model.RANKS, model.LAYERS
    per = L // (2 * n)
    down = list(range(r * per, (r + 1) * per))
    up = list(range((2 * n - 1 - r) * per, (2 * n - r) * per))
    acts, grads = model.activations, model.grad_activations
    for l in down + up:
        model.weights[l], model.opt_states[l] = model.load_weights(l)

    async def forward(layers, b):
        for l in layers:
            if l == 0:
                acts[l, b] = model.get_activation([b])
            elif l == down[0]:
                acts[l, b] = await model.receive(r - 1)
            elif l == up[0] and r < n - 1:
                acts[l, b] = await model.receive(r + 1)
            acts[l + 1, b] = model.forward(l, acts[l, b], model.weights[l])
        last = layers[-1]
        if layers == down and r < n - 1:
            await model.pass_to(r + 1, acts.pop((last + 1, b)))
        if layers == up and r > 0:
            await model.pass_to(r - 1, acts.pop((last + 1, b)))
        if last == L - 1:
            grads[L, b] = model.loss(acts.pop((L, b)))

    async def backward(layers, b):
        last = layers[-1]
        if layers == up and r > 0:
            grads[last + 1, b] = await model.receive(r - 1)
        if layers == down and r < n - 1:
            grads[last + 1, b] = await model.receive(r + 1)
        for l in reversed(layers):
            grads[l, b] = model.backward_input(l, acts[l, b], grads[l + 1, b], model.weights[l])
        first = layers[0]
        if layers == up and r < n - 1:
            await model.pass_to(r + 1, grads.pop((first, b)))
        if layers == down and r > 0:
            await model.pass_to(r - 1, grads.pop((first, b)))
        if first == 0:
            del grads[0, b]

    def weight(layers, b):
        for l in layers:
            w = model.backward_weight(l, acts.pop((l, b)), grads.pop((l + 1, b)), model.weights[l])
            model.grad_weights[l] = model.grad_weights[l] + w if l in model.grad_weights else w

    for b in range(model.BATCHES):
        await forward(down, b)
        await forward(up, b)
    for b in range(model.BATCHES):
        await backward(up, b)
        await backward(down, b)
        weight(up, b)
        weight(down, b)
    for l in down + up:
        model.weights[l], model.opt_states[l] = model.update(
            l, model.grad_weights.pop(l), model.weights[l], model.opt_states[l]
        )
        model.set_final_weight(l, model.weights[l])
    return model
""",
    "compose": """
async def compose(model: Model) -> Model:
    copy, copies = model.axis_index("x"), model.axis_size("x")
    stage = model.axis_index("y") * model.axis_size("z") + model.axis_index("z")
    stages = model.axis_size("y") * model.axis_size("z")
    per = model.LAYERS // stages
    mine = list(range(stage * per, (stage + 1) * per))
    first, last = stage == 0, stage == stages - 1
    acts, grads = model.activations, model.grad_activations
    for l in mine:
        model.weights[l], _ = model.load_weights(l)
        _, model.opt_states[l] = model.load_weights(l, copy, copies)
    todo = list(range(copy, model.BATCHES, copies))

    async def forward(b):
        acts[mine[0], b] = model.get_activation([b]) if first else await model.receive(model.rank - 1)
        for l in mine:
            acts[l + 1, b] = model.forward(l, acts[l, b], model.weights[l])
        if last:
            grads[mine[-1] + 1, b] = model.loss(acts.pop((mine[-1] + 1, b)))
        else:
            await model.pass_to(model.rank + 1, acts.pop((mine[-1] + 1, b)))

    async def backward(b):
        if not last:
            grads[mine[-1] + 1, b] = await model.receive(model.rank + 1)
        for l in reversed(mine):
            g, grads[l, b] = model.backward(l, acts.pop((l, b)), grads.pop((l + 1, b)), model.weights[l])
            model.grad_weights[l] = model.grad_weights[l] + g if l in model.grad_weights else g
        if not first:
            await model.pass_to(model.rank - 1, grads.pop((mine[0], b)))
        else:
            del grads[mine[0], b]

    ahead = min(stages - stage, len(todo))
    for b in todo[:ahead]:
        await forward(b)
    for i, b in enumerate(todo):
        await backward(b)
        if i + ahead < len(todo):
            await forward(todo[i + ahead])
    for l in mine:
        grad = await model.scatterreduce(model.grad_weights.pop(l), l, axis="x")
        piece = model.weights.pop(l).shard(copy, copies)
        piece, model.opt_states[l] = model.update(l, grad, piece, model.opt_states[l])
        model.set_final_weight(l, await model.allgather(piece, l, axis="x"))
    return model
""",
    "pipeline_fsdp": """
async def pipeline_fsdp(model: Model) -> Model:
    r, n = model.rank, model.RANKS
    pipe, stage = r // 4, r % 4
    per = model.LAYERS // 4
    mine = range(stage * per, (stage + 1) * per)
    for l in range(model.LAYERS):
        model.weights[l], model.opt_states[l] = model.load_weights(l, r, n)
    if stage == 0:
        model.activations[0] = model.get_activation([pipe])
    for l in range(model.LAYERS):
        if l == mine[0] and stage > 0:
            model.activations[l] = await model.receive(r - 1)
        whole = await model.allgather(model.weights[l], l)
        if l in mine:
            model.activations[l + 1] = model.forward(l, model.activations[l], whole)
            if l == mine[-1] and stage < 3:
                await model.pass_to(r + 1, model.activations.pop(l + 1))
    if stage == 3:
        model.grad_activations[model.LAYERS] = model.loss(model.activations.pop(model.LAYERS))
    for l in reversed(range(model.LAYERS)):
        if l == mine[-1] and stage < 3:
            model.grad_activations[l + 1] = await model.receive(r + 1)
        whole = await model.allgather(model.weights[l], l)
        if l in mine:
            grad, model.grad_activations[l] = model.backward(
                l, model.activations.pop(l), model.grad_activations.pop(l + 1), whole
            )
            model.grad_weights[l] = grad
            if l == mine[0] and stage > 0:
                await model.pass_to(r - 1, model.grad_activations.pop(l))
            grad = model.grad_weights.pop(l)
        else:
            grad = model.fake_grad(l, [])
        grad = await model.scatterreduce(grad, l)
        model.weights[l], model.opt_states[l] = model.update(l, grad, model.weights[l], model.opt_states[l])
        model.set_final_weight(l, model.weights[l])
    return model
""",
    "wsdp": """
async def wsdp(model: Model) -> Model:
    for l in range(model.LAYERS):
        model.weights[l], model.opt_states[l] = model.load_weights(l, model.rank, model.RANKS)
    model.activations[0] = model.get_activation([model.rank])
    for l in range(model.LAYERS):
        whole = await model.allgather(model.weights[l], l)
        model.activations[l + 1] = model.forward(l, model.activations[l], whole)
    grad_out = model.loss(model.activations.pop(model.LAYERS))
    model.grad_activations["g"] = grad_out
    for l in reversed(range(model.LAYERS)):
        whole = await model.allgather(model.weights[l], l)
        grad, model.grad_activations["g"] = model.backward(
            l, model.activations.pop(l), model.grad_activations.pop("g"), whole
        )
        grad = await model.allreduce(grad, l)
        model.weights[l], model.opt_states[l] = model.update(l, grad, model.weights[l], model.opt_states[l])
        model.set_final_weight(l, model.weights[l])
    return model
""",
}


def learned(puzzle: str, name: str, *edits: tuple[str, str]) -> Program:
    """A learner's answer to a puzzle with every ``old`` in it replaced by ``new``."""
    source = ANSWERS[puzzle]
    for old, new in edits:
        assert old in source, f"{puzzle}, {name}: {old!r} is not in the answer"
        source = source.replace(old, new)
    return whole(puzzle, name, source)
