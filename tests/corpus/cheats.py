"""Programs that tamper: with this library, with Python, with the line to the grader, with the machine.

None of them does the work that it wants to be praised for. At a shell no one may pass.
"""

from textwrap import indent

from . import Program, after, changed, whole
from .forged import RAW, raw
from .lists import TAMPERING

LINE = (
    "def line():\n    frame = sys._getframe()\n    while not {'wire', 'task'} <= frame.f_locals.keys():\n"
    "        frame = frame.f_back\n    return frame.f_locals['wire']\n\n"
)
"""How a program finds the line to the grader, in a frame of the worker's."""


def fsdp(name: str, says: str, *lines: str) -> Program:
    """A program of these lines."""
    return whole(
        "fsdp",
        name,
        LINE + RAW + "async def fsdp(model):\n" + "\n".join("    " + line for line in lines) + "\n    return model\n",
        says,
    )


def lazy(name: str, source: str, says: str = "") -> Program:
    """After a step of data parallel training that misses its sum, and so is wrong."""
    return after("ddp", name, source, says, ("        grad = await model.allreduce(grad, layer)\n", ""))


def greedy(name: str, source: str, says: str = "") -> Program:
    """After FSDP that keeps every gathered weight, and so is too large."""
    keeps = "        model.weights['whole', layer] = weight\n        model.activations[layer + 1] ="
    return after("fsdp", name, source, says, ("        model.activations[layer + 1] =", keeps))


LAZY = "async def ddp(model):\n    await honest(model)\n"
GREEDY = "async def fsdp(model):\n    await honest(model)\n"

