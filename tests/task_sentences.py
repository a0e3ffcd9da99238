"""What holds each sentence of the tasks, and a wrong program that nothing else stops.

A sentence is named by how it begins. Sentences that only explain are listed by their beginnings; those that say the
target or the star are known by theirs.
"""

from __future__ import annotations

from typing import NamedTuple

FINALS, LAYOUT, HELD, WORDS, TARGET = "final weights", "layout", "held", "a feature not granted", "target"
MACHINE, SIZES = "the machine", "other sizes"


class Row(NamedTuple):
    """How a sentence begins, what holds it (a rule by its name, or one of the above), and a program of the corpus that
    is stopped by it."""

    begins: str
    held_by: str
    program: str


class Task(NamedTuple):
    """The sentences of one task. ``target``: a program that is right, and over the target."""

    target: str
    rows: tuple[Row, ...]
    explains: tuple[str, ...] = ()
    not_held: tuple[str, ...] = ()


def task(target: str, *rows: tuple[str, str, str], explains: str = "", not_held: str = "") -> Task:
    """A task, with the beginnings of sentences separated by semicolons."""
    several = [tuple(filter(None, text.split(";"))) for text in (explains, not_held)]
    return Task(target, tuple(Row(*row) for row in rows), *several)


TRAVEL = "data parallel: every layer is loaded and dropped at once"
REST, LOOKED_AT = "every second rank rests", "a state gathered to be looked at"
SENT = "a copy from opt_states is sent while it trains"
COPIED_WEIGHT, COPIED_STATE = (f"a copy from {store} is sent at the end" for store in ("weights", "opt_states"))
EVERYWHERE = "keys of layer 0 are made on every rank"
KEPT, GIVEN = "the gathered weights kept", "a copy of a weight is given away"
SLOW, NO_STATES, NEXT = "it goes on and on", "the states are not kept", "the shards of the next rank"
CUT_AGAIN, FROM_THERE = "the last updated weight is cut and gathered again", "a piece of the other node is gathered"
NOT_USED, BESIDE = "a weight gathered once more, and not used", "a whole gradient kept beside its sum"
TASKS = {
    "basic": task(
        "nothing of the backward pass is given back",
        ("Train all `LAYERS` layers", FINALS, "final weights before the update"),
        ("Hand in the updated weights", LAYOUT, "states not kept"),
        ("Write `model.LAYERS`", SIZES, "two layers in mind"),
        explains=(
            "It takes the idea;`model.get_activation(range;The time takes care;The memory does not;"
            "It is measured;Anything you delete"
        ),
    ),
    "grad_accum": task(
        "nothing of the backward pass is given back",
        ("Train on the same batch", "one_micro_batch", "all at once"),
        ("Train on the same batch", "one_after_the_other", "two micro-batches by turns"),
        ("Each `forward` and each", "one_micro_batch", "all at once"),
        ("Adding takes no time, but no", MACHINE, "one twice"),
        explains="Here every pass earns;(The same program;Gradients of one layer",
    ),
    "ddp": task(
        "the activations kept",
        ("Train on 4 micro-batches", MACHINE, "everybody trains micro-batch 0"),
        ("Train on 4 micro-batches", "as_many_each", REST),
        ("Every rank holds all", "dense_weights_stay", GIVEN),
        ("Every rank ends with", LAYOUT, "final weights of rank 0 only"),
        explains="Your function is;`run` calls it;`model.rank` tells;There are always",
    ),
    "wsdp": task(
        SLOW,
        ("As in puzzle 2", MACHINE, "everybody trains micro-batch 0"),
        ("As in puzzle 2", "as_many_each", REST),
        ("But rank `r` loads only", "states_stay", LOOKED_AT),
        ("But rank `r` loads only", "weights_come_for_use", GIVEN),
        ("But rank `r` loads only", "gathers_for_use", "a weight gathered at the beginning, and not used"),
        ("But rank `r` loads only", LAYOUT, NEXT),
        ("But rank `r` loads only", SIZES, "each weight gathered twice at other sizes"),
        ("It ends with its shards", LAYOUT, NO_STATES),
        ("`forward` and `backward` need", MACHINE, "the shard for the weight"),
        ("`update` needs", MACHINE, "half of the state"),
        ("Remember that a tensor", MACHINE, "updated the whole weight with a shard of state"),
        explains="Gradients may be whole",
    ),
    "fsdp": task(
        "the gathered weights kept",
        ("As in puzzle 3", LAYOUT, "states thrown away"),
        ("As in puzzle 3", "as_many_each", REST),
        ("As in puzzle 3", "states_stay", LOOKED_AT),
        ("As in puzzle 3", "weights_come_for_use", GIVEN),
        ("How long it keeps a whole", TARGET, KEPT),
        ("The new part:", "no_whole_gradient_waits", "a whole gradient kept a layer too long"),
        ("The new part:", "no_whole_gradient_waits", "a whole gradient kept beside its piece"),
        ("So there is a rule:", "no_whole_gradient", "puzzle 3, gathered ahead"),
        explains="A good program for;Once your program",
    ),
    "pipeline": task(
        SLOW,
        ("Split the layers over", LAYOUT, "uneven stages"),
        ("A rank loads, trains", "own_layers", "the weights travel, not the activations"),
        ("A rank loads, trains", "own_updates", "a layer updated by the rank before"),
        ("Split the layers over", "own_updates", "a copy of a weight is sent after training"),
        ("Let the whole batch", "whole_batch", "micro-batches one by one: GPipe"),
        explains="When it works;Memory is fine;But something",
    ),
    "gpipe": task(
        "one micro-batch all the way at a time",
        ("Split the layers as in", "one_micro_batch", "the pipeline without micro-batches"),
        ("Split the layers as in", "own_layers", TRAVEL),
        ("Split the layers as in", "own_updates", "a copy of a weight is sent after training"),
        explains="That is twice;There is a limit;A rank needs;With one stage;So the bubble;With 16 micro",
    ),
    "pipeline_fsdp": task(
        SLOW,
        ("Every weight and every state", MACHINE, NEXT),
        ("Every weight and every state", "states_stay", LOOKED_AT),
        ("Every weight and every state", "weights_come_for_use", GIVEN),
        ("How long a rank keeps", TARGET, KEPT),
        ("As in puzzle 4, no rank", "no_whole_gradient", "all-reduced"),
        ("At the other sizes", SIZES, "four layers in mind"),
        explains="A collective takes;If your program;Read that list;It is the best",
    ),
    "replica_fsdp": task(
        SLOW,
        ("Weights are sharded over", LAYOUT, "a piece of the next rank as well"),
        ("Weights are sharded over", "weights_come_for_use", GIVEN),
        ("For each micro-batch", "gathered_in_nodes", FROM_THERE),
        ("Optimizer states are", LAYOUT, "states over the shard axis only"),
        ("Optimizer states are", "states_stay", LOOKED_AT),
        ("Gather it again, or", TARGET, KEPT),
        ("After the last one, for", "summed_across_once", "across the nodes after every micro-batch"),
        ("Rank `r` trains on", "one_micro_batch", "both micro-batches at once"),
        ("Rank `r` trains on", SIZES, "three micro-batches on one rank and one on the next, with one layer"),
        ("Rank `r` trains on", "one_after_the_other", "the next micro-batch begins before this one is done"),
        ("Each rank ends with", LAYOUT, "states over the shard axis only"),
        ("As in puzzle 4, no rank", "no_whole_gradient", "all-reduced in the node and cut"),
        ("Summing the running total", MACHINE, "the running sum reduced"),
        ("Never doing it", MACHINE, "never summed over the replicas"),
        ("The grader tries other", SIZES, "two replicas in mind"),
        explains=("(An all-reduce;On real links;The trap is;After every micro;A node always"),
    ),
    "zero1": task(
        "all-reduced and cut",
        ("Data parallel with two", "one_micro_batch", "both micro-batches at once"),
        ("Data parallel with two", "one_after_the_other", "both micro-batches forward, and back layer by layer"),
        ("Every rank holds all", HELD, "FSDP in disguise: whole weights for a moment"),
        ("But of every optimizer", LAYOUT, "whole states: data parallel"),
        ("No state is ever sent", "states_stay", LOOKED_AT),
        ("No state is ever sent", "weights_come_for_use", GIVEN),
        ("No state is ever sent", "weights_come_for_use", CUT_AGAIN),
        ("No state is ever sent", "gathers_for_use", NOT_USED),
        ("Data parallel with two", "as_many_each", REST),
        explains="How often gradients;Here an all-reduce",
    ),
    "zero2": task(
        "all-reduced and cut",
        ("The same machine", HELD, "FSDP in disguise: whole weights for a moment"),
        ("The same machine", "one_micro_batch", "both micro-batches at once"),
        ("The same machine", "as_many_each", REST),
        ("No state is ever sent", "states_stay", LOOKED_AT),
        ("No state is ever sent", "weights_come_for_use", GIVEN),
        ("No state is ever sent", "weights_come_for_use", CUT_AGAIN),
        ("No state is ever sent", "gathers_for_use", NOT_USED),
        ("Now use less memory", TARGET, "ZeRO-1: whole gradients"),
        explains="After the last backward",
    ),
    "checkpointing": task(
        "nothing kept",
        ("Train plainly", LAYOUT, NO_STATES),
        ("Your GPU has room", TARGET, "everything of half of the layers"),
        ("Do not go beyond", SIZES, "a little of every layer at any size but one"),
        explains="This is what;| kept of;(These update;An answer to",
    ),
    "prefetch": task(
        "two ahead",
        ("Rank `r` holds shard", "no_whole_gradient", "all-reduced and cut"),
        ("The same as in", "as_many_each", REST),
        ("Rank `r` holds shard", HELD, "its own piece let go while the whole is there"),
        ("Rank `r` holds shard", "states_stay", LOOKED_AT),
        ("Rank `r` holds shard", "weights_come_for_use", GIVEN),
        ("It's up to you when", TARGET, KEPT),
        explains="Two things;The network of;And what is on",
    ),
    "one_f_one_b": task(
        "GPipe",
        ("Train as in puzzle 6", "one_micro_batch", "all at once"),
        ("Train as in puzzle 6", "own_layers", TRAVEL),
        ("Train as in puzzle 6", "own_updates", "a copy of a weight is sent after training"),
        explains="There are **8;GPipe takes;The order in which",
    ),
    "interleaved": task(
        "activations are kept",
        ("1F1B, one forward", TARGET, "one thick stage a rank, 1F1B"),
        ("1F1B, one forward", "one_micro_batch", "two micro-batches at once"),
        ("1F1B, one forward", "own_layers", TRAVEL),
        ("1F1B, one forward", "own_updates", "a copy of a weight is sent after training"),
        ("The layers are dealt", TARGET, "one thick stage a rank, GPipe"),
        ("The layers are dealt", "dealt_like_cards", "there and back again"),
        ("The layers are dealt", "dealt_like_cards", "the second rank is dealt the first layer"),
        ("In the forward pass", TARGET, "the whole batch is one round"),
        ("At the other sizes", SIZES, "two layers a rank, whatever their number"),
        explains="After layer 3;The stages of a;The order is;The backward pass;There are twice;Here a send",
    ),
    "breadth_first": task(
        "depth first",
        ("Train with both", LAYOUT, "every stage is all stages"),
        ("A rank loads its", MACHINE, NEXT),
        ("A rank loads its", "own_updates", "an activation lies on another rank, and comes back"),
        ("A rank loads its", "states_stay", SENT),
        ("It gathers a weight", TARGET, "all whole weights are kept"),
        ("It gathers a weight", "weights_come_for_use", GIVEN),
        ("It gathers a weight", "gathers_for_use", NOT_USED),
        ("Each forward and each", "one_micro_batch", "all micro-batches at once"),
        ("Each forward and each", "no_whole_gradient", "all-reduced and cut"),
        ("The grader tries other", SIZES, "four stages, whatever their number"),
        ("Every stage has", "as_many_each", "more micro-batches on one pipeline"),
        explains="Here weights are;A collective takes",
    ),
    "zero_bubble": task(
        "whole backwards",
        ("A pipeline with one", LAYOUT, NO_STATES),
        ("A pipeline with one", "own_layers", TRAVEL),
        ("A pipeline with one", "own_updates", "an activation lies on the last rank, where there is room"),
        ("A pipeline with one", "own_updates", "the output of the last layer waits on rank 0"),
        ("Each operation works", "one_micro_batch", "two micro-batches at a time"),
        explains="Messages take no;A rank computes;The last rank;So no schedule",
    ),
    "tensor_parallel": task(
        SLOW,
        ("Of every weight and", LAYOUT, "everything whole, on all ranks"),
        ("In this puzzle no rank", "weights_stay", "the states gathered to be looked at"),
        ("In this puzzle no rank", "weights_stay", "a gradient of a weight is sent"),
        ("In this puzzle no rank", "weights_stay", "zeros for a gradient are summed"),
        explains="Four ranks train",
    ),
    "sequence_parallel": task(
        "all-reduced, and then cut",
        ("Again, rank `r` holds", "weights_stay", "the state passed round the ring"),
        explains="As puzzle 17;An activation is;An all-reduce takes;The first input;What is kept;A quarter of",
    ),
    "buckets": task(
        "one call at the end",
        ("Data parallel, as in", LAYOUT, "states not kept"),
        ("Data parallel, as in", "as_many_each", "micro-batches change ranks"),
        ("Each rank makes all", "dense_weights_stay", SENT),
        ("Each rank makes all", "dense_weights_stay", GIVEN),
        explains="A tick is;Hops and bytes;An all-reduce of;The network makes",
    ),
    "hierarchical": task(
        "everything across",
        ("Data parallel: 16 ranks", LAYOUT, NO_STATES),
        ("Data parallel: 16 ranks", "as_many_each", "micro-batches change ranks"),
        ("Each rank makes all", "dense_weights_stay", "a layer updated on every second rank, and sent to its neighbor"),
        ("Each rank makes all", "dense_weights_stay", GIVEN),
        ("A collective takes one", WORDS, "one call for several layers"),
        explains="The axis `shard`;The layers and the;Inside a node;The links of a rank",
    ),
    "hpz": task(
        "FSDP",
        ("Here are 16", "as_many_each", "half of the ranks rest"),
        ("Everything is sharded", LAYOUT, "weights over the node, states over all"),
        ("No state is ever sent", "states_stay", "a copy of a state is given away"),
        ("No state is ever sent", "weights_come_for_use", GIVEN),
        ("No state is ever sent", "gathers_for_use", NOT_USED),
        ("As in puzzle 4, no rank", "no_whole_gradient", "a whole sum"),
        explains=("The axis `shard`;What else a rank;A tick is;A collective takes;A call for;For if each;In code"),
    ),
    "offload": task(
        "each gradient awaited on its way",
        ("Train on two", MACHINE, "the same gradient twice"),
        ("Each forward and each", "one_micro_batch", "both micro-batches at once"),
        ("The device begins", HELD, "the weights come and go, too"),
        ("The states are on", "updates_on_hosts", "the state of layer 0 stays on the device, and is updated there"),
        ("No state is ever sent", "states_stay", "a copy of a state sent to the device"),
        ("No state is ever sent", "weights_come_for_use", GIVEN),
        ("No state is ever sent", "weights_come_for_use", "a weight comes to the device that it has"),
        ("Since an update takes", "updates_on_hosts", "the weight of layer 0 comes from the device"),
        explains="(On a real;The prices are;A forward takes;A transfer takes",
    ),
    "lora": task(
        "nothing is ever given back",
        ("Each rank trains on its", MACHINE, "the gradients are not summed"),
        ("Each rank trains on its", "as_many_each", "micro-batches change ranks"),
        ("Of every frozen weight", LAYOUT, "every rank has all weights"),
        ("Of every frozen weight", "weights_come_for_use", GIVEN),
        ("It ends with the same", LAYOUT, "the gathered weight is kept"),
        ("Every rank has the whole", LAYOUT, "states of adapters not kept"),
        ("Each rank makes all", "weights_come_for_use", "the neighbor's copy of a gathered weight"),
        ("Each rank makes all", "gathers_for_use", NOT_USED),
        ("Each rank makes all", "states_stay", "a copy of an adapter's state is sent"),
        ("Each rank makes all", "adapters_stay", "the neighbor's copy of an adapter"),
        ("A collective takes one", WORDS, "layers gathered in one call"),
    ),
    "compose": task(
        "16 stages, eight replicas",
        ("A collective takes one", WORDS, "one call for all layers"),
        ("Anything goes that", "several_kinds", "FSDP, two at once, gathered ahead"),
        ("Each rank begins with", LAYOUT, "no gather after the update"),
        ("All ranks together have", MACHINE, "a layer too few"),
        explains="The 128 ranks;*You decide;If `x` is;If `x` and;Seconds here;So time and;A run takes",
    ),
    "context_parallel": task(
        "each layer updated at once",
        ("Four ranks train", MACHINE, "gradients of weights not summed"),
        ("Every rank holds all", LAYOUT, "final weights of rank 0 only"),
        (
            "Every rank holds all",
            "dense_weights_stay",
            "a layer updated on every second rank, and sent to its neighbor",
        ),
        ("Every rank holds all", "dense_weights_stay", GIVEN),
        ("Each rank trains slices", TARGET, "every rank trains the whole sequence"),
        ("Each rank trains slices", "each_slice_on_one_rank", EVERYWHERE),
        ("Keys, values and their", "keys_by_collectives", "keys sent to the next rank"),
        explains="The machine is;A gather of keys",
    ),
    "ring_attention": task(
        "each layer updated at once, hops after blocks",
        ("As puzzle 25: four ranks", LAYOUT, "final weights of rank 0 only"),
        (
            "As puzzle 25: four ranks",
            "dense_weights_stay",
            "a layer updated on every second rank, and sent to its neighbor",
        ),
        ("As puzzle 25: four ranks", "dense_weights_stay", GIVEN),
        ("Each rank trains slices", TARGET, "every rank trains the whole sequence"),
        ("Each rank trains slices", "each_slice_on_one_rank", EVERYWHERE),
        ("But now no collective", "keys_go_round", "the keys of one layer gathered"),
        explains="Every head of queries",
    ),
    "expert_parallel": task(
        "each dense sum awaited at once",
        ("Train 8 layers", MACHINE, "dense gradients not summed"),
        ("Train 8 layers", "as_many_each", "micro-batches change ranks"),
        ("Every rank holds all", LAYOUT, "dense weights handed in by rank 0 only"),
        ("No expert, no gradient", "experts_stay", "the states of experts passed round"),
        ("No expert, no gradient", "experts_stay", "zeros for a gradient of experts are sent"),
        ("Of dense layers only", "dense_weights_stay", COPIED_WEIGHT),
        ("Of dense layers only", "dense_weights_stay", COPIED_STATE),
        ("At the other sizes", SIZES, "eight layers, whatever their number"),
        explains="The machine is the;From a layer",
    ),
    "two_batch_overlap": task(
        "both micro-batches together",
        ("As puzzle 27, with", MACHINE, "only the last gradient counts"),
        ("As puzzle 27, with", "as_many_each", "micro-batches change ranks"),
        ("Again, experts stay", "experts_stay", "the states of experts passed round"),
        ("Again, experts stay", "experts_stay", "zeros for a gradient of experts are sent"),
        ("Again, experts stay", "dense_weights_stay", COPIED_WEIGHT),
        ("Again, experts stay", "dense_weights_stay", COPIED_STATE),
        explains="The links have;There is no new;`model.alltoall(...)` starts",
    ),
    "repair_local": task(
        "",
        ("Gradient accumulation: one", "one_micro_batch", "the batch at once"),
        ("Gradient accumulation: one", "one_after_the_other", "two micro-batches by turns"),
        explains="*Easy;*Take it;The author;Where was",
    ),
    "repair_twice": task(
        SLOW,
        ("Gradient accumulation *and*", MACHINE, "never summed"),
        ("Gradient accumulation *and*", "one_micro_batch", "both micro-batches at once"),
        ("Gradient accumulation *and*", "one_after_the_other", "two micro-batches by turns"),
        ("Gradient accumulation *and*", "as_many_each", REST),
        ("Gradient accumulation *and*", "dense_weights_stay", GIVEN),
        explains="*Medium;*Take it;The first turn;Follow one",
    ),
    "repair_quiet": task(
        SLOW,
        ("Every rank trains", "dense_weights_stay", GIVEN),
        ("Every rank trains", SIZES, "four micro-batches on one rank and two on the next, with one layer"),
        ("Then, one night", SIZES, "as it is"),
        explains="*Easy;*Take it;It trains the;Draw it",
    ),
    "repair_bargain": task(
        "as it is",
        ("Fully sharded data", LAYOUT, NO_STATES),
        ("Fully sharded data", "no_whole_gradient", "all-reduced and cut"),
        ("Fully sharded data", "no_whole_gradient_waits", BESIDE),
        ("Fully sharded data", "as_many_each", "micro-batches change ranks"),
        ("Fully sharded data", "states_stay", LOOKED_AT),
        ("Fully sharded data", "weights_come_for_use", GIVEN),
        explains="*Easy;*Take it;A colleague has;That is true;He would;Nothing is free",
    ),
    "repair_deadlock": task(
        SLOW,
        ("A pipeline of two", "whole_batch", "one forward, one backward"),
        ("A pipeline of two", SIZES, "layers dealt like cards at other sizes"),
        ("Each rank has half", "own_layers", "the weights travel, not the activations"),
        ("Each rank has half", "own_updates", "a copy of a weight is sent before training"),
        ("Each rank has half", LAYOUT, "all of it on rank 0"),
        ("Rank 0 passes", "first_half_on_rank_0", "the second half on rank 0"),
        explains="*Easy;*Take it;Hear both",
    ),
    "repair_skip": task(
        SLOW,
        ("Data parallel, as in", MACHINE, "a made-up gradient of its own"),
        ("Data parallel, as in", "dense_weights_stay", GIVEN),
        ("The ranks without one", LAYOUT, NO_STATES),
        ("Data parallel, as in", SIZES, "two micro-batches change ranks, with one at rest"),
        explains="*Medium;*Take it;Three were;Who was;(What one",
    ),
    "repair_groups": task(
        SLOW,
        ("Every node has a", LAYOUT, NO_STATES),
        ("Every node has a", "states_stay", LOOKED_AT),
        ("Every node has a", "weights_come_for_use", GIVEN),
        ("Each rank trains", "as_many_each", "micro-batches change ranks"),
        ("Whole weights are gathered", "gathered_in_nodes", FROM_THERE),
        ("A gradient is", "no_whole_gradient", "all-reduced in the node and cut"),
        explains="*Medium;*Take it;Hybrid sharding;That is the;Everybody went;And still",
    ),
    "repair_book": task(
        "as it is",
        ("Hybrid sharding as in", "one_micro_batch", "all micro-batches of a rank at once"),
        ("Hybrid sharding as in", SIZES, "five micro-batches on one rank and three on the next, with one layer"),
        ("Hybrid sharding as in", "one_after_the_other", "the next micro-batch begins before this one is done"),
        ("Hybrid sharding as in", "states_stay", LOOKED_AT),
        ("Hybrid sharding as in", "gathered_in_nodes", FROM_THERE),
        ("Hybrid sharding as in", "weights_come_for_use", GIVEN),
        ("Each gradient is", MACHINE, "never summed across"),
        ("Each gradient is", "no_whole_gradient", "all-reduced in the node and cut"),
        explains="*Medium;*Take it;The same two nodes;Nobody makes;It is also;Where does",
    ),
    "repair_experts": task(
        SLOW,
        ("A dense layer and one", LAYOUT, NO_STATES),
        ("A dense layer and one", "as_many_each", "micro-batches change ranks"),
        ("Weights and states stay", "experts_stay", "the states of experts passed round"),
        ("Weights and states stay", "experts_stay", "zeros for a gradient of experts are sent"),
        ("Weights and states stay", "dense_weights_stay", COPIED_WEIGHT),
        ("Weights and states stay", "dense_weights_stay", COPIED_STATE),
        explains="*Medium;*Take it;Tokens go;Then come;Whose gradients",
    ),
    "repair_zigzag": task(
        SLOW,
        ("One sequence, of which", MACHINE, "as it is"),
        ("One sequence, of which", "two_slices", "four slices a rank"),
        ("One sequence, of which", LAYOUT, NO_STATES),
        ("Keys and values are", "dense_weights_stay", GIVEN),
        ("Keys and values are", "keys_by_collectives", "keys sent to the next rank"),
        explains="*Medium;*Take it;A token sees;The author looked;It went;Look at the",
    ),
    "repair_straggler": task(
        "as it is",
        ("Data parallel with", "one_micro_batch", "two micro-batches at once"),
        ("Data parallel with", "one_after_the_other", "two micro-batches by turns"),
        ("Data parallel with", LAYOUT, NO_STATES),
        ("Data parallel with", "dense_weights_stay", GIVEN),
        explains="*Easy;*Take it;There is a;A fan;The gradients;Which rank",
    ),
    "zbv": task(
        "all forwards first",
        ("A pipeline with two", "own_layers", "two ranks load each other's layers, and send weights"),
        ("A pipeline with two", "own_updates", "an activation lies on another rank, and comes back"),
        ("A pipeline with two", "in_a_v", "the V begins at the last rank"),
        ("So rank 0 has layers", "in_a_v", "the V begins at the last rank"),
        ("Each operation works", "one_micro_batch", "two micro-batches at a time"),
        ("A rank may run ahead", TARGET, "all forwards first"),
        ("A rank may run ahead", SIZES, "all forwards first with three ranks and six micro-batches"),
        ("At the other sizes", SIZES, "four ranks, whatever their number"),
        explains="Keep room for;From a neighbor come;You have the halves;Here all three",
    ),
    "dualpipe": task(
        "no pairs",
        ("At place 0 both", LAYOUT, "the answers of one half only"),
        ("At place 0 both", "own_layers", "layers of others, with their weights"),
        ("At place 0 both", "own_updates", "an activation is given away"),
        ("No weight and no state", "states_stay", SENT),
        ("No weight and no state", "loaded_weights", GIVEN),
        ("Each operation works", "loaded_weights", "the weight of the other half"),
        ("Each operation works", "one_micro_batch", "two micro-batches at once"),
        ("Each operation works", "own_layers", "layers of others, with their weights"),
        ("Half of the micro", "through_all_ranks", "each half by itself"),
        ("Half of the micro", "through_all_ranks", "from one half to the other and back"),
        ("Half of the micro", SIZES, "more micro-batches from one end, with eight ranks"),
        ("The others go", "through_all_ranks", "each half by itself"),
        ("So a micro-batch", "through_all_ranks", "each half by itself"),
        ("Two ranks have", MACHINE, "gradients not summed"),
        ("The rank must have", MACHINE, "a pair whose gradient comes after the forward"),
        ("At the other sizes", SIZES, "two places, whatever their number"),
        explains=(
            "The mesh has two;There are four;`model.rank_at;There is one;A backward with;F = B;You have the halves"
        ),
    ),
}
