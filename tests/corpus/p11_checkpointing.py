"""Puzzle 11, checkpointing: honest styles, natural mistakes, and ways round the work by the public names alone."""

from __future__ import annotations

from . import changed, whole

HALF = "if layer < model.LAYERS // 2:"
KEPT = 'out, saved = model.forward(layer, inp, weight, keep="selective")'
STORED = '            model.activations[layer, "saved"] = saved\n'
TAKEN = '        saved = model.activations.pop((layer, "saved"), None)\n'
USED = "model.weights[layer], saved=saved"
READ = "inp, grad = model.activations.pop(layer), model.grad_activations.pop(layer + 1)"
ONE_FOR_ALL = """
def checkpointing(model):
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
    for mb in range(model.BATCHES):
        train(model, mb)
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, model.grad_weights.pop(layer), model.weights[layer], model.opt_states[layer]
        )
        model.set_final_weight(layer, model.weights[layer])

def train(model, mb):
    acts, grads = model.activations, model.grad_activations
    acts[0] = model.get_activation([mb])
    for layer in range(model.LAYERS):
        if layer < model.LAYERS // 2 and mb == 0:
            out, acts[layer, "saved"] = model.forward(layer, acts[layer], model.weights[layer], keep="selective")
        else:
            out = model.forward(layer, acts[layer], model.weights[layer])
        acts[layer + 1] = out
    grads[model.LAYERS] = model.loss(acts.pop(model.LAYERS))
    for layer in reversed(range(model.LAYERS)):
        inp, grad, last = acts.pop(layer), grads.pop(layer + 1), mb == model.BATCHES - 1
        saved = acts.pop((layer, "saved"), None) if last else acts.get((layer, "saved"))
        made, grads[layer] = model.backward(layer, inp, grad, model.weights[layer], saved=saved)
        model.grad_weights[layer] = model.grad_weights.pop(layer) + made if mb else made
    del grads[0]
"""
AGAIN = """        model.activations["out"], model.activations["again"] = model.forward(layer, inp, model.weights[layer], keep="all")
        saved = model.activations["again"]
"""
INPUT = "    model.activations[0] = model.get_activation(range(model.BATCHES))\n"

HONEST = [
    changed("checkpointing", "the last half", (HALF, "if layer >= model.LAYERS - model.LAYERS // 2:")),
    changed("checkpointing", "every second layer", (HALF, "if layer % 2:")),
    changed("checkpointing", "all of the last layer is free", (HALF, "if layer >= (model.LAYERS - 1) // 2:"),
            ('keep="selective"', 'keep="all" if layer == model.LAYERS - 1 else "selective"')),
    changed("checkpointing", "kept under names of its own", ('model.activations[layer, "saved"] = saved', 'model.activations[f"inside {layer}"] = saved'),
            ('model.activations.pop((layer, "saved"), None)', 'model.activations.pop(f"inside {layer}", None)')),
    changed("checkpointing", "keep is None, said in words", (KEPT, 'out, saved = model.forward(layer, inp, weight, keep="selective")'),
            ("            out = model.forward(layer, inp, weight)\n", "            out = model.forward(layer, inp, weight, keep=None)\n")),
    changed("checkpointing", "updated as soon as there is a gradient",
            ("    for layer in range(model.LAYERS):\n        model.weights[layer], model.opt_states[layer] = model.update(", "        model.weights[layer], model.opt_states[layer] = model.update(")),
    changed("checkpointing", "a stack of what was kept", (INPUT, INPUT + "    stack = []\n"), (STORED, STORED + '            stack.append((layer, "saved"))\n'),
            (TAKEN, "        saved = model.activations.pop(stack.pop()) if layer < model.LAYERS // 2 else None\n")),
]  # fmt: skip