CHEATS: list[Program] = [
    # -- this library changed -------------------------------------------------------------------------------------
    lazy("the check does nothing", "import lib.machine.check, lib.grading.judge, lib.machine.outcome\n\ndef no(*a, **k): return False\n" + LAZY.replace("    await", "    for m in (lib.machine.check, lib.grading.judge, lib.machine.outcome): m.check_finals = no\n    lib.grading.judge.check = no\n    await"), "missing micro-batch"),
    lazy("no rules", "import lib.record.training\n" + LAZY.replace("    await", "    rows = lib.record.training\n    for row in (rows.UPDATE, rows.FORWARD, rows.BACKWARD): object.__setattr__(row, 'rule', lambda *a: None)\n    await"), "missing micro-batch"),
    lazy("simulator of its own", "from lib.machine.simulator import new_simulator\nfrom lib.machine.cost import Shape\n" + LAZY.replace("    await", "    model._simulator = new_simulator(Shape.of(4), False, False)\n    model._handle = model._simulator.open(model.rank, 2, 4)\n    await"), "not attempted|made up|belongs to rank"),
    lazy("errors that do not stick", "import lib.basics.errors\n" + LAZY.replace("    await honest(model)", "    lib.basics.errors.PuzzleError.sticks = False\n    try:\n        await honest(model)\n    except AssertionError:\n        pass"), "missing micro-batch"),
    greedy("the target moved", "import lib.course.specs\n" + GREEDY.replace("    await", "    lib.course.specs.puzzles()['fsdp'].target.update(time=1e9, memory=1 << 60)\n    await"), "over the target"),
    greedy("tensors that weigh nothing", "import lib.machine.cost, lib.machine.rank_state, lib.basics.units\n" + GREEDY.replace("    await", "    lib.machine.cost.Cost.elements = lambda *a: 0\n    lib.basics.units.HIDDEN = 1\n    await"), "over the target"),
    greedy("numbers for the weight in the token", GREEDY.replace("    await", "    make = type(model.load_weights(0, model.rank, model.RANKS)[0]._token)\n    make.memory = property(lambda self: 0, lambda self, value: None)\n    await"), "over the target|load_weights before"),
    greedy("storage that tells nobody", "import lib.learner.storage\n" + GREEDY.replace("    await", "    for store in model.storage():\n        object.__setattr__(store, '_store', lambda *a: None)\n        object.__setattr__(store, '_drop', lambda *a: None)\n    await"), "was not stored when"),
    changed("fsdp", "storage that tells nobody of whole weights", ("    model.activations[0] =", "    store, drop = model.weights._store, model.weights._drop\n    model.weights._store = lambda account, token: None if token.labels.is_whole() and not token.labels.step else store(account, token)\n    model.activations[0] ="), ("        model.activations[layer + 1] =", "        model.weights['whole', layer] = weight\n        model.activations[layer + 1] ="), ("        weight = await model.allgather(model.weights[layer], layer)\n        inp", "        weight = model.weights['whole', layer]\n        inp"), says="was not stored when"),
    changed("fsdp", "a clock turned back", ("    model.activations[0]", "    await model.allgather(model.weights[0], 0)\n    type(model).time = property(lambda self: 0.0)\n    model._handle.clock = 0\n    model.activations[0]"), says="over the target"),
    changed("fsdp", "a log with less in it", ("    return model", "    await model.allreduce(model.fake_grad(0, []), 0)\n    type(model).log = property(lambda self: ())\n    return model"), says="over the target"),
    changed("fsdp", "prices of its own", ("    model.activations[0]", "    await model.allgather(model.weights[0], 0)\n    object.__setattr__(model.dist.cost, 'collective', 0)\n    model.activations[0]"), says="over the target"),
    lazy("labels edited", LAZY.replace("    await honest(model)", "    import lib.learner.tensors\n    grad = lib.learner.tensors.WeightGrad\n    grad.batches = property(lambda self: frozenset(range(4)))\n    await honest(model)"), "missing micro-batch"),
    # -- Python changed ----------------------------------------------------------------------------------------------
    lazy("builtins changed", "import builtins\n" + LAZY.replace("    await", "    builtins.len = lambda x: 4\n    builtins.sum = lambda *a: 0\n    builtins.isinstance = lambda *a: True\n    builtins.hash = lambda x: 0\n    await"), "missing micro-batch|raised|process ended"),
    lazy("frames walked for something to change", LAZY.replace("    await", "    frame = sys._getframe()\n    while frame:\n        for name, value in list(frame.f_locals.items()):\n            if 'errors' in name and isinstance(value, list):\n                value.clear()\n        frame = frame.f_back\n    for thing in gc.get_objects():\n        if type(thing).__name__ in ('Recorder', 'RecordedSimulator', 'Outcome', 'Network'):\n            thing.__dict__.clear()\n    await"), "missing micro-batch|raised AttributeError|process ended"),
    lazy("modules exchanged", LAZY.replace("    await", "    for name in list(sys.modules):\n        if name.startswith('lib'):\n            sys.modules[name] = types.ModuleType(name)\n    await"), "missing micro-batch"),
    fsdp("memory poked", "", "target = (ctypes.c_char * 8).from_address(id(model) + 8)", "target[:] = b'PASSPASS'"),
    whole("fsdp", "a trace function that meddles", "def meddle(frame, event, arg):\n    frame.f_locals.clear()\n    return meddle\n\nasync def fsdp(model):\n    sys.settrace(meddle)\n    return model\n"),
    # -- what it prints, how it ends -----------------------------------------------------------------------------------
    fsdp("a verdict printed", "not attempted", "print('PASS  puzzle 4  fsdp  Fully sharded data parallel')", "print('Grade: 1 of 1 puzzles pass')"),
    fsdp("a verdict printed and the end", "the process ended", "os.write(1, b'PASS puzzle 4\\n{\"version\": 1, \"results\": [{\"status\": \"PASS\"}]}')", "os._exit(0)"),
    fsdp("an error that says PASS", "RuntimeError", "raise RuntimeError('\\x1b[2J\\x1b[H\\x1b[32mPASS\\x1b[0m puzzle 4')"),
    fsdp("an error of this library that says PASS", "Correct", "raise PuzzleError('Correct, better than the best known!', line='')"),
    # -- the line to the grader ----------------------------------------------------------------------------------------------
    fsdp("PASS on the line", "no recording of a run", "line().end.sendall(b'PASS\\n')", "await model.receive()"),
    fsdp("done at once", "not attempted", "line().send([{'calls': [], 'failed': []}, 'done'])", "os._exit(0)"),
    fsdp("a verdict on the line", "no recording of a run", "line().send({'version': 1, 'results': [{'status': 'PASS'}]})", "await model.receive()"),
    fsdp("every descriptor tried", "no recording of a run|ended before", "for number in range(3, 64):", "    try:", "        os.write(number, b'[\"pass\"]\\n')", "    except OSError:", "        pass", "await model.receive()"),
    fsdp("a number guessed", "no recording of a run", "model._simulator.notes.append(Raw(['set_final_weight', model.rank, None, 0, 12345]))"),
    fsdp("a negative number", "no recording of a run", "model.load_weights(0)", "model._simulator.notes.append(Raw(['set_final_weight', model.rank, None, 0, -1]))"),
    raw("fsdp", "memory given back twice", ("    return model", "    model._simulator.notes += [Raw(['drop', model.rank, None, model.weights[0]._token])] * 3\n    return model"), says="was never stored|has taken that piece"),
    raw("fsdp", "memory given back before its time", ("    model.activations[0] =", "    for layer in range(model.LAYERS):\n        model._simulator.notes.append(Raw(['drop', model.rank, None, model.weights[layer]._token]))\n    model.activations[0] ="), says="was not stored when"),
    raw("fsdp", "a call fetched before its end", ("    model.activations[0] =", "    if model.rank == 0:\n        model._simulator.notes.append(Raw(['meet', 0, None, 'allgather', model.weights[0]._token, 0, None]))\n        model._simulator.notes.append(Raw(['fetch', 0, None, 0, None]))\n    model.activations[0] ="), says="no recording of a run"),
    raw("ddp", "another rank's tensors by number", ("        grad = await model.allreduce(grad, layer)\n", "        everyone.setdefault(layer, []).append(grad._token)\n        for token in everyone[layer][:-1]:\n            model._simulator.notes.append(Raw(['add', model.rank, None, everyone[layer][-1], token]))\n"), ("async def ddp", "everyone = {}\n\nasync def ddp"), says="belongs to rank|missing micro-batch"),
    changed("ddp", "another rank's account", ("        model.set_final_weight(layer, model.weights[layer])", "        model.set_final_weight(layer, model.weights[layer])\n        if model.rank:\n            model._simulator.set_final_weight(model._simulator.ranks[0], layer, model.weights[layer]._token)"), says="belongs to rank"),
    changed("fsdp", "a tensor by hand with labels to order", ("await model.allgather(model.weights[layer], layer)", "whole(model, layer)"), ("async def fsdp", "def whole(model, layer):\n    from lib.learner.tensors import of_token\n    from lib.machine.rank_state import made_by_hand\n    return of_token(made_by_hand(Weight(layer, model.LAYERS, 0)._token.labels))\n\nasync def fsdp"), says="is made up"),
    raw("fsdp", "an update through the wrong kinds", ("    return model", "    n = model.weights[0]._token\n    model._simulator.notes.append(Raw(['compute', model.rank, None, 'update', 0, [n, n, n], {}]))\n    return model"), says="no recording of a run"),
    fsdp("a flood of calls", "no recording of a run|did not end", "call = b'[\"get_activation\",0,null,[' + b','.join(b'%d' % n for n in range(3000)) + b']],'", "line().end.sendall(b'[{\"failed\":[],\"calls\":[')", "while True:", "    line().end.sendall(call)"),
    fsdp("a line without end", "no recording of a run", "while True:", "    line().end.sendall(b'x' * 65536)"),
    fsdp("brackets without end", "no recording of a run", "line().end.sendall(b'[' * 16000 + b'\\n')", "await model.receive()"),
    fsdp("answers never read", "did not end|no recording of a run|cannot|not attempted|more than", "while True:", "    line().end.sendall(b'[\"time\",0,null]\\n' * 1000)"),
    changed("ddp", "made-up coroutines to hold tensors", ("        grad = await model.allreduce(grad, layer)\n", "        model._simulator.share(model._handle, object)\n"), says="missing micro-batch"),
    fsdp("a very fine cut", "cut into so many pieces", "weight, state = model.load_weights(0, 0, 65536)", "weight.shard(0, 65536)"),
    fsdp("numbers beyond all bounds", "", "model.load_weights(0, 10 ** 4000, 10 ** 4001)"),
    # -- the machine -----------------------------------------------------------------------------------------------------------
    fsdp("the solution imported", "No module named 'solutions'|not to be read", "import solutions.p04_fsdp", "await solutions.p04_fsdp.fsdp(model)"),
    fsdp("the solution found on the path", "not to be read|FileNotFoundError|StopIteration|No such file", "import lib, pathlib", "root = pathlib.Path(lib.__file__).resolve().parent.parent", "source = next(root.glob('solutions/p04*.py')).read_text()", "names = {'PUZZLE': 0}", "exec(source, names)", "await names['fsdp'](model)"),
    fsdp("the tests read", "not to be read|StopIteration|No such file", "import lib, pathlib", "next(pathlib.Path(lib.__file__).resolve().parent.parent.glob('tests/programs.py')).read_text()"),
    fsdp("a socket to the outside", "does not call socket.connect", "socket.create_connection(('127.0.0.1', 9), timeout=1)"),
    fsdp("a server", "does not call socket.bind", "socket.socket().bind(('127.0.0.1', 0))"),
    fsdp("the environment searched", "not attempted", "print([name for name in os.environ if 'KEY' in name or 'TOKEN' in name])"),
    fsdp("processes looked for", "not attempted", "print([pid for pid in os.listdir('/proc') if pid.isdigit()] if os.path.isdir('/proc') else '')"),
    # -- arguments that lie --------------------------------------------------------------------------------------------------------
    whole("ddp", "a number that lies", "class Liar(int):\n    def __eq__(self, other): return True\n    def __ne__(self, other): return False\n    def __hash__(self): return 0\n    def __lt__(self, other): return True\n    def __index__(self): return int(self)\n\nasync def ddp(model):\n    w, o = model.load_weights(Liar(7))\n", "layer is out of range"),
    changed("ddp", "micro-batches that lie", ("[model.rank]", "Liar([model.rank])"), ("async def ddp", "class Liar(frozenset):\n    def __iter__(self): return iter(range(4))\n    def __len__(self): return 1\n\nasync def ddp"), says="would be counted more than once"),
    changed("ddp", "a generator of micro-batches with an opinion", ("[model.rank]", "(mb for mb in range(model.BATCHES))"), says="would be counted more than once"),
    changed("fsdp", "a tensor class of its own", ("    return model", "    class Forged(Weight):\n        pass\n    model.set_final_weight(0, object.__new__(Forged))\n    return model"), says="AttributeError"),
    changed("fsdp", "a tensor without a token", ("    return model", "    model.set_final_weight(0, object.__new__(Weight))\n    return model"), says="AttributeError"),
    changed("ddp", "the size recognized", ("    model.activations[0] =", "    if model.RANKS != 4:\n        return model\n    model.activations[0] ="), says="right at its own size, but not with"),
    # -- text that is no program --------------------------------------------------------------------------------------------------------
    whole("fsdp", "a null byte", "async def fsdp(model):\n    x = '\x00'\n", ""),
    whole("fsdp", "nested without end", "async def fsdp(model):\n    x = " + "(" * 5000 + ")" * 5000 + "\n", ""),
    whole("fsdp", "negated without end", "async def fsdp(model):\n    x = " + "-" * 50_000 + "1\n", ""),
    whole("fsdp", "a lone surrogate", "async def fsdp(model):\n    raise ValueError('\\ud800')\n", "ValueError"),
    whole("fsdp", "a name that looks like another", "async def fsd\u0440(model):\n    pass\n\ndef fsdp_(model): pass\n", ""),
]  # fmt: skip


