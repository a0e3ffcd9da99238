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
    "not_joined": "combine joins shards of one {kind}",
    "frozen": "tensors are frozen: {name} cannot be {done}",
    "replaced": "model.{name} cannot be replaced",
    # of operands: what a tensor has to be
    "layer_misnamed": "{what} are of layer {layer}",
    "layer_mismatch": "{what} is that of layer {layer}",
    "batches_mismatch": "{what} are of different micro-batches",
    "slice_mismatch": "{what} is of another slice than {other}",
    "heads_mismatch": "{what} is of {heads}, and kv of {others}",
    "shards_mismatch": "weight and optimizer state hold different shards",
    "step_mismatch": "weight and optimizer state are of different steps",
    "saved_mismatch": "the inner activations are of another {what}",
    "experts_mismatch": "{what} goes to {experts}, and the weight is that of {own}",
    "incomplete": "{what} is not complete",
    "partial_sum": "{what} is not the whole sum",
    "slice": "{what} is a slice of the sequence",
    "some_heads": "{what} is of some heads only",
    "updated_before": "{what} has been updated already",
    "adapter_for_weight": "that is an adapter, and not the layer's own weight",
    "weight_for_adapter": "that is the layer's own weight, and no adapter",
    "adapter_mixed": "an adapter is updated with its own gradient and state, and a weight with its own",
    "adapter_of_pieces": "a layer that is computed in pieces takes no adapter",
    "loss_too_early": "the loss reads the output of the last layer",
    "missing_micro_batches": "the gradient is missing {batches}",
    "missing_slices": "the gradient is of some slices of the sequence only: slices {slices} of {of} are missing",
    "not_covered": "the gradient does not cover the weight",
    "missing_keys": "the queries have not {met} {slices}",
    "missing_queries": "the gradient of keys and values lacks what the queries of {slices} add to it",
    "met_twice": "these queries have attended to {slices} before",
    "nothing_beside": "no forward of another micro-batch is right before it, with which it could overlap",
    "no_experts": "layer {layer} is dense, it has no experts",
    "expert_cut": "a piece of {total} cuts one of {experts} experts",
    "experts_not_divided": "{experts} experts are not dealt to {ranks} ranks in equal parts",
    # of parts and sums
    "out_of_range": "{what} is out of range",
    "no_micro_batch": "get_activation needs at least one micro-batch",
    "too_many_pieces": "a tensor cannot be cut into so many pieces",
    "too_many_cuts": "tensors were cut into too many different numbers of pieces, now into {total}",
    "part_with_gaps": "a part with gaps cannot be cut into equal pieces",
    "not_one_thing": "these are not parts of one thing",
    "shard_twice": "a shard comes twice",
    "not_addable": "{what} do not add up",
    "counted_twice": "{what} would be counted twice",
    "nothing_to_add": "there is nothing to add to it: that {what} already",
    # of collectives and messages
    "calls_differ": "rank {one} calls {calls} where rank {other} calls {otherwise}",
    "nothing_brought": "every rank brings a tensor to {kind}",
    "nobody_brings": "no rank brings a tensor",
    "list_lengths": "the two lists do not go together: {counts}",
    "list_mixed": "{what} in one list",
    "layer_twice": "layer {layer} is in the list {times} times",
    "brought_twice": "more than one rank brings {batches}",
    "wrong_way_home": "{what} go home over the ranks over which they came",
    "no_such_axis": "there is no mesh axis {axis}",
    "with_itself": "a rank cannot {does} itself",
    "not_linked": "rank {host} is a host, linked to its own devices only: {devices}",
    "not_on_host": "a host {does}: that is for devices",
    "saved_not_sent": "what forward leaves behind is not sent",
    "never_awaited": "{call} was started and never awaited",
    "never_received": "a message was sent and never received: {message}",
    "deadlock": "deadlock: no rank can ever go on\n    {waits}",
    # of the life of a tensor
    "not_kept": "{tensor} was not stored when rank {rank} issued {call}",
    "stored_too_late": "it is too late: {tensor} was not stored when rank {rank} issued {call}",
    "never_stored": "{tensor} was never stored",
    "made_up": "{tensor} is made up: no operation of this run computed it",
    "other_rank": "{tensor} belongs to {owner}, and rank {rank} uses it",
    "taken_before": "this rank has taken {what} before",
    # of what a run ends with
    "no_final_weight": "no rank has set a final weight",
    "not_updated": "that is no weight of this layer after one optimizer step",
    "wrong_value": "the final weight has a wrong value: it is not what plain training on one device gives",
    "frozen_changed": "a frozen weight has been changed",
    "not_attempted": "{function} is not attempted yet: no operation was run",
    "second_model": "rank {rank} of this machine has its Model",
    "unlike_ranks": "the ranks of a folded axis do not all do the same: {differs}",
    # of a run
    "raised": "the function raised {error}",
    "cancelled": "the function was cancelled by itself",
    "out_of_time": "the run did not end within {limit}",
}