MISTAKES = [
    changed("checkpointing", "nothing kept", (HALF, "if False:"), says="over the target: 54 ticks"),
    changed("checkpointing", "a little of every layer", (HALF, "if True:"), says="over the target: 38,404,096 elements"),
    changed("checkpointing", "everything of every layer", (HALF, "if True:"), ('keep="selective"', 'keep="all"'), says="over the target: 96,075,776 elements"),
    changed("checkpointing", "everything of half of the layers", ('keep="selective"', 'keep="all"'), says="over the target: "),
    changed("checkpointing", "everything of two layers", (HALF, "if layer < 2:"), ('keep="selective"', 'keep="all"'), says="over the target: 52 ticks, target 48.18; 31,195,136 elements"),
    changed("checkpointing", "one layer too many, at the wrong end", (HALF, "if layer <= model.LAYERS // 2:"), says="over the target: 30,539,776 elements"),
    changed("checkpointing", "everything of the first layer, which is not free", (HALF, "if layer <= (model.LAYERS - 1) // 2:"), ('keep="selective"', 'keep="selective" if layer else "all"'), says="over the target: "),
    changed("checkpointing", "kept and not used", (", saved=saved", ""), says="over the target: 54 ticks"),
    changed("checkpointing", "kept and never taken out", ('activations.pop((layer, "saved"), None)', 'activations.get((layer, "saved"))'), (HALF, "if layer >= model.LAYERS // 2:"), says="over the target: "),
    changed("checkpointing", "that of the layer below", (TAKEN, TAKEN.replace("(layer,", "(layer - 1,")), says="the inner activations are of another layer"),
    changed("checkpointing", "one place for all layers", ('activations[layer, "saved"]', 'activations["saved"]'), ('activations.pop((layer, "saved"), None)', 'activations.get("saved")'),
            says="the inner activations are of another layer"),
    changed("checkpointing", "one tensor, where forward gives two", ("out, saved = model", "out = model"), (STORED, ""), says="only tensors can be stored in activations"),
    changed("checkpointing", "two names, where forward gives one tensor", (", keep=\"selective\"", ""), says="cannot unpack non-iterable Activation"),
    changed("checkpointing", "keep: most", ('keep="selective"', 'keep="most"'), says="unknown value for keep"),
    changed("checkpointing", "keep: True", ('keep="selective"', "keep=True"), says="unknown value for keep"),
    changed("checkpointing", "never stored", (STORED, "            KEPT[layer] = saved\n"), (TAKEN, "        saved = KEPT.pop(layer, None)\n"), ("def checkpointing", "KEPT = {}\n\n\ndef checkpointing"),
            says="was not stored when rank 0 issued"),
    changed("checkpointing", "stored with the weights", (STORED, '            model.weights[layer, "saved"] = saved\n'), says="inner activations are not stored in weights"),
    changed("checkpointing", "parked in a message", (STORED, "            model.pass_to(0, saved)\n"), says="pass_to takes no inner activations"),
    changed("checkpointing", "the input taken for what is inside", (TAKEN, "        saved = inp\n"), says="saved must be a Saved"),
    # -- round the work -------------------------------------------------------------------------------------
    changed("checkpointing", "made by hand", (TAKEN, "        saved = Saved(layer, model.LAYERS, range(model.BATCHES), model.BATCHES)\n"),
            ("def checkpointing", "from lib import Saved\n\n\ndef checkpointing"), says="is made up: no operation of this run computed it"),
    changed("checkpointing", "hidden among the gradients", (STORED, '            model.grad_weights[layer, "saved"] = saved\n'), says="inner activations are not stored in grad_weights"),
    changed("checkpointing", "hidden with the states, in a pair", (STORED, '            model.opt_states[layer, "saved"] = (saved, saved)\n'), says="in a place of its own"),
    changed("checkpointing", "of another micro-batch", (TAKEN, TAKEN + "        if saved is not None and layer:\n            _, saved = model.forward(layer, model.activations[0], model.weights[layer], keep='all')\n"),
            says="the input is that of layer 0"),
    whole("checkpointing", "one micro-batch's for all", ONE_FOR_ALL, says="the inner activations are of another micro-batch"),
    changed("checkpointing", "a second forward that keeps all", (READ, READ.replace(".pop(layer)", "[layer]").replace(".pop(layer + 1)", "[layer + 1]")), (TAKEN, AGAIN), says="over the target: 54 ticks"),
    changed("checkpointing", "smuggled as a size of nothing", (KEPT, KEPT + "\n            saved.total_batches = 99"), says="total_batches cannot be set"),
]  # fmt: skip
