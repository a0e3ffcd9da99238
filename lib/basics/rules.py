"""The rules that a program can break, and the sentence that each is told with.

A rule is known by its name: whoever asks which mistake an error is about compares names, never texts. What stands in
braces in a sentence are facts that the error carries.
"""

from collections.abc import Mapping

ARGUMENT = "argument"
"""The rule of errors about arguments of functions, options and files. Their problem is given as a free text."""

RULES: Mapping[str, str] = {
    # of a rank's dictionaries and coroutines
    "not_stored": "nothing is stored in {store} under {key}",
    "forgot_await": "{what}: did you forget `await`?",
    # of what a learner's code gives to its model, and does with tensors
    "store_empty": "{store} is empty",
    "not_storable": "only tensors can be stored in {store}",
    "saved_elsewhere": "inner activations are not stored in {store}",
    "kind_mismatch": "{name} must be {kind}",
    "not_brought": "{verb} takes {kind}",
    "not_sent": "pass_to sends one tensor, or a text, a number or None",
    "list_alone": "a list of {one} comes with the list of their {other}",
    "not_added": "{one} does not add up with {other}",
    "not_joined": "combine joins shards of one {kind}",
    "frozen": "tensors are frozen: {name} cannot be {done}",
    "replaced": "model.{name} cannot be replaced",
    # of a run
    "raised": "the function raised {error}",
    "cancelled": "the function was cancelled by itself",
    "out_of_time": "the run did not end within {limit}",
}
