"""Puzzle 19, buckets: honest styles, natural mistakes, and ways round the work by the public names alone."""

from . import changed

FULL = "if len(model.grad_weights) == 6 or layer == 0:"
TAKEN = "bucket = [model.grad_weights.pop(one) for one in layers]"
CALL = "sums.append(model.allreduce(bucket, layers))"
NAMES = "layers = list(model.grad_weights)\n"
STORED = "        for grad in await call:\n            model.grad_weights[grad.layer] = grad\n"
INPUT = "model.get_activation([model.rank])"

HONEST = [
    changed("buckets", "buckets end at every sixth layer", (FULL, "if layer % 6 == 0:")),
    changed("buckets", "five layers in each", (FULL, FULL.replace("6", "5"))),
    changed("buckets", "three layers in each of the first buckets", (FULL, "if len(model.grad_weights) == (3 if layer > 16 else 6) or layer == 0:")),
    changed("buckets", "as many buckets as the formula says", (FULL, "if len(model.grad_weights) * round((2 / 3 * model.LAYERS) ** 0.5 + 0.5) >= model.LAYERS or layer == 0:")),
    changed("buckets", "in a dictionary by layer", (STORED, "        model.grad_weights.update((grad.layer, grad) for grad in await call)\n")),
    changed("buckets", "layers in the bucket from low to high", (NAMES, "layers = sorted(model.grad_weights)\n")),
    changed("buckets", "every name is written out", (CALL, "sums.append(model.allreduce(v=bucket, layer=layers, axis=None))")),
]  # fmt: skip

MISTAKES = [
    changed("buckets", "a call for each layer", (FULL, "if True:")),
    changed("buckets", "one call at the end", (FULL, "if layer == 0:")),
    changed("buckets", "two buckets", (FULL, FULL.replace("6", "12"))),
    changed("buckets", "all sums first, then all updates", (STORED, STORED + "    if True:\n")),
    changed("buckets", "buckets that are awaited at once", (CALL, "grads = await model.allreduce(bucket, layers)\n            model.grad_weights.update((('sum', grad.layer), grad) for grad in grads)\n            for one in layers:\n                model.weights[one], model.opt_states[one] = model.update(one, model.grad_weights.pop(('sum', one)), model.weights[one], model.opt_states[one])\n                model.set_final_weight(one, model.weights[one])")),
    changed("buckets", "the layers as one number", (CALL, "sums.append(model.allreduce(bucket, layer))")),
    changed("buckets", "gradients and layers in different orders", (CALL, "sums.append(model.allreduce(bucket, layers[::-1]))")),
    changed("buckets", "the sums are not stored", (STORED, ""), ("for layer in list(model.grad_weights):\n            grad = model.grad_weights.pop(layer)\n", "for grad in await call:\n            layer = grad.layer\n")),
    changed("buckets", "no wait", ("grad in await call:", "grad in [call]:")),
    changed("buckets", "reduce-scatter", (CALL, "sums.append(model.scatterreduce(bucket, layers))")),
    changed("buckets", "all micro-batches on every rank", (INPUT, "model.get_activation(range(model.BATCHES))")),
    changed("buckets", "states not kept", ("model.weights[layer], model.opt_states[layer] = model.update(", "model.weights[layer], _ = model.update(")),
    # -- round the work -------------------------------------------------------------------------------------
    changed("buckets", "gradients made up instead of summed", ("grad = model.grad_weights.pop(layer)\n", "grad = model.grad_weights[layer] = model.fake_grad(layer, range(model.BATCHES))\n            del model.grad_weights[layer]\n")),
    changed("buckets", "the other micro-batches made up before the call", (TAKEN, "others = [mb for mb in range(model.BATCHES) if mb != model.rank]\n            bucket = [model.grad_weights.pop(one) + model.fake_grad(one, others) for one in layers]")),
    changed("buckets", "a layer twice in a bucket", (CALL, "sums.append(model.allreduce(bucket + bucket[:1], layers + layers[:1]))")),
    changed("buckets", "sums of weights instead of gradients", (STORED, STORED.replace("await call", "call.result()"))),
    changed("buckets", "a model of one layer is claimed", ("    sums = []\n", "    sums = []\n    model.LAYERS = 1\n")),
]  # fmt: skip
