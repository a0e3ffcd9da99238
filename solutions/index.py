# %% [markdown]
# # LLM training puzzles
#
# Training a model of {{LLAMA / BILLION}} billion parameters takes {{trained(LLAMA) / 1e12:.1f}} TB of memory. Your
# GPU has {{CARD}} GB. Even if the model did fit, that one GPU would need {{round(years, -1)}} years. So how do
# thousands of GPUs train one model together? You'll find out by doing it yourself.
#
# In each puzzle you write one short Python function. A simulated machine of 1 to {{most_gpus}} GPUs runs it, draws what
# happened, and tells you whether your function really trains the model, how it compares with a target in time and
# memory, and what to change. Here are three answers to one of the puzzles:
#
# ![Three schedules of the same work: one big batch, GPipe, and interleaved stages](picture:hero)
#
# Start with the [tour of the machine](machine_tour.ipynb), then solve the puzzles in order. To run a cell of a
# notebook, click on it and press Shift+Enter. Do it with the two cells below: then the map knows how far you have come,
# and a click on a card leads to its puzzle.

# %% tags=["map"]
# The map of the course, with what you have solved. Run it again whenever you like.
from drawing import draw_course
from lib import progress

done = progress()
draw_course(done.solved, done.starred, done.trail)

# %% [markdown] tags=["ideas"]
# The sentences that the map, README and the gallery say of the puzzles.
#
# 0. [Plain training](p00_basic.ipynb): one step, on one GPU
# 1. [Gradient accumulation](p01_grad_accum.ipynb): the batch in pieces, one after the other
# 2. [Distributed data parallel](p02_ddp.ipynb): the batch in pieces, side by side
# 3. [Weight-sharded data parallel](p03_wsdp.ipynb): each GPU owns a shard of every weight
# 4. [Fully sharded data parallel](p04_fsdp.ipynb): no GPU receives a whole summed gradient
# 5. [Pipeline parallel](p05_pipeline.ipynb): each GPU holds some of the layers
# 6. [GPipe](p06_gpipe.ipynb): pieces of the batch follow one another through the pipeline
# 7. [Pipeline and FSDP](p07_pipeline_fsdp.ipynb): both at once
# 8. [Replica-FSDP](p08_replica_fsdp.ipynb): two nodes of GPUs, with slow links between them
# 9. [ZeRO-1](p09_zero1.ipynb): only the optimizer states are sharded, with no more communication than in puzzle 2
# 10. [ZeRO-2](p10_zero2.ipynb): the gradients are sharded as well
# 11. [Activation checkpointing](p11_checkpointing.ipynb): what is inside a layer is computed again instead of kept
# 12. [Prefetching](p12_prefetch.ipynb): the next weights are gathered while this layer computes
# 13. [1F1B](p13_one_f_one_b.ipynb): a pipeline that keeps few micro-batches in memory, however many there are
# 14. [Interleaved 1F1B](p14_interleaved.ipynb): several thin stages on each rank, and half of the idle time (the
#    *bubble*)
# 15. [Breadth-first pipeline](p15_breadth_first.ipynb): a pipeline with FSDP, and each layer gathered once a pass
# 16. [Zero bubble](p16_zero_bubble.ipynb): a backward in two halves, one of which can wait
# 17. [Tensor parallel](p17_tensor_parallel.ipynb): every layer in pieces, so that all ranks work on one sequence
# 18. [Sequence parallel](p18_sequence_parallel.ipynb): and each rank keeps only a slice of the sequence
# 19. [Buckets](p19_buckets.ipynb): one call for several layers, since every call pays for its hops
# 20. [Hierarchical all-reduce](p20_hierarchical.ipynb): first in the node, then between nodes, then in the node again
# 21. [hpZ](p21_hpz.ipynb): a second copy of the weights in each node, so that only one gather leaves it
# 22. [Offload](p22_offload.ipynb): optimizer states in the memory of the processor, which updates while the GPU
#     computes
# 23. [LoRA](p23_lora.ipynb): when almost nothing is trained, what of all this is still needed?
# 24. [Compose](p24_compose.ipynb): GPT-3 on some hundred GPUs, in seconds and bytes; you choose what the axes of the mesh
#     are for
# 25. [Context parallel](p25_context_parallel.ipynb): one very long sequence, of which each rank has slices in every layer
# 26. [Ring attention](p26_ring_attention.ipynb): keys and values go round a ring, each hop behind a block of attention
# 27. [Expert parallel](p27_expert_parallel.ipynb): experts are large and tokens are small, so which of them should travel?
# 28. [Two batches overlapped](p28_two_batch_overlap.ipynb): what could a GPU do while its tokens travel?
# 29. [ZB-V](p29_zbv.ipynb): what if the second half of the model came back up the ranks?
# 30. [DualPipe](p30_dualpipe.ipynb): what if a pipeline were filled from both ends?

