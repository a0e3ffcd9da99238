# %% [markdown]
# # LLM training puzzles
#
# Training a model of {{LLAMA / BILLION}} billion parameters takes {{trained(LLAMA) / 1e12:.1f}} TB of memory. Your
# GPU has {{CARD}} GB. Even if it fit, that one GPU would need {{round(years, -1)}} years. So how do
# thousands of GPUs train one model together? You'll find out by doing it.
#
# In each puzzle you write one short Python function. A simulated machine of 1 to {{most_gpus}} GPUs runs it, draws what
# happened, and says whether it really trains the model, and how fast. Seven answers to one question:
#
# ![Seven pipeline schedules of the same model on the same four GPUs, racing](picture:race)
#
# **Begin with the [tour](machine_tour.ipynb): three minutes.** Then click on a card. (Run the cells below with
# Shift+Enter, and the cards show how far you have come.)

# %% tags=["map"]
# The map of the course, with what you have solved. Run it again whenever you like.
from drawing import draw_course
from lib import progress

done = progress()
draw_course(done.solved, done.starred, done.trail)

# %% [markdown] tags=["ideas"]
# The sentences that the map, README and the gallery say of the puzzles.
#
# **From one GPU to many**
#
# 0. [Plain training](p00_basic.ipynb): one step, on one GPU
# 1. [Gradient accumulation](p01_grad_accum.ipynb): the batch in pieces, one after the other
# 2. [Distributed data parallel](p02_ddp.ipynb): the batch in pieces, side by side
# 3. [Weight-sharded data parallel](p03_wsdp.ipynb): each GPU owns a shard of every weight
# 4. [Fully sharded data parallel](p04_fsdp.ipynb): no GPU receives a whole summed gradient
#
# **Pipelines and combinations**
#
# 5. [Pipeline parallel](p05_pipeline.ipynb): each GPU holds some of the layers
# 6. [GPipe](p06_gpipe.ipynb): pieces of the batch follow one another through the pipeline
# 7. [Pipeline and FSDP](p07_pipeline_fsdp.ipynb): pipelines that share one model
# 8. [Replica-FSDP](p08_replica_fsdp.ipynb): two nodes of GPUs, with slow links between them
#
# **What is kept, and when it travels**
#
# 9. [ZeRO-1](p09_zero1.ipynb): only the optimizer states are sharded
# 10. [ZeRO-2](p10_zero2.ipynb): the gradients are sharded as well
# 11. [Activation checkpointing](p11_checkpointing.ipynb): what is inside a layer is computed again instead of kept
# 12. [Prefetching](p12_prefetch.ipynb): the next weights are gathered while this layer computes
#
# **Pipelines without gaps**
#
# 13. [1F1B](p13_one_f_one_b.ipynb): a pipeline that keeps few micro-batches
# 14. [Interleaved 1F1B](p14_interleaved.ipynb): several thin stages on each GPU, and half the waiting
# 15. [Breadth-first pipeline](p15_breadth_first.ipynb): a pipeline with FSDP, where every gather costs time
# 16. [Zero bubble](p16_zero_bubble.ipynb): a backward in two halves, one of which can wait
#
# **Layers in pieces**
#
# 17. [Tensor parallel](p17_tensor_parallel.ipynb): every layer in pieces, so that all ranks work on one sequence
# 18. [Sequence parallel](p18_sequence_parallel.ipynb): each rank keeps only a slice of the sequence
#
# **Networks, hosts, whole clusters**
#
# 19. [Buckets](p19_buckets.ipynb): one call for several layers, since every call has a latency
# 20. [Hierarchical all-reduce](p20_hierarchical.ipynb): a sum over two nodes
# 21. [hpZ](p21_hpz.ipynb): FSDP over two nodes, and a slow cable between them
# 22. [Offload](p22_offload.ipynb): optimizer states in the memory of the processor
# 23. [LoRA](p23_lora.ipynb): when almost nothing is trained, what is still needed?
# 24. [Compose](p24_compose.ipynb): GPT-3 on hundreds of GPUs, your way
#
# **Long texts and experts**
#
# 25. [Context parallel](p25_context_parallel.ipynb): one very long sequence, in slices
# 26. [Ring attention](p26_ring_attention.ipynb): keys and values of a long sequence, without a gather
# 27. [Expert parallel](p27_expert_parallel.ipynb): experts are large, tokens are small: which should travel?
# 28. [Two batches overlapped](p28_two_batch_overlap.ipynb): what could a GPU do while its tokens travel?
#
# **Pipelines from both ends**
#
# 29. [ZB-V](p29_zbv.ipynb): what if the second half of the model ran through the ranks in reverse?
# 30. [DualPipe](p30_dualpipe.ipynb): what if a pipeline were filled from both ends?
#
# **Inside the calls, and newer questions**
#
# 31. [Ring all-reduce, by hand](p31_ring_allreduce.ipynb): what is inside an all-reduce?
# 32. [Small messages](p32_small_messages.ipynb): when hops take longer than bytes
# 33. [A mean of means](p33_token_mean.ipynb): how does every token of the batch count the same?
# 34. [Muon in shards](p34_muon.ipynb): an update that needs the whole matrix, which no rank has
# 35. [From trainer to generator](p35_weight_sync.ipynb): the weights that were just trained, cut otherwise and elsewhere
# 36. [Sends that wait](p36_sends_that_wait.ipynb): what if a send had to wait for its receive?