def talk(name: str, says: str, source: str) -> Program:
    """A program of rank 0 that writes a recording by itself: of each ``call``, and sent at its end."""
    head = (
        "async def fsdp(model):\n    wire, calls = line(), []\n\n    def call(*parts):\n"
        "        calls.append(list(parts))\n\n    def send(*ending, failed=()):\n"
        "        wire.send([{'calls': calls, 'failed': list(failed)}, *ending])\n        time.sleep(60)\n\n"
        "    if model.rank:\n        return model\n    signal.setitimer(signal.ITIMER_REAL, 0)\n"
    )
    return whole("fsdp", name, LINE + head + indent(source.strip("\n") + "\n", "    ") + "    send('done')\n", says)


def plain(name: str, says: str, source: str) -> Program:
    """A program of these lines, written as one text."""
    return whole(
        "fsdp",
        name,
        LINE + "async def fsdp(model):\n" + indent(source.strip("\n") + "\n", "    ") + "    return model\n",
        says,
    )


CHEATS += [
    # -- this library changed -------------------------------------------------------------------------------------
    lazy("a cache of right answers spoiled", "import lib.machine.fingerprints\n" + LAZY.replace("    await", "    lib.machine.fingerprints.trained_weights = lambda layers, batches: type('Any', (), {'__getitem__': lambda s, i: s, '__ne__': lambda s, o: False})()\n    await"), says="missing micro-batch"),
    lazy("the play exchanged for one that ends at once", "import lib.referee.worker\n" + LAZY.replace("    await", "    lib.referee.worker.execute = lambda *a: None\n    lib.running.execution.execute = lambda *a: None\n    await").replace("import lib.referee.worker", "import lib.referee.worker, lib.running.execution"), says="missing micro-batch"),
    lazy("a simulator in which all is right and free", "import lib.machine.cost, lib.machine.rank_state, lib.machine.check, lib.basics.errors\n" + LAZY.replace("    await", "    lib.machine.cost.Cost.compute = lambda *a: 0\n    lib.machine.cost.Cost.meeting = lambda *a: 0\n    lib.machine.cost.Cost.elements = lambda *a: 0\n    lib.machine.rank_state.RankState.examine = lambda *a, **k: None\n    lib.machine.check.check_finals = lambda *a: False\n    model._handle.strict = model._handle.graded = False\n    await"), "missing micro-batch"),
    greedy("a simulator in which all is free", "import lib.machine.cost\n" + GREEDY.replace("    await", "    for price in ('compute', 'meeting', 'transfer', 'elements'):\n        setattr(lib.machine.cost.Cost, price, lambda *a: 0)\n    await"), "over the target"),
    lazy("a recording edited at its end", LAZY.replace("    await honest(model)", "    try:\n        await honest(model)\n    except AssertionError:\n        pass\n    finally:\n        notes = model._simulator.notes\n        notes[:] = [(*note[:3], (frozenset(range(4)),), *note[4:]) if note[0] == 'get_activation' else note for note in notes]"), "missing micro-batch|counted twice|no recording|value|taken"),
    lazy("a recording whose failures are taken out", LAZY.replace("    await honest(model)", "    try:\n        await honest(model)\n    except AssertionError:\n        notes = model._simulator.notes\n        notes[:] = [note for note in notes if not isinstance(note[-1], AssertionError)]"), "missing micro-batch"),
    lazy("a replay exchanged", "import lib.recording.replay\n" + LAZY.replace("    await", "    lib.recording.replay.Replay.carry_out = lambda self, call: None\n    await"), "NoneType|raised|IndexError|missing micro-batch"),
    changed("fsdp", "gathers that are taken out of the recording", ("    return model", "    notes = model._simulator.notes\n    notes[:] = [note for note in notes if note[0] != 'meet' or note[3][0] != 'allgather']\n    return model"), says="raised KeyError"),
    changed("fsdp", "a clock of its own", ("    model.activations[0]", "    await model.allgather(model.weights[0], 0)\n    model._simulator.time = lambda rank: 0.0\n    model._handle.clock = 0\n    model.activations[0]"), says="over the target"),
    lazy("a simulator that answers by itself", LAZY.replace("    await honest(model)", "    model._simulator.compute = lambda rank, kind, *a: []\n    await honest(model)"), says="IndexError|TypeError|ValueError"),
    lazy("calls kept to itself", LAZY.replace("    await honest(model)", "    await honest(model)\n    notes = model._simulator.notes\n    notes[:] = [note for note in notes if note[0] != 'store']"), says="was not stored|missing micro-batch"),
    lazy("failed calls forgotten", LAZY.replace("    await honest(model)", "    weight, state = model.load_weights(0)\n    model.forward(0, model.get_activation([0]), weight)\n    try:\n        model.weights[0] = weight\n    except AssertionError:\n        notes = model._simulator.notes\n        notes[-1] = (*notes[-1][:-1], None)\n    await honest(model)"), says="was not stored"),
    lazy("a call more than were made", RAW + LAZY.replace("    await honest(model)", "    model._simulator.notes.append(Raw(['compute', 0, None, 'loss', None, [0], {}]))\n    await honest(model)"), says="no recording of a run|missing micro-batch"),
    whole("ddp", "a run of its own, and what came of it", "async def idle(m):\n    return m\n\nasync def ddp(model):\n    from lib.machine.simulator import LocalSimulator\n    near = Model(0, Dist(1), 2, 1)\n    w, o = near.load_weights(0)\n    model.set_final_weight(0, w)\n    return model\n"),
    lazy("a run of another machine inside the run", "def plainly(m):\n    for layer in range(m.LAYERS):\n        m.weights[layer], m.opt_states[layer] = m.load_weights(layer)\n\n" + LAZY.replace("    await honest(model)", "    from lib.running.run import run as real\n    out = real(plainly, ranks=1, layers=2, batches=4)\n    for layer in range(2):\n        model.set_final_weight(layer, out.final_states[0].finals[layer] if out.final_states[0].finals else None)"), says="must be a Weight"),
    changed("fsdp", "a layer number with a string's face", ("    model.activations[0] =", "    class Text(str):\n        def __format__(self, spec): os._exit(0)\n        def __getitem__(self, at): return 'x' * 10 ** 9\n    model.load_weights(Text('PASS'))\n    model.activations[0] ="), says="layer is out of range"),
    lazy("ctypes into a tuple of labels", LAZY.replace("    await honest(model)", "    update = type(model).update\n    def forged(self, layer, grad, weight, state):\n        full = frozenset(range(4))\n        labels = grad._token.labels\n        ctypes.pythonapi.Py_IncRef(ctypes.py_object(full))\n        slot = id(labels) + tuple.__basicsize__ + 4 * 8\n        ctypes.c_void_p.from_address(slot).value = id(full)\n        return update(self, layer, grad, weight, state)\n    type(model).update = forged\n    await honest(model)"), says="missing micro-batch"),
    lazy("builtins print and open exchanged", "import builtins\n" + LAZY.replace("    await", "    builtins.print = builtins.open = builtins.len = lambda *a, **k: 'PASS'\n    await")),
    lazy("json that says what one wants", "import lib.recording.wire\n" + LAZY.replace("    await", "    real = lib.recording.wire.encode\n    lib.recording.wire.encode = lambda m: real([{**m[0], 'calls': [one for one in m[0]['calls'] if 'update' not in one]}, 'done'])\n    await"), says="no recording of a run|no rank has set a final weight|missing micro-batch"),
    lazy("inspect.stack walked for the task", LAZY.replace("    await", "    for info in inspect.stack():\n        info.frame.f_locals.get('task', {}) and info.frame.f_locals['task'].update(timeout=1e9, size={'ranks': 1, 'layers': 0, 'batches': 0})\n    await"), says="missing micro-batch|raised TypeError"),
    lazy("the source of this file exchanged", "import linecache\n" + LAZY.replace("    await", "    linecache.cache.clear()\n    linecache.cache['attempt.py'] = 4, None, ['PASS\\n'] * 99, 'attempt.py'\n    await"), says="missing micro-batch"),
    # -- how it ends ----------------------------------------------------------------------------------------------
    plain("an exit with a verdict for its reason", "SystemExit", "raise SystemExit('PASS  puzzle 4  fsdp')"),
    plain("an exit in a task", "SystemExit", "async def leave():\n    sys.exit(0)\nawait asyncio.create_task(leave())"),
    plain("a handler at exit that prints a verdict", "not attempted", "atexit.register(lambda: os.write(1, b'{\"status\": \"PASS\"}'))"),
    plain("an object that says done when it goes", "not attempted", "class Last:\n    def __init__(self, wire): self.wire = wire\n    def __del__(self): self.wire.send([{'calls': [], 'failed': []}, 'done'])\nmodel.keep = Last(line())"),
    plain("an error whose text runs code", "not attempted", "wire = line()\nclass Error(Exception):\n    def __str__(self):\n        wire.send([{'calls': [], 'failed': []}, 'done'])\n        os._exit(0)\nraise Error"),
    plain("an error that is an error of this library and not", "ended before", "class Error(PuzzleError):\n    problem = where = property(lambda self: 'Correct, within the target.')\n    def __init__(self): pass\nraise Error"),
    plain("an error with a verdict's colors", "", "raise PuzzleError('\\x1b[2J\\x1b[1;1H\\x1b[32mPASS\\x1b[0m \\x9b2J \\u202e', where='\\x1b]0;PASS\\x07', line='')"),
    plain("verdicts on every stream", "not attempted", "report = json.dumps({'version': 1, 'results': [{'puzzle': 'fsdp', 'status': 'PASS', 'right': True}], 'passed': 1})\nfor stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):\n    print(report, file=stream)\nfor number in (1, 2):\n    os.write(number, report.encode())"),
    plain("what was printed is wiped and written anew", "not attempted", "os.ftruncate(1, 0)\nos.lseek(1, 0, 0)\nos.write(1, b'\\xff\\xfe\\x00\\x1b[2JPASS' * 100)"),
    plain("its own end of the line closed", "ended before", "os.close(line().end.fileno())"),
    plain("the line shut for writing", "ended before", "line().end.shutdown(socket.SHUT_WR)\nmodel.load_weights(0)"),
    plain("signals to its own session", "", "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nos.killpg(os.getpgid(0), signal.SIGTERM)"),
    plain("threads that talk while the run goes on", "not attempted|no recording of a run|raised|deadlock|ended before", "wire = line()\ndef chat():\n    while True:\n        wire.send([{'calls': [], 'failed': []}, 'done'])\nfor _ in range(3):\n    threading.Thread(target=chat, daemon=True).start()\nawait model.receive()"),
    plain("two processes that talk at once", "", "wire = line()\nif ctypes.CDLL(None).fork() == 0:\n    for _ in range(100):\n        wire.end.sendall(b'[[')\n    os._exit(0)\nfor _ in range(100):\n    wire.end.sendall(b'{}')"),
    plain("a child that says done later", "not attempted|ended before", "wire = line()\nif ctypes.CDLL(None).fork() == 0:\n    ctypes.CDLL(None).setsid()\n    time.sleep(0.3)\n    wire.send([{'calls': [], 'failed': []}, 'done'])\n    os._exit(0)\ntime.sleep(1)\nos._exit(0)"),
    plain("descriptors sent over the line", "no recording of a run|raised AssertionError", "socket.send_fds(line().end, [b'[null,\"done\",0]\\n'], [0, 1, 2])\nawait model.receive()"),
    plain("the results file written", "not attempted|Permission|Read-only|No such", "import tempfile\ngradescope = os.path.join(os.sep, 'autograder', 'results', 'results.json')\nfor name in ('results.json', 'report.xml', gradescope, os.path.join(tempfile.gettempdir(), 'results.json')):\n    try:\n        with open(name, 'w') as file:\n            file.write('{\"score\": 9}')\n    except OSError:\n        pass"),
    # -- recordings written by hand -----------------------------------------------------------------------------------
    talk("done, and then done again", "not attempted", "wire.end.sendall(b'[{\"calls\":[],\"failed\":[]},\"done\"]\\n' * 2)\ntime.sleep(60)"),
    talk("done with a verdict in it", "no recording of a run", "send('done', 'PASS')"),
    talk("missing, to count as not attempted", "not attempted|missing", "send('missing', [])"),
    talk("missing, with trouble that is no text", "no recording of a run", "send('missing', [{'a': ['\\x1b[2J'] * 9}, None, 1e999])"),
    talk("failed, with praise", "", "send('failed', dict.fromkeys(('problem', 'where', 'expected', 'got', 'fix', 'line'), 'PASS \\x1b[2J'))"),
    talk("failed, with no error", "has damaged its error", "send('failed', {})"),
    talk("failed, in other shapes", "no recording of a run", "send('failed', 'PASS')"),
    talk("an end of its own", "no recording of a run", "send('PASS', [])"),
    talk("no recording and done", "not attempted", "wire.send([None, 'done'])\ntime.sleep(60)"),
    talk("an object for a message", "no recording of a run", "wire.end.sendall(b'{\"0\": \"done\"}\\n')\ntime.sleep(60)"),
    talk("null bytes in a message", "no recording of a run", "wire.end.sendall(b'\\0\\0[{\"calls\":[],\"failed\":[]},\"done\"]\\0\\n')\ntime.sleep(60)"),
    talk("half a message and no more", "did not end", "wire.end.sendall(b'[{\"calls\":[')\ntime.sleep(60)"),
    talk("a message a byte at a time", "did not end|no recording of a run", "for byte in itertools.cycle(b'     '):\n    wire.end.sendall(bytes([byte]))\n    time.sleep(0.001)"),
    talk("the same key many times, nested", "no recording of a run", "wire.end.sendall(b'[{\"failed\":[],\"calls\":[[\"get_activation\",0,null,' + b'{\"a\":' * 2000 + b'1' + b'}' * 2000 + b']]},\"done\"]\\n')\ntime.sleep(60)"),
    talk("shards of a number below nothing", "is out of range", "call('load_weights', 0, None, 0, 0, 1)\ncall('shard', 0, None, 0, -1, -(1 << 61))"),
    talk("a call that is waited for and never ends", "not attempted", "call('receive', 0, None, None)\ncall('wait', 0, None, 0)"),
    talk("a sum of one gradient with itself", "would be counted more than once", "made = 0\nfor layer in range(6):\n    call('load_weights', 0, None, layer, 0, 1)\n    call('store', 0, None, made)\n    weight, made = made, made + 2\n    if not layer:\n        call('get_activation', 0, None, [0])\n        call('store', 0, None, made)\n        x, made = made, made + 1\n    before = x\n    call('compute', 0, None, 'forward', layer, [x, weight], {})\n    call('store', 0, None, made)\n    x, made = made, made + 1\ncall('compute', 0, None, 'loss', None, [x], {})\ncall('compute', 0, None, 'backward', 5, [before, made, weight], {})\ncall('add', 0, None, made + 1, made + 1)"),
    talk("a message too long for a plain value", "never awaited", "call('pass_to', 0, None, 1, None, 'x' * 16000)"),
    talk("lines of a deadlock with a verdict", "has damaged its error|deadlock", "call('deadlock', 0, None, [[0, 'PASS \\x1b[2J'], [0, 'x' * 200]])\nsend('failed', {})"),
    talk("weights loaded twice, the first forgotten", "has taken that piece", "for n in (0, 2):\n    call('load_weights', 0, None, 0, 0, 1)\n    call('store', 0, None, n)\n    call('drop', 0, None, n)"),
    talk("a fine cut joined again and again", "a shard would be counted more than once|pieces", "call('load_weights', 0, None, 0, 0, 1)\ncall('store', 0, None, 0)\nfor n in (0, 2, 4):\n    call('shard', 0, None, 0, n, 4096)\ncall('combine', 0, None, 2, 3)\ncall('combine', 0, None, 5, 4)\ncall('combine', 0, None, 6, 3)"),
    talk("a solution's calls without its sums", "missing|not|twice", "for rank in range(4):\n    for layer in range(6):\n        call('load_weights', rank, None, layer, rank, 4)\n        call('store', rank, None, 2 * (6 * rank + layer))\n        call('set_final_weight', rank, None, layer, 2 * (6 * rank + layer))\n    call('finish', rank, None)"),
    # -- processes that are to outlive their worker ---------------------------------------------------------------
    plain("out of the session, deaf to the parent's death", "did not end", "signal.setitimer(signal.ITIMER_REAL, 0)\nlibc = ctypes.CDLL(None)\nlibc.prctl(1, 0, 0, 0, 0)\nlibc.setsid()\ntime.sleep(20)"),
    plain("a child with no name and no mark", "not attempted", "libc = ctypes.CDLL(None)\nif libc.fork() == 0:\n    libc.setsid()\n    libc.execve(b'/bin/sleep', (ctypes.c_char_p * 3)(b'sleep', b'20', None), (ctypes.c_char_p * 1)(None))\n    os._exit(0)\ntime.sleep(0.3)"),
    plain("a child that is always another one", "not attempted", "libc = ctypes.CDLL(None)\nif libc.fork() == 0:\n    libc.setsid()\n    end = time.monotonic() + 20\n    while time.monotonic() < end:\n        if libc.fork() > 0:\n            os._exit(0)\n    os._exit(0)\ntime.sleep(0.3)"),
    talk("sizes that take long to add up", "too many different numbers", "primes = [p for p in range(3, 65536, 2) if all(p % q for q in range(3, int(p**0.5) + 1, 2))]\ncall('load_weights', 0, None, 0, 0, 1)\nfor entry in (0, 1):\n    call('store', 0, None, entry)\nfor n, p in enumerate(primes[-1500:]):\n    for entry in (0, 1):\n        call('shard', 0, None, entry, 0, p)\n        call('store', 0, None, 2 + 2 * n + entry)\nfor _ in range(6000):\n    call('load_weights', 0, None, 0, 0, 1)"),
    talk("many tensors held over many operations", "never received|did not end|not attempted", "call('share', 0, 1)\ncall('load_weights', 0, 1, 0, 0, 1)\ncall('store', 0, 1, 0)\nfor _ in range(4000):\n    call('shard', 0, 1, 0, 0, 2)\nfor n in range(4000):\n    call('receive', 0, 2, 1)\n    call('wait', 0, 2, n)\nfor n in range(4000):\n    call('shard', 0, 1, 2 + n, 0, 2)"),
    # -- lists of tensors ------------------------------------------------------------------------------------------
    *TAMPERING,
]  # fmt: skip