# %% [markdown]
# Each puzzle has two goals, and each goal is a time and a peak memory. Meet the **target** ✓ and you pass. The **star**
# ★ is tight: it takes a deeper idea, sometimes two, and you can come back for it.
#
# The last cards are [What is wrong here?](repairs.ipynb): short programs with one mistake each, for the detective in
# you. Once you have solved puzzle 4, there are two more pages: in [The laboratory](laboratory.ipynb) you compare your
# programs at many sizes, and in [For real](for_real.ipynb) your function runs on real processes with real tensors.
#
# <details><summary><b>What helps</b></summary>
#
# - Which technique when? The end of puzzle 24 says it in a table.
# - `draw(run(...))` draws the *schedule*: what each rank does, and when. `play(run(...))` steps through it and shows
#   the line of your code that each rank is at.
# - `grade(fsdp)` tells you what is wrong with your function, or how good it is. `hint("fsdp")` gives one hint at a
#   time; the second shows the first half of a schedule that passes. `solution("fsdp")` shows our solution once you
#   have yours. `progress()` lists your best times and sizes beside all targets and stars.
# - Too slow? `beside_target(run(...))` draws your schedule and, below it, the busy times of each rank in a schedule
#   that meets the target. `draw_attempts("fsdp")` draws every right attempt that you have made as a point of time and
#   memory. To use them, run `from drawing import beside_target, draw_attempts`.
# - `from drawing import reference`, then `reference()`: the operations up to your next puzzle on one page, with the time each takes, and all others one click away.
# - What your function prints is marked with the rank and the tick of its clock. `model.status()` prints what the rank
#   holds. An error names the rank, the operation and your line. Below it the run is drawn up to that point, with a
#   flag at the error and with waiting ranks hatched in red.
# - In a terminal of JupyterLab: `llm-training-puzzles grade` grades these notebooks, `llm-training-puzzles start 4
#   my_fsdp.py` writes a blank puzzle 4 as a script, and `llm-training-puzzles watch my_fsdp.py` grades it every time you
#   save it. (At a shell in a clone, write `.venv/bin/llm-training-puzzles`.)
#
# </details>
#
# <details><summary><b>More about pass and star</b></summary>
#
# From puzzle 2 on the target leaves some slack, so a first idea is often enough, if it is correct. To earn the star, one
# program has to meet both of its figures. When you grade your function, you read how far it is from the star. In puzzle
# 1 every pass earns the star. The star of puzzle 0 needs the idea of puzzle 1. Repairs have no star.
#
# </details>
#
# <details><summary><b>The words in the picture</b></summary>
#
# - A *rank* is one GPU, known by its number. Numbers start from 0.
# - The *batch* of a step is cut into equal *micro-batches*. A micro-batch can go through the model alone, or several
#   can go through together.
# - The *forward pass* takes a micro-batch through the layers, first to last. Its results, the *activations*, are kept
#   for the *backward pass*, which goes through the layers from last to first and computes the gradients.
# - Time is in *ticks*. One tick is the time that one micro-batch takes to go forward through one layer. For example,
#   a layer of a model with {{LLAMA / BILLION}} billion parameters and {{LLAMA_LAYERS}} layers has {{LAYER / MILLION}}
#   million weights. A forward pass takes 2 operations for each weight and token, so a micro-batch of {{CONTEXT}}
#   tokens takes {{2 * LAYER * CONTEXT / 1e12:.1f}} x 10¹² operations, and at {{PER_SECOND / 1e14}} x 10¹⁴ a second,
#   which we'll come to, one tick is {{2 * LAYER * CONTEXT / PER_SECOND * 1000:.0f}} ms. (A real backward pass takes
#   about twice as long as the forward pass. Here both take one tick.)
# - Memory is in *elements*. An element is one number in a tensor: {{WEIGHT}} bytes in a 16-bit format. Our layers are
#   tiny, with {{HIDDEN}} x {{HIDDEN}} weights, so a target of {{target}} elements would be
#   {{WEIGHT * target / MILLION:.0f}} MB. A real layer of {{LAYER / MILLION}} million weights is
#   {{WEIGHT * LAYER / BILLION:.2f}} GB.
#
# </details>
#
# <details><summary><b>Where the two numbers come from</b></summary>
#
# **{{trained(LLAMA) / 1e12:.1f}} TB.** With the Adam optimizer and 16-bit arithmetic, each parameter takes
# {{TRAINED}} bytes: {{WEIGHT}} for the weight, {{GRADIENT}} for its gradient, {{MASTER}} for a precise copy of the
# weight (the *master weight*), and {{AVERAGE}} + {{AVERAGE}} for Adam's running averages of the gradient and of its
# square (ZeRO, arXiv 1910.02054). {{LLAMA / BILLION}} billion x {{TRAINED}} bytes = {{trained(LLAMA) / 1e12:.2f}} TB.
#
# **{{round(years, -1)}} years.** Training takes about {{OPERATIONS}} operations for each parameter and each token of
# text (arXiv 2001.08361). Llama 3 70B saw {{tokens / 1e12}} trillion tokens (arXiv 2407.21783): {{OPERATIONS}} x
# {{LLAMA / BILLION}} billion x {{tokens / 1e12}} trillion = {{operations(LLAMA, tokens) / 1e24:.1f}} x 10²⁴
# operations. An H100 does {{PEAK / 1e12}} x 10¹² a second at best, and in practice some {{REACHED:percent}} of that:
# {{PEAK * REACHED / 1e14:.0f}} x 10¹⁴. That is {{operations(LLAMA, tokens) / PER_SECOND / 1e10:.1f}} x 10¹⁰ seconds.
#
# </details>

# %% tags=["figures"]
from lib import HIDDEN

from solutions.p00_basic import PUZZLE as first

tokens = published(15e12, "arXiv 2407.21783")
years = operations(LLAMA, tokens) / PER_SECOND / YEAR
most_gpus = 1_000
target = first["target"]["memory"]