# %% [markdown]
# Each puzzle has two goals, and both limit the time and the peak memory. Meet the **target** ✓, and you pass. The
# **star** ★ is tighter, and takes a deeper idea. Come back for it.
#
# The last cards are [What is wrong here?](repairs.ipynb): short programs with one mistake each. After puzzle 4, two
# more pages are for you. In [The laboratory](laboratory.ipynb) you compare your programs at many sizes. In [For
# real](for_real.ipynb) they run on real processes, with real tensors.
#
# <details><summary><b>What helps</b></summary>
#
# - `grade(fsdp)` says what is wrong with your function, or how good it is, and `why()` says more. `hint("fsdp")` gives
#   one hint at a time. `solution("fsdp")` shows our solution once you have yours.
# - `draw(run(...))` draws what each rank does, and when. `play(run(...))` steps through it, with the line of your code
#   that each rank is at. Whatever your function prints begins with its rank and the tick.
# - Too slow? `beside_target(run(...))` draws your schedule above one that meets the target, and `draw_attempts("fsdp")`
#   draws all your right attempts (`from drawing import beside_target, draw_attempts`).
# - `reference()` (`from drawing import reference`) has all calls on one page, with the time each takes.
# - To start a puzzle again, call `reset("fsdp")` (`from lib import reset`). It keeps your old file.
# - A table at the end of puzzle 24 says when to use which technique.
# - In a terminal: `llm-training-puzzles grade` grades these notebooks without opening them, and
#   `llm-training-puzzles start 4 my_fsdp.py` writes puzzle 4 as a script. (In a clone:
#   `.venv/bin/llm-training-puzzles`.)
#
# </details>
#
# <details><summary><b>The words in the picture</b></summary>
#
# - A *rank* is one GPU, known by its number, from 0 on. A *node* is one machine, mostly with eight GPUs.
# - The *batch* of a step is cut into equal *micro-batches*, which go through the model one by one or several at once.
# - The *forward pass* goes through the layers from first to last. Its results, the *activations*, are kept for the
#   *backward pass*, which goes from last to first and computes the gradients.
# - A *shard* is one of the equal pieces of a tensor. A *collective* is a call that ranks make together, such as a sum.
# - A *stage* is the layers of one rank of a pipeline. The *bubble* is the time in which ranks wait for one another.
# - One *tick* is the time of one micro-batch through one layer. A layer of a model with {{LLAMA / BILLION}} billion
#   parameters and {{LLAMA_LAYERS}} layers has {{LAYER / MILLION}} million weights. Each weight takes 2 operations for a
#   token, so a micro-batch of {{CONTEXT}} tokens takes {{2 * LAYER * CONTEXT / 1e12:.1f}} x 10¹² operations. At
#   {{PER_SECOND / 1e14}} x 10¹⁴ operations a second, a tick is {{2 * LAYER * CONTEXT / PER_SECOND * 1000:.0f}} ms. (A
#   real backward takes twice as long as a forward. Here both take one tick.)
# - Memory is in *elements*, the numbers in a tensor: {{WEIGHT}} bytes each, in a 16-bit format. Our layers are tiny,
#   with {{HIDDEN}} x {{HIDDEN}} weights: all the memory that puzzle 0 allows, {{target}} elements, would be
#   {{WEIGHT * target / MILLION:.0f}} MB. A real layer of {{LAYER / MILLION}} million weights is
#   {{WEIGHT * LAYER / BILLION:.2f}} GB.
#
# </details>
#
# <details><summary><b>Where the two numbers come from</b></summary>
#
# **{{trained(LLAMA) / 1e12:.1f}} TB.** With the Adam optimizer in 16 bits, each parameter takes {{TRAINED}} bytes:
# {{WEIGHT}} for the weight, {{GRADIENT}} for its gradient, {{MASTER}} for a precise copy of the weight, and
# {{AVERAGE}} + {{AVERAGE}} for Adam's averages (ZeRO, arXiv 1910.02054). {{LLAMA / BILLION}} billion x {{TRAINED}}
# bytes = {{trained(LLAMA) / 1e12:.2f}} TB.
#
# **{{round(years, -1)}} years.** Training takes about {{OPERATIONS}} operations for each parameter and token (arXiv
# 2001.08361). Llama 3 70B saw {{tokens / 1e12}} trillion tokens (arXiv 2407.21783): {{OPERATIONS}} x
# {{LLAMA / BILLION}} billion x {{tokens / 1e12}} trillion = {{operations(LLAMA, tokens) / 1e24:.1f}} x 10²⁴ operations.
# An H100 does {{PEAK / 1e12}} x 10¹² a second at best, and in practice some {{REACHED:percent}} of that:
# {{PEAK * REACHED / 1e14:.0f}} x 10¹⁴. So the training takes {{operations(LLAMA, tokens) / PER_SECOND / 1e10:.1f}} x
# 10¹⁰ seconds.
#
# </details>

# %% tags=["figures"]
from lib import HIDDEN

from solutions.p00_basic import PUZZLE as first

tokens = published(15e12, "arXiv 2407.21783")
years = operations(LLAMA, tokens) / PER_SECOND / YEAR
most_gpus = 1_000
target = first["target"]["memory"]
