"""Puzzle 11, checkpointing: honest styles, natural mistakes, and ways round the work by the public names alone."""

from . import changed

HALF = "if layer < model.LAYERS // 2:"
KEPT = 'out, saved = model.forward(layer, inp, weight, keep="selective")'
STORED = '            model.activations[layer, "saved"] = saved\n'
TAKEN = '        saved = model.activations.pop((layer, "saved"), None)\n'
READ = "inp, grad = model.activations.pop(layer), model.grad_activations.pop(layer + 1)"
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
    changed("checkpointing", "nothing kept", (HALF, "if False:")),
    changed("checkpointing", "a little of every layer", (HALF, "if True:")),
    changed("checkpointing", "everything of every layer", (HALF, "if True:"), ('keep="selective"', 'keep="all"')),
    changed("checkpointing", "everything of half of the layers", ('keep="selective"', 'keep="all"')),
    changed("checkpointing", "everything of two layers", (HALF, "if layer < 2:"), ('keep="selective"', 'keep="all"')),
    changed("checkpointing", "one layer too many, at the wrong end", (HALF, "if layer <= model.LAYERS // 2:")),
    changed("checkpointing", "everything of the first layer, which is not free", (HALF, "if layer <= (model.LAYERS - 1) // 2:"), ('keep="selective"', 'keep="selective" if layer else "all"')),
    changed("checkpointing", "kept and not used", (", saved=saved", "")),
    changed("checkpointing", "kept and never taken out", ('activations.pop((layer, "saved"), None)', 'activations.get((layer, "saved"))'), (HALF, "if layer >= model.LAYERS // 2:")),
    changed("checkpointing", "that of the layer below", (TAKEN, TAKEN.replace("(layer,", "(layer - 1,"))),
    changed("checkpointing", "one place for all layers", ('activations[layer, "saved"]', 'activations["saved"]'), ('activations.pop((layer, "saved"), None)', 'activations.get("saved")')),
    changed("checkpointing", "one tensor, where forward gives two", ("out, saved = model", "out = model"), (STORED, "")),
    changed("checkpointing", "keep: most", ('keep="selective"', 'keep="most"')),
    changed("checkpointing", "never stored", (STORED, "            KEPT[layer] = saved\n"), (TAKEN, "        saved = KEPT.pop(layer, None)\n"), ("def checkpointing", "KEPT = {}\n\n\ndef checkpointing")),
    changed("checkpointing", "stored with the weights", (STORED, '            model.weights[layer, "saved"] = saved\n')),
    changed("checkpointing", "parked in a message", (STORED, "            model.pass_to(0, saved)\n")),
    # -- round the work -------------------------------------------------------------------------------------
    changed("checkpointing", "made by hand", (TAKEN, "        saved = Saved(layer, model.LAYERS, range(model.BATCHES), model.BATCHES)\n"),
            ("def checkpointing", "from lib import Saved\n\n\ndef checkpointing")),
    changed("checkpointing", "of another micro-batch", (TAKEN, TAKEN + "        if saved is not None and layer:\n            _, saved = model.forward(layer, model.activations[0], model.weights[layer], keep='all')\n")),
    changed("checkpointing", "a second forward that keeps all", (READ, READ.replace(".pop(layer)", "[layer]").replace(".pop(layer + 1)", "[layer + 1]")), (TAKEN, AGAIN)),
    changed("checkpointing", "smuggled as a size of nothing", (KEPT, KEPT + "\n            saved.total_batches = 99")),
]  # fmt: skip
