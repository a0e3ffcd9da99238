"""Programs that tamper: with this library, with Python, with the line to the grader, with the machine.

None of them does the work that it wants to be praised for. At a shell no one may pass.
"""

from __future__ import annotations

from textwrap import indent

from . import Program, after, changed, whole
from .lists import TAMPERING


def fsdp(name: str, says: str, *lines: str) -> Program:
    """A program of these lines."""
    return whole(
        "fsdp",
        name,
        "async def fsdp(model):\n" + "\n".join("    " + line for line in lines) + "\n    return model\n",
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
    lazy("simulator of its own", "from lib.machine.simulator import new_simulator\nfrom lib.machine.cost import Shape\n" + LAZY.replace("    await", "    model._simulator = new_simulator(Shape.of(4), False, False)\n    model._handle = model._simulator.open(model.rank, 2, 4)\n    await"), "not attempted|made up"),
    lazy("rules off in the simulator", LAZY.replace("    await", "    model._simulator.strict = model._simulator.graded = False\n    await"), "missing micro-batch"),
    lazy("errors that do not stick", "import lib.basics.errors\n" + LAZY.replace("    await honest(model)", "    lib.basics.errors.PuzzleError.sticks = False\n    try:\n        await honest(model)\n    except AssertionError:\n        pass"), "missing micro-batch"),
    lazy("a verdict of its own", "import lib.grading.verdict\n" + LAZY.replace("    await", "    lib.grading.verdict.Verdict.status = 'PASS'\n    await"), "missing micro-batch"),
    lazy("targets and layouts changed", "import lib.course.specs, lib.course.layouts\n" + LAZY.replace("    await", "    lib.course.specs.puzzles()['ddp'].target.update(time=1e9, memory=1 << 60)\n    lib.course.layouts.LAYOUTS['whole'] = lambda *a: []\n    await"), "missing micro-batch"),
    greedy("the target moved", "import lib.course.specs\n" + GREEDY.replace("    await", "    lib.course.specs.puzzles()['fsdp'].target.update(time=1e9, memory=1 << 60)\n    await"), "over the target"),
    greedy("tensors that weigh nothing", "import lib.machine.cost, lib.machine.rank_state, lib.basics.units\n" + GREEDY.replace("    await", "    lib.machine.cost.Cost.elements = lambda *a: 0\n    lib.basics.units.HIDDEN = 1\n    await"), "over the target"),
    greedy("numbers for the weight in the token", GREEDY.replace("    await", "    make = type(model.load_weights(0, model.rank, model.RANKS)[0]._token)\n    make.memory = property(lambda self: 0, lambda self, value: None)\n    await"), "over the target|load_weights before"),
    greedy("storage that tells nobody", "import lib.learner.storage\n" + GREEDY.replace("    await", "    for store in model.storage():\n        object.__setattr__(store, '_store', lambda *a: None)\n        object.__setattr__(store, '_drop', lambda *a: None)\n    await"), "was not stored when"),
    changed("fsdp", "storage that tells nobody of whole weights", ("    model.activations[0] =", "    store, drop = model.weights._store, model.weights._drop\n    model.weights._store = lambda account, token: None if token.labels.is_whole() and not token.labels.step else store(account, token)\n    model.activations[0] ="), ("        model.activations[layer + 1] =", "        model.weights['whole', layer] = weight\n        model.activations[layer + 1] ="), ("        weight = await model.allgather(model.weights[layer], layer)\n        inp", "        weight = model.weights['whole', layer]\n        inp"), says="was not stored when"),
    changed("fsdp", "a clock turned back", ("    model.activations[0]", "    await model.allgather(model.weights[0], 0)\n    type(model).time = property(lambda self: 0.0)\n    model._handle.clock = 0\n    model.activations[0]"), says="over the target"),
    changed("fsdp", "a log with less in it", ("    return model", "    await model.allreduce(model.fake_grad(0, []), 0)\n    type(model).log = property(lambda self: ())\n    return model"), says="over the target"),
    changed("fsdp", "prices of its own", ("    model.activations[0]", "    await model.allgather(model.weights[0], 0)\n    object.__setattr__(model.dist.cost, 'collective', 0)\n    model.activations[0]"), says="over the target"),
    lazy("labels edited", LAZY.replace("    await honest(model)", "    import lib.learner.tensors\n    grad = lib.learner.tensors.WeightGrad\n    grad.batches = property(lambda self: frozenset(range(4)))\n    await honest(model)"), "missing micro-batch"),
    lazy("labels in the token edited", "def full(self, *a):\n    return self\n\n" + LAZY.replace("    await honest(model)", "    update = type(model).update\n    def forged(self, layer, grad, weight, state):\n        grad._token.labels = grad._token.labels._replace(batches=frozenset(range(4)))\n        return update(self, layer, grad, weight, state)\n    type(model).update = forged\n    await honest(model)"), "missing micro-batch"),
    lazy("code objects exchanged", "import lib.running.execution\n" + LAZY.replace("    await", "    lib.running.execution.execute.__code__ = (lambda fn, models, timeout, order=None: None).__code__\n    await"), "missing micro-batch|TypeError"),
    # -- Python changed ----------------------------------------------------------------------------------------------
    lazy("builtins changed", "import builtins\n" + LAZY.replace("    await", "    builtins.len = lambda x: 4\n    builtins.sum = lambda *a: 0\n    builtins.isinstance = lambda *a: True\n    builtins.hash = lambda x: 0\n    await"), "missing micro-batch|raised|process ended"),
    lazy("frames walked for something to change", LAZY.replace("    await", "    frame = sys._getframe()\n    while frame:\n        for name, value in list(frame.f_locals.items()):\n            if 'errors' in name and isinstance(value, list):\n                value.clear()\n        frame = frame.f_back\n    for thing in gc.get_objects():\n        if type(thing).__name__ in ('Clerk', 'LocalSimulator', 'Outcome', 'RankState'):\n            thing.__dict__.clear()\n    await"), "missing micro-batch"),
    lazy("modules exchanged", LAZY.replace("    await", "    for name in list(sys.modules):\n        if name.startswith('lib'):\n            sys.modules[name] = types.ModuleType(name)\n    await"), "missing micro-batch"),
    fsdp("memory poked", "", "target = (ctypes.c_char * 8).from_address(id(model) + 8)", "target[:] = b'PASSPASS'"),
    whole("fsdp", "a trace function that meddles", "def meddle(frame, event, arg):\n    frame.f_locals.clear()\n    return meddle\n\nasync def fsdp(model):\n    sys.settrace(meddle)\n    return model\n"),
    # -- what it prints, how it ends -----------------------------------------------------------------------------------
    fsdp("a verdict printed", "not attempted", "print('PASS  puzzle 4  fsdp  Fully sharded data parallel')", "print('Grade: 1 of 1 puzzles pass')"),
    fsdp("a verdict printed and the end", "the process ended", "os.write(1, b'PASS puzzle 4\\n{\"version\": 1, \"results\": [{\"status\": \"PASS\"}]}')", "os._exit(0)"),
    fsdp("an error that says PASS", "RuntimeError", "raise RuntimeError('\\x1b[2J\\x1b[H\\x1b[32mPASS\\x1b[0m puzzle 4')"),
    fsdp("an error of this library that says PASS", "Correct", "raise PuzzleError('Correct, better than the best known!', line='')"),
    # -- the line to the grader ----------------------------------------------------------------------------------------------
    fsdp("PASS on the line", "written to the line", "model._simulator.wire.end.sendall(b'PASS\\n')", "await model.receive()"),
    fsdp("done at once", "not attempted", "model._simulator.wire.send(['done'])", "os._exit(0)"),
    fsdp("a verdict on the line", "written to the line", "model._simulator.wire.send({'version': 1, 'results': [{'status': 'PASS'}]})", "await model.receive()"),
    fsdp("every descriptor tried", "written to the line|ended before", "for number in range(3, 64):", "    try:", "        os.write(number, b'[\"pass\"]\\n')", "    except OSError:", "        pass", "await model.receive()"),
    fsdp("a number guessed", "written to the line", "model._simulator.ask('set_final_weight', model._handle, 0, 12345)"),
    fsdp("a negative number", "written to the line", "model.load_weights(0)", "model._simulator.ask('set_final_weight', model._handle, 0, -1)"),
    fsdp("a token forged", "written to the line", "from lib.remote.remote_simulator import RemoteTensor", "weight, _ = model.load_weights(0, model.rank, model.RANKS)", "token = weight._token", "forged = RemoteTensor(model._simulator, model._handle, token.number + 7, token.labels, 0)", "model._simulator.set_final_weight(model._handle, 0, forged)"),
    changed("fsdp", "memory given back twice", ("    return model", "    token = model.weights[0]._token\n    for _ in range(3):\n        model._simulator.ask('drop', model._handle, token.number)\n    return model"), says="was never stored|has taken that piece"),
    changed("fsdp", "memory given back before its time", ("    model.activations[0] =", "    for layer in range(model.LAYERS):\n        model._simulator.ask('drop', model._handle, model.weights[layer]._token.number)\n    model.activations[0] ="), says="was not stored when"),
    changed("fsdp", "a call fetched before its end", ("    model.activations[0] =", "    if model.rank == 0:\n        flight = model._simulator.meet(model._handle, 'allgather', model.weights[0]._token, 0, None)\n        model._simulator.ask('fetch', model._handle, flight.number)\n    model.activations[0] ="), says="written to the line"),
    changed("ddp", "another rank's tensors by number", ("        grad = await model.allreduce(grad, layer)\n", "        everyone.setdefault(layer, []).append(grad._token.number)\n        for number in everyone[layer][:-1]:\n            model._simulator.ask('add', model._handle, grad._token.number, number)\n"), ("async def ddp", "everyone = {}\n\nasync def ddp"), says="belongs to rank|missing micro-batch"),
    changed("ddp", "another rank's account", ("        model.set_final_weight(layer, model.weights[layer])", "        model.set_final_weight(layer, model.weights[layer])\n        if model.rank:\n            from lib.remote.remote_simulator import RemoteRank\n            model._simulator.ask('set_final_weight', RemoteRank(0), layer, model.weights[layer]._token.number)"), says="belongs to rank"),
    changed("fsdp", "a tensor by hand with labels to order", ("await model.allgather(model.weights[layer], layer)", "whole(model, layer)"), ("async def fsdp", "def whole(model, layer):\n    from lib.learner.tensors import of_token\n    return of_token(model._simulator.ask('by_hand', model._handle, ['Weight', layer, model.LAYERS, 0, [], 0, [0], 1, [[0], 1, '', False]]))\n\nasync def fsdp"), says="is made up"),
    changed("fsdp", "an update through the wrong kinds", ("    return model", "    n = model.weights[0]._token.number\n    model._simulator.ask('compute', model._handle, 'update', 0, [n, n, n], {})\n    return model"), says="written to the line"),
    fsdp("a flood of messages", "written to the line|did not end|layer is out of range|too many pieces", "message = b'[\"by_hand\",0,null,[\"Weight\",0,1,0,[],0,[' + b','.join(b'%d' % n for n in range(3000)) + b'],4096,[[0],1,\"\",false]]]\\n'", "while True:", "    model._simulator.wire.end.sendall(message)", "    model._simulator.wire.end.recv(1 << 20)"),
    fsdp("a line without end", "written to the line", "while True:", "    model._simulator.wire.end.sendall(b'x' * 65536)"),
    fsdp("brackets without end", "written to the line", "model._simulator.wire.end.sendall(b'[' * 16000 + b'\\n')", "await model.receive()"),
    fsdp("answers never read", "did not end|written to the line|cannot|not attempted|more than", "while True:", "    model._simulator.wire.end.sendall(b'[\"time\",0,null]\\n' * 1000)"),
    changed("ddp", "made-up coroutines to hold tensors", ("        grad = await model.allreduce(grad, layer)\n", "        model._simulator.share(model._handle, object)\n"), says="missing micro-batch"),
    fsdp("a very fine cut", "at most 65,536 pieces", "weight, state = model.load_weights(0, 0, 65536)", "weight.shard(0, 65536)"),
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
    changed("ddp", "micro-batches that lie", ("[model.rank]", "Liar([model.rank])"), ("async def ddp", "class Liar(frozenset):\n    def __iter__(self): return iter(range(4))\n    def __len__(self): return 1\n\nasync def ddp"), says="would be counted twice"),
    changed("ddp", "a generator of micro-batches with an opinion", ("[model.rank]", "(mb for mb in range(model.BATCHES))"), says="would be counted twice"),
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


# -- more of the same kinds, found by somebody who set out to break the grader ----------------------------------------


def talk(name: str, says: str, source: str) -> Program:
    """A program of rank 0 that writes to the line by itself: ``say`` is a message and its answer."""
    head = (
        "async def fsdp(model):\n    simulator, account = model._simulator, model._handle\n\n    def say(*message):\n"
        "        simulator.wire.send(list(message))\n        return simulator.wire.receive(longest=None)\n\n"
        "    if model.rank:\n        return model\n"
    )
    return whole("fsdp", name, head + indent(source.strip("\n") + "\n", "    ") + "    return model\n", says)


def plain(name: str, says: str, source: str) -> Program:
    """A program of these lines, written as one text."""
    return whole(
        "fsdp",
        name,
        "async def fsdp(model):\n" + indent(source.strip("\n") + "\n", "    ") + "    return model\n",
        says,
    )


CHEATS += [
    # -- this library changed -------------------------------------------------------------------------------------
    lazy("a cache of right answers spoiled", "import lib.machine.fingerprints\n" + LAZY.replace("    await", "    lib.machine.fingerprints.trained_weights = lambda layers, batches: type('Any', (), {'__getitem__': lambda s, i: s, '__ne__': lambda s, o: False})()\n    await"), says="missing micro-batch"),
    lazy("prices set to nothing", "import lib.machine.cost\n" + LAZY.replace("    await", "    lib.machine.cost.Cost.in_time_units = lambda *a, **k: 0\n    await"), says="missing micro-batch"),
    lazy("the play exchanged for one that ends at once", "import lib.referee.worker\n" + LAZY.replace("    await", "    lib.referee.worker.execute = lambda *a: None\n    lib.running.execution.execute = lambda *a: None\n    await").replace("import lib.referee.worker", "import lib.referee.worker, lib.running.execution"), says="missing micro-batch"),
    lazy("a turn that never fails", "import lib.running.execution\n" + LAZY.replace("    await honest(model)", "    lib.running.execution.Execution._fail = lambda self, error: None\n    await honest(model)"), says="did not end|missing micro-batch"),
    lazy("remote simulator that answer by themselves", "from lib.remote.remote_simulator import RemoteSimulator\n" + LAZY.replace("    await honest(model)", "    RemoteSimulator.ask = lambda self, verb, account, *a: [] if verb == 'compute' else None\n    await honest(model)"), says="TypeError|AssertionError"),
    lazy("what is told kept to itself", "from lib.remote.remote_simulator import RemoteSimulator\n" + LAZY.replace("    await honest(model)", "    RemoteSimulator.tell = lambda self, verb, account, *a: None\n    await honest(model)"), says="was not stored"),
    lazy("what was wrong with what is told forgotten", "from lib.remote.remote_simulator import RemoteSimulator\n" + LAZY.replace("    await honest(model)", "    class Deaf(dict):\n        def setdefault(self, *a):\n            pass\n    model._simulator.mistakes = Deaf()\n    weight, state = model.load_weights(0)\n    model.forward(0, model.get_activation([0]), weight)\n    model.weights[0] = state\n    await honest(model)"), says="was not stored"),
    lazy("answers told as if they had none", LAZY.replace("    await honest(model)", "    model._simulator.told.texts.append('[\"compute\",0,null,\"loss\",null,[0],{}]')\n    await honest(model)"), says="written to the line"),
    lazy("errors of the line taken for results", "from lib.remote import remote_simulator as remote\n" + LAZY.replace("    await honest(model)", "    def ask(self, verb, account, *a):\n        told, self.told = self.told.texts, type(self.told)()\n        if told:\n            self.wire.write('[' + ','.join(told) + ',[\"time\",0,null]]')\n            self.wire.receive(longest=None)\n        self.wire.send([verb, account.rank, None, *a])\n        failed, result, woken = self.wire.receive(longest=None)\n        for n, foreseen in woken:\n            self.calls[n].foreseen = self._unpack(account, foreseen)\n            self.calls[n].waiter()\n        return self._unpack(account, result) if not failed else None\n    remote.RemoteSimulator.ask = ask\n    try:\n        await honest(model)\n    except Exception:\n        pass"), says="missing micro-batch"),
    whole("ddp", "a run of its own, and what came of it", "async def idle(m):\n    return m\n\nasync def ddp(model):\n    from lib.machine.simulator import LocalSimulator\n    near = Model(0, Dist(1), 2, 1)\n    w, o = near.load_weights(0)\n    model.set_final_weight(0, w)\n    return model\n"),
    lazy("a run of another machine inside the run", "def plainly(m):\n    for layer in range(m.LAYERS):\n        m.weights[layer], m.opt_states[layer] = m.load_weights(layer)\n\n" + LAZY.replace("    await honest(model)", "    from lib.running.run import run as real\n    out = real(plainly, ranks=1, layers=2, batches=4)\n    for layer in range(2):\n        model.set_final_weight(layer, out.final_states[0].finals[layer] if out.final_states[0].finals else None)"), says="must be a Weight"),
    changed("fsdp", "a layer number with a string's face", ("    model.activations[0] =", "    class Text(str):\n        def __format__(self, spec): os._exit(0)\n        def __getitem__(self, at): return 'x' * 10 ** 9\n    model.load_weights(Text('PASS'))\n    model.activations[0] ="), says="layer is out of range"),
    lazy("the hash of a tuple", "import lib.machine.fingerprints\n" + LAZY.replace("    await", "    lib.machine.fingerprints.hash = lambda x: 1\n    lib.record.labels.hash = lambda x: 1\n    await").replace("import lib.machine.fingerprints", "import lib.machine.fingerprints, lib.record.labels"), says="missing micro-batch"),
    lazy("the labels' class exchanged", "import lib.record.labels\n" + LAZY.replace("    await", "    lib.record.labels.Labels.batches = property(lambda self: frozenset(range(4)))\n    await"), says="missing micro-batch"),
    lazy("object.__setattr__ on tensors", LAZY.replace("    await honest(model)", "    update = type(model).update\n    def forged(self, layer, grad, weight, state):\n        object.__setattr__(grad, '_token', state._token)\n        return update(self, layer, grad, weight, state)\n    type(model).update = forged\n    await honest(model)"), says="written to the line|frozen"),
    lazy("the number in a token changed to a grown one", LAZY.replace("    await honest(model)", "    update = type(model).update\n    def forged(self, layer, grad, weight, state):\n        weight._token.number = state._token.number + 1\n        return update(self, layer, grad, weight, state)\n    type(model).update = forged\n    await honest(model)"), says="written to the line"),
    lazy("ctypes into a tuple of labels", LAZY.replace("    await honest(model)", "    update = type(model).update\n    def forged(self, layer, grad, weight, state):\n        full = frozenset(range(4))\n        labels = grad._token.labels\n        ctypes.pythonapi.Py_IncRef(ctypes.py_object(full))\n        slot = id(labels) + tuple.__basicsize__ + 4 * 8\n        ctypes.c_void_p.from_address(slot).value = id(full)\n        return update(self, layer, grad, weight, state)\n    type(model).update = forged\n    await honest(model)"), says="missing micro-batch"),
    lazy("builtins print and open exchanged", "import builtins\n" + LAZY.replace("    await", "    builtins.print = builtins.open = builtins.len = lambda *a, **k: 'PASS'\n    await")),
    lazy("json that says what one wants", "import lib.remote.wire\n" + LAZY.replace("    await", "    real = json.dumps\n    lib.remote.wire.json.dumps = lambda m, **k: real(['done'] if m[0] == 'update' else m, **k)\n    await"), says="no rank has set a final weight|missing micro-batch"),
    lazy("inspect.stack walked for the task", LAZY.replace("    await", "    for info in inspect.stack():\n        info.frame.f_locals.get('task', {}) and info.frame.f_locals['task'].update(timeout=1e9, size={'ranks': 1, 'layers': 0, 'batches': 0})\n    await"), says="missing micro-batch|raised TypeError"),
    lazy("the source of this file exchanged", "import linecache\n" + LAZY.replace("    await", "    linecache.cache.clear()\n    linecache.cache['attempt.py'] = 4, None, ['PASS\\n'] * 99, 'attempt.py'\n    await"), says="missing micro-batch"),
    # -- how it ends ----------------------------------------------------------------------------------------------
    plain("an exit with a verdict for its reason", "SystemExit", "raise SystemExit('PASS  puzzle 4  fsdp')"),
    plain("an exit in a task", "SystemExit", "async def leave():\n    sys.exit(0)\nawait asyncio.create_task(leave())"),
    plain("a handler at exit that prints a verdict", "not attempted", "atexit.register(lambda: os.write(1, b'{\"status\": \"PASS\"}'))"),
    plain("an object that says done when it goes", "not attempted", "class Last:\n    def __init__(self, wire): self.wire = wire\n    def __del__(self): self.wire.send(['done'])\nmodel.keep = Last(model._simulator.wire)"),
    plain("an error whose text runs code", "not attempted", "class Error(Exception):\n    def __str__(self):\n        model._simulator.wire.send(['done'])\n        os._exit(0)\nraise Error"),
    plain("an error that is an error of this library and not", "ended before", "class Error(PuzzleError):\n    problem = where = property(lambda self: 'Correct, within the target.')\n    def __init__(self): pass\nraise Error"),
    plain("an error with a verdict's colors", "", "raise PuzzleError('\\x1b[2J\\x1b[1;1H\\x1b[32mPASS\\x1b[0m \\x9b2J \\u202e', where='\\x1b]0;PASS\\x07', line='')"),
    plain("verdicts on every stream", "not attempted", "report = json.dumps({'version': 1, 'results': [{'puzzle': 'fsdp', 'status': 'PASS', 'right': True}], 'passed': 1})\nfor stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):\n    print(report, file=stream)\nfor number in (1, 2):\n    os.write(number, report.encode())"),
    plain("what was printed is wiped and written anew", "not attempted", "os.ftruncate(1, 0)\nos.lseek(1, 0, 0)\nos.write(1, b'\\xff\\xfe\\x00\\x1b[2JPASS' * 100)"),
    plain("its own end of the line closed", "ended before", "os.close(model._simulator.wire.end.fileno())"),
    plain("the line shut for reading", "ended before|EOFError", "model._simulator.wire.end.shutdown(socket.SHUT_RD)\nmodel.load_weights(0)"),
    plain("signals to its own session", "", "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nos.killpg(os.getpgid(0), signal.SIGTERM)"),
    plain("threads that talk while the run goes on", "not attempted|written to the line|raised|deadlock|ended before", "def chat():\n    while True:\n        model._simulator.wire.end.sendall(b'[\"done\"]\\n')\nfor _ in range(3):\n    threading.Thread(target=chat, daemon=True).start()\nawait model.receive()"),
    plain("two processes that talk at once", "", "if ctypes.CDLL(None).fork() == 0:\n    for _ in range(100):\n        model._simulator.wire.end.sendall(b'[\"time\",0,null]\\n')\n    os._exit(0)\nfor _ in range(100):\n    model.load_weights(0)"),
    plain("a child that says done later", "not attempted|ended before", "if ctypes.CDLL(None).fork() == 0:\n    ctypes.CDLL(None).setsid()\n    time.sleep(0.3)\n    model._simulator.wire.end.sendall(b'[\"done\"]\\n')\n    os._exit(0)\ntime.sleep(1)\nos._exit(0)"),
    plain("descriptors sent over the line", "written to the line|raised AssertionError", "socket.send_fds(model._simulator.wire.end, [b'[\"time\",0,null]\\n'], [0, 1, 2])\nawait model.receive()"),
    plain("the results file written", "not attempted|Permission|Read-only|No such", "import tempfile\ngradescope = os.path.join(os.sep, 'autograder', 'results', 'results.json')\nfor name in ('results.json', 'report.xml', gradescope, os.path.join(tempfile.gettempdir(), 'results.json')):\n    try:\n        with open(name, 'w') as file:\n            file.write('{\"score\": 9}')\n    except OSError:\n        pass"),
    # -- the line to the grader -----------------------------------------------------------------------------------
    talk("done, and then done again", "not attempted", "simulator.wire.end.sendall(b'[\"done\"]\\n[\"done\"]\\n')\ntime.sleep(0.5)"),
    talk("done with a verdict in it", "written to the line", "simulator.wire.send(['done', 'PASS'])\ntime.sleep(0.5)"),
    talk("missing, to count as not attempted", "not attempted|missing", "simulator.wire.send(['missing', []])\ntime.sleep(0.5)"),
    talk("missing, with trouble that is no text", "there is no function", "simulator.wire.send(['missing', [{'a': ['\\x1b[2J'] * 9}, None, 1e999]])\ntime.sleep(0.5)"),
    talk("failed, with praise", "", "simulator.wire.send(['failed', dict.fromkeys(('problem', 'where', 'expected', 'got', 'fix', 'line'), 'PASS \\x1b[2J'), []])\ntime.sleep(0.5)"),
    talk("failed, with no error", "a protocol error its error", "simulator.wire.send(['failed', {}, [], []])\ntime.sleep(0.5)"),
    talk("failed, in other shapes", "written to the line", "simulator.wire.send(['failed', 'PASS'])\ntime.sleep(0.5)"),
    talk("an object for a message", "written to the line", "simulator.wire.end.sendall(b'{\"0\": \"done\"}\\n')\ntime.sleep(0.5)"),
    talk("NaN and Infinity", "layer is out of range", "say('load_weights', 0, None, float('nan'), float('inf'), 1)"),
    talk("an integer of four thousand digits", "written to the line", "simulator.wire.end.sendall(b'[\"load_weights\",0,null,0,0,' + b'9' * 4299 + b']\\n')\ntime.sleep(0.5)"),
    talk("an integer of ten thousand digits", "written to the line", "simulator.wire.end.sendall(b'[\"load_weights\",0,null,0,0,' + b'9' * 10000 + b']\\n')\ntime.sleep(0.5)"),
    talk("a lone surrogate for a layer", "layer is out of range", "say('load_weights', 0, None, '\\ud800', 0, 1)"),
    talk("null bytes between messages", "written to the line", "simulator.wire.end.sendall(b'\\0\\0[\"time\",0,null]\\0\\n')\ntime.sleep(0.5)"),
    talk("half a message and no more", "did not end", "simulator.wire.end.sendall(b'[\"time\",0,')\nsignal.setitimer(signal.ITIMER_REAL, 0)\ntime.sleep(60)"),
    talk("a message a byte at a time", "did not end|written to the line", "signal.setitimer(signal.ITIMER_REAL, 0)\nfor byte in itertools.cycle(b'     '):\n    simulator.wire.end.sendall(bytes([byte]))\n    time.sleep(0.001)"),
    talk("the same key many times, nested", "written to the line", "simulator.wire.end.sendall(b'[\"by_hand\",0,null,' + b'{\"a\":' * 2000 + b'1' + b'}' * 2000 + b']\\n')\ntime.sleep(0.5)"),
    talk("a verb that is a list", "written to the line", "say(['forward'], 0, None)"),
    talk("a kind that is a list", "written to the line", "say('by_hand', 0, None, [['Weight'], 0, 6, 0, [], 0, [0], 1, [[0], 1, '', False]])"),
    talk("a holder that is a truth", "written to the line", "say('share', 0, True)"),
    talk("shards of a number below nothing", "at most 65,536 pieces", "n = say('by_hand', 0, None, ['Weight', -5, -5, -5, [], -5, [-1, -2], 65536, [[0], 1, '', False]])[1][1]\nsay('shard', 0, None, n, 0, 1 << 61)"),
    talk("a result fetched twice", "written to the line", "n = say('fake_grad', 0, None, 0, [])[1][1]\nflights = [say('meet', r, None, 'allreduce', say('fake_grad', r, None, 0, [])[1][1], 0, None)[1] for r in range(4)]\nsay('fetch', 0, None, flights[0])\nsay('fetch', 0, None, flights[0])"),
    talk("another rank's result fetched", "written to the line", "flights = [say('meet', r, None, 'allreduce', say('fake_grad', r, None, 0, [])[1][1], 0, None)[1] for r in range(4)]\nsay('fetch', 0, None, flights[1])"),
    talk("waiting for another rank's call", "written to the line", "call = say('receive', 1, None, None)[1]\nsay('wait', 0, None, call)"),
    talk("every rank finished by one", "written to the line", "for rank in range(4):\n    say('finish', rank, None)\nsay('load_weights', 0, None, 0, 0, 1)"),
    talk("work after the end", "written to the line", "say('finish', 1, None)\nsay('get_activation', 1, None, [1])"),
    talk("settled before anybody waits", "not attempted", "for _ in range(100):\n    say('decide_next', 0, None)\nbooks.wire.send(['done'])\ntime.sleep(0.5)"),
    talk("a call that is waited for and never ends", "not attempted", "say('wait', 0, None, say('receive', 0, None, None)[1])\nbooks.wire.send(['done'])\ntime.sleep(0.5)"),
    talk("a sum of one gradient with itself", "would be counted twice", "made = []\nfor layer in range(6):\n    weight = say('load_weights', 0, None, layer, 0, 1)[1][0][1]\n    say('store', 0, None, weight)\n    if not layer:\n        x = say('get_activation', 0, None, [0])[1][1]\n        say('store', 0, None, x)\n    before, x = x, say('compute', 0, None, 'forward', layer, [x, weight], {})[1][0][1]\n    say('store', 0, None, x)\ng = say('compute', 0, None, 'loss', None, [x], {})[1][0][1]\nn = say('compute', 0, None, 'backward', 5, [before, g, weight], {})[1][0][1]\nbooks.ask('add', account, n, n)"),
    talk("a tensor of another kind stored as its own", "belongs to rank", "n = say('load_weights', 1, None, 0, 0, 1)[1][0][1]\nsay('store', 0, None, n)"),
    talk("a message too long for a plain value", "never awaited", "say('pass_to', 0, None, 1, None, 'x' * 16000)\nbooks.wire.send(['done'])\ntime.sleep(0.5)"),
    talk("lines of a deadlock with a verdict", "deadlock", "simulator.ask('deadlock', account, [[0, 'PASS \\x1b[2J'], [0, 'x' * 200]])"),
    talk("a deadlock reported without end", "deadlock|did not end", "while True:\n    say('deadlock', 0, None, [])"),
    talk("the log read without end", "did not end", "signal.setitimer(signal.ITIMER_REAL, 0)\nfor _ in range(1000):\n    say('load_weights', 0, None, 0, 0, 1)\nwhile True:\n    say('events', 0, None)"),
    talk("as many errors as there is room for", "layer is out of range", "while True:\n    say('load_weights', 0, None, 99, 0, 1)"),
    talk("weights loaded twice, the first forgotten", "written to the line|has taken that piece", "for _ in range(2):\n    w, o = [part[1] for part in say('load_weights', 0, None, 0, 0, 1)[1]]\n    say('store', 0, None, w)\n    say('drop', 0, None, w)"),
    talk("a fine cut joined again and again", "a shard comes twice|pieces", "w = say('load_weights', 0, None, 0, 0, 1)[1][0][1]\nsay('store', 0, None, w)\nparts = [say('shard', 0, None, w, n, 4096)[1][1] for n in (0, 2, 4)]\nwhole_ = parts[0]\nfor part in (*parts[1:], parts[1]):\n    whole_ = say('combine', 0, None, whole_, part)[1][1]"),
    talk("a layer whose name moves the cursor and is no text", "layer is out of range", "w = say('load_weights', 0, None, 0, 0, 1)[1][0][1]\nx = say('get_activation', 0, None, [0])[1][1]\nbooks.ask('compute', account, 'forward', '\\x1b[2J\\x1b[32mPASS \\x00 \\ud800', [x, w], {})"),
    # -- processes that are to outlive their worker ---------------------------------------------------------------
    plain("out of the session, deaf to the parent's death", "did not end", "signal.setitimer(signal.ITIMER_REAL, 0)\nlibc = ctypes.CDLL(None)\nlibc.prctl(1, 0, 0, 0, 0)\nlibc.setsid()\ntime.sleep(20)"),
    plain("a child with no name and no mark", "not attempted", "libc = ctypes.CDLL(None)\nif libc.fork() == 0:\n    libc.setsid()\n    libc.execve(b'/bin/sleep', (ctypes.c_char_p * 3)(b'sleep', b'20', None), (ctypes.c_char_p * 1)(None))\n    os._exit(0)\ntime.sleep(0.3)"),
    plain("a child that is always another one", "not attempted", "libc = ctypes.CDLL(None)\nif libc.fork() == 0:\n    libc.setsid()\n    end = time.monotonic() + 20\n    while time.monotonic() < end:\n        if libc.fork() > 0:\n            os._exit(0)\n    os._exit(0)\ntime.sleep(0.3)"),
    talk(
        "sizes that take long to add up",
        "too many different numbers",
        "signal.setitimer(signal.ITIMER_REAL, 0)\nprimes = [p for p in range(3, 65536, 2) if all(p % q for q in range(3, int(p**0.5) + 1, 2))]\nentries = [part[1] for part in say('load_weights', 0, None, 0, 0, 1)[1]]\nfor entry in entries:\n    say('store', 0, None, entry)\nfor p in primes[-1500:]:\n    for entry in entries:\n        say('store', 0, None, say('shard', 0, None, entry, 0, p)[1][1])\nfor _ in range(6000):\n    say('load_weights', 0, None, 0, 0, 1)\nbooks.wire.send(['done'])\ntime.sleep(60)",
    ),
    talk(
        "many tensors held over many operations",
        "not finished yet|did not end",
        "signal.setitimer(signal.ITIMER_REAL, 0)\nsay('share', 0, 1)\nw = say('load_weights', 0, 1, 0, 0, 1)[1][0][1]\nsay('store', 0, 1, w)\nheld = [say('shard', 0, 1, w, 0, 2)[1][1] for _ in range(4000)]\nfor _ in range(4000):\n    say('wait', 0, 2, say('receive', 0, 2, 1)[1])\nfor entry in held:\n    say('shard', 0, 1, entry, 0, 2)\nbooks.wire.send(['done'])\ntime.sleep(60)",
    ),
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
