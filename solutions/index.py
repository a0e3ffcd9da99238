# %% [markdown]
# # LLM training puzzles
#
# How do many GPUs train one large model together? Here you find out by doing it. In each puzzle you write one short
# Python function. A simulated machine of 1 to 1,000 GPUs runs it, draws what happened, measures time and peak memory
# against a target, and says whether it really trains the model, and if not, what to change.
#
# ![the course](picture:course)
#
# Begin with the [tour of the machine](machine_tour.ipynb). Then, one after the other:
#
# 0. [Plain training](p00_basic.ipynb): one step, on one GPU
# 1. [Gradient accumulation](p01_grad_accum.ipynb): the batch in pieces, one after the other
# 2. [Distributed data parallel](p02_ddp.ipynb): the batch in pieces, side by side
# 3. [Weight-sharded data parallel](p03_wsdp.ipynb): nobody keeps a whole weight
# 4. [Fully sharded data parallel](p04_fsdp.ipynb): nor a whole gradient
# 5. [Pipeline parallel](p05_pipeline.ipynb): every GPU has some of the layers
# 6. [GPipe](p06_gpipe.ipynb): pieces of the batch follow one another through the pipeline
# 7. [Pipeline and FSDP](p07_pipeline_fsdp.ipynb): both at once
# 8. [Replica-FSDP](p08_replica_fsdp.ipynb): two boxes, with slow links between them
#
# And whenever you like: [What is wrong here?](repairs.ipynb), eight short programs, R1 to R8, with a mistake in
# each, for the detective in you. The first takes puzzle 1, the last puzzle 8. When you have solved puzzle 4: [For real](for_real.ipynb), your function on real
# processes with real tensors.
#
# Times are in *ticks*: one micro-batch forward through one layer takes one. Memory is in *elements*.
#
# ## Pass and star
#
# Each puzzle has two pairs of ticks and elements. Within the **target** you pass: it leaves some slack, so a first idea
# that is right often does. The **star** ★ is tight: within both of its figures at once there is only room for a deeper
# idea, or a second one. What is missing to it, your verdict says. You can go on without it and come back with what later
# puzzles teach. (For the star of puzzle 0 it takes puzzle 1's idea; in puzzle 1 a pass is the star. Programs to be repaired
# have none.)

# %%
from drawing import draw_course
from lib import progress

# How far you are. (Run this cell again after a while.)
draw_course(progress().solved, progress().starred)

# %%
progress()

# %% [markdown]
# ## What helps
#
# - `draw(run(...))` draws a schedule, `play(run(...))` steps through it, with the line of your code that each rank is at.
# - `grade(fsdp)` tells what is wrong, or how good it is. `hint("fsdp")` gives one hint at a time, the second with half
#   of a schedule. `solution("fsdp")` shows ours, once you have yours.
# - Too slow? `beside_target(run(...))` draws your schedule beside the outline of the target's.
# - `from drawing import reference`, then `reference()`: everything there is on one page, with what it costs.
# - `print` in your function says which rank prints, and at which tick of its clock; `model.status()` prints what it holds.
#   An error names the rank, the operation and your line. Below it is the run up to there, with a flag where the error is,
#   and with the ranks that wait hatched in red.
# - At a shell, in the project's folder: `.venv/bin/python -m lib grade` grades these notebooks,
#   `.venv/bin/python -m lib start 4 my_fsdp.py` begins a puzzle as a script, and
#   `.venv/bin/python -m lib watch my_fsdp.py` grades it whenever you save it.
