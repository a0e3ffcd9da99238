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
    "not_storable": "{what} stored in {store}",
    "kind_mismatch": "{name} must be {kind}",
    "not_brought": "{verb} takes {kind}",
    "frozen": "{what} cannot be {done}",
    # of operands: what a tensor has to be
    "layer_mismatch": "{what} of layer {layer}",
    "mismatch": "{what} are of different {labels}",
    "saved_mismatch": "the inner activations are of another {what}",
    "incomplete": "{what} is {part}",
    "updated_before": "{what} has been updated already",
    "adapter_or_weight": "that is {given}, and not {wanted}",
    "adapter_mixed": "an adapter is updated with its own gradient and state, and a weight with its own",
    "loss_too_early": "`loss` reads the output of the last layer, and of no other",
    "missing_part": "{what} is missing {part}",
    "missing_keys": "the queries have not {met} {slices}",
    "nothing_beside": "there is no forward of another micro-batch just before it to overlap with",
    "no_experts": "layer {layer} is dense, it has no experts",
    "wrong_count": "micro-batch {batch} counts {count}, and has {tokens} of {total} tokens",
    "experts_not_divided": "{experts} experts are not dealt to {parts} in equal parts",
    # of parts and sums
    "out_of_range": "{what} is out of range",
    "too_many_pieces": "a tensor cannot be cut into so many pieces",
    "too_many_cuts": "tensors were cut into too many different numbers of pieces, now into {total}",
    "part_with_gaps": "a part with gaps cannot be cut into equal pieces",
    "not_one_thing": "these are not parts of one tensor",
    "not_addable": "{what} do not add up",
    "counted_twice": "{what} would be counted more than once",
    "nothing_to_add": "there is nothing left to add: this {what} already",
    # of collectives and messages
    "calls_differ": "rank {one} calls {calls} where rank {other} calls {otherwise}",
    "nothing_brought": "{who} a tensor to {kind}",
    "list_unfit": "the lists of tensors and layers do not fit: {why}",
    "wrong_way_home": "{what} must go home over the same ranks over which they came",
    "no_such_axis": "there is no mesh axis {axis}",
    "with_itself": "a rank cannot {does} itself",
    "not_linked": "rank {host} is a host, linked to its own devices only: {devices}",
    "not_on_host": "a host {does}: that is for devices",
    "never_awaited": "{call} was started and never awaited",
    "never_received": "a message was sent and never received: {message}",
    "deadlock": "deadlock: no rank can ever go on\n    {waits}",
    # of the life of a tensor
    "not_kept": "{tensor} was not stored when rank {rank} issued {call}",
    "never_stored": "{tensor} was never stored",
    "made_up": "{tensor} is made up: no operation of this run computed it",
    "other_rank": "{tensor} belongs to {owner}, and rank {rank} uses it",
    "taken_before": "this rank has taken {what} before",
    # of a run, and of what it ends with
    "no_final_weight": "no rank has set a final weight",
    "not_updated": "this is not the weight of this layer after one optimizer step",
    "wrong_value": "{what} not what plain training on one device gives",
    "frozen_changed": "a frozen weight has been changed",
    "not_attempted": "{function} is not attempted yet: no operation was run",
    "raised": "the function raised {error}",
    "cancelled": "the function was cancelled by itself",
    "out_of_time": "the run did not end within {limit}",
    # of what a puzzle asks for
    "not_finished": "the function is not finished yet: {next}",
    "not_granted": "puzzle {number} must be solved without {feature}{about}",
    "idea": "{found}",
    "wrong_part": "it {when} {how} {what} of layer {layer}",
    "other_layers": "it loads layers {layers}{beside}",
    "not_all_loaded": "no rank begins with all of the {kind} of layer {layer}, and all together lack a part of it",
    "state_late": "it has loaded the optimizer state of layer {layer} only after work on that layer",
}
