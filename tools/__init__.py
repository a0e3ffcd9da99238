"""Programs that measure the project and are no tests of it. Nothing in lib, drawing or solutions imports them.

bench              the cost of a run, beside bare asyncio and the last release (`make bench`)
bench_drawing      the cost of a picture, beside writing the same strings
bench_engines      what engines with real tensors make of the solutions
published          figures that others have measured and published
papers             these figures beside ours (`make papers`)
papers_picture     the differences as a picture
mutants            how many small mistakes in lib the tests notice (`make mutants`)
tasks              puzzles as tasks for agents: instruction, containers, verifier, solution
variants           puzzles with other sizes, prices and targets, drawn from a seed
pythons            the notebooks on every Python that this machine has, with the newest packages (`make test-all`)
"""
