"""What Python says of a learner's own code, and what is said beside it."""

from __future__ import annotations

import pytest

from lib import grade
from tests.corpus import Program, changed
from tests.test_corpus import function

CALL = "            layer, model.activations[layer], model.weights[layer]\n        )"
LIST = ("    model.activations[0] = ", "    acts = [None] * model.LAYERS\n    model.activations[0] = ")
STORED = (CALL, f"{CALL}\n        acts[layer + 1] = model.activations[layer + 1]")
LOADED = "model.weights[layer], model.opt_states[layer] = model.load_weights(layer)"
SUM = "grad = await model.allreduce(grad, layer)"
CASES = {
    "a list of outputs": (changed("ddp", "", LIST, STORED), "it takes LAYERS + 1: [None] * (model.LAYERS + 1)", "on the rank"),
    "a name of a tuple": (changed("ddp", "", (LOADED, "both = model.load_weights(layer)\n        model.weights[layer], model.opt_states[layer] = both.weight, both.state")), "in this order: weight, opt_state = ...", "object has no"),
    "a mean": (changed("ddp", "", (SUM, f"grad = ({SUM[7:]}).mean()")), "leave out the mean", "division"),
    "a text as layer": (changed("ddp", "", (CALL, CALL.replace(" layer,", " str(layer),", 1))), "layers are numbers and no texts", "there is no layer"),
    "a sum over a tensor": (changed("ddp", "", (SUM, "grad = sum([await model.allreduce(one, layer) for one in grad])")), "adds up those of all ranks", "dictionaries"),
}  # fmt: skip


@pytest.mark.parametrize(("program", "said", "false"), CASES.values(), ids=CASES)
def test_an_error_of_python_says_what_to_write(program: Program, said: str, false: str) -> None:
    message = grade(function(program), program.puzzle).verdict.message
    assert said in message and false not in message.partition("instead:")[2], message