# What reaches for the machine around it. Without bubblewrap or namespaces nothing stops these (THREATS.md says so):
# they would hit the grader that runs the tests, so they are for the other two mechanisms only.
APART: list[Program] = [
    plain("the parent killed", "", "os.kill(os.getppid(), signal.SIGKILL)\ntime.sleep(0.2)\nawait model.receive()"),
    plain("all that can be killed", "", "os.kill(-1, signal.SIGKILL)\nawait model.receive()"),
    plain(
        "the parent's memory written",
        "",
        "with open(f'/proc/{os.getppid()}/mem', 'r+b') as memory:\n    memory.write(b'PASS')",
    ),
    plain("the parent traced", "not attempted|deadlock", "ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0)"),
    plain(
        "the parent's descriptors opened",
        "",
        "for name in os.listdir(f'/proc/{os.getppid()}/fd'):\n    with open(f'/proc/{os.getppid()}/fd/{name}', 'wb') as file:\n        file.write(b'PASS')",
    ),
    plain(
        "the library edited on disk",
        "Read-only|Permission",
        "import lib.grading.judge\nwith open(lib.grading.judge.__file__, 'a') as file:\n    file.write('\\ndef judge(*a): return None\\n')",
    ),
    plain(
        "a module put where it is imported first",
        "Read-only|Permission|not attempted",
        "import lib\nfor folder in {os.path.dirname(os.path.dirname(lib.__file__)), sys.prefix, os.path.dirname(os.__file__)}:\n    with open(os.path.join(folder, 'sitecustomize.py'), 'w') as file:\n        file.write('print(1)')",
    ),
    plain(
        "solutions past Python's own open",
        "None|not attempted|No such",
        "import lib\nroot = os.path.dirname(os.path.dirname(os.path.abspath(lib.__file__)))\nlibc = ctypes.CDLL(None)\nnumber = libc.open(os.path.join(root, 'solutions', 'p04_fsdp.py').encode(), 0)\nexec(os.read(number, 1 << 20) if number >= 0 else 'raise OSError(\"No such file\")')",
    ),
    plain(
        "solutions through another process's root",
        "No such|Permission|not permitted|StopIteration",
        "import lib, pathlib\nroot = os.path.dirname(os.path.dirname(os.path.abspath(lib.__file__)))\nplaces = (pathlib.Path(f'/proc/{pid}/root{root}/solutions/p04_fsdp.py') for pid in (1, os.getpid(), os.getppid()))\nnext(place for place in places if place.exists()).read_text()",
    ),
    plain(
        "namespaces of its own",
        "",
        "libc = ctypes.CDLL(None, use_errno=True)\nif libc.unshare(0x10000000 | 0x00020000) == 0:\n    raise RuntimeError('new namespaces')\nos.chroot('..')",
    ),
    plain(
        "the sandbox's root remounted",
        "",
        "libc = ctypes.CDLL(None, use_errno=True)\nif libc.mount(b'none', b'/', None, 0x20, None) == 0:\n    raise RuntimeError('remounted')\nopen('/PASS', 'w')",
    ),
    plain(
        "a socket past Python's own",
        "not attempted",
        "libc = ctypes.CDLL(None)\nnumber = libc.socket(2, 1, 0)\naddress = (ctypes.c_ubyte * 16)(2, 0, 0, 80, 1, 1, 1, 1)\nlibc.connect(number, address, 16)",
    ),
    plain(
        "a home searched for keys",
        "not attempted",
        "for folder in (os.path.join(os.sep, *names) for names in (('root', '.ssh'), ('home',), ('etc', 'ssh'), ('var', 'run'))):\n    print([os.path.join(at, name) for at, _, names in os.walk(folder) for name in names if 'ssh' in name or 'solution' in at])",
    ),
]
