"""Programs that tamper: with this library, with Python, with the line to the grader, with the machine.

None of them does the work that it wants to be praised for. At a shell no one may pass.
"""

from __future__ import annotations

from . import Program, after, changed, whole

DO_NOTHING = "async def fsdp(model):\n    return model\n"
FINALS = "        model.set_final_weight(layer, model.weights[layer])\n"


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
    lazy("the check does nothing", "import lib.check, lib.grading.judge, lib.outcome\n\ndef no(*a, **k): return False\n" + LAZY.replace("    await", "    for m in (lib.check, lib.grading.judge, lib.outcome): m.check_finals = no\n    lib.grading.judge.check = no\n    await"), "misses micro-batch"),
    lazy("no rules", "import lib.rules\n" + LAZY.replace("    await", "    lib.rules.update = lib.rules.forward = lambda *a: None\n    await"), "misses micro-batch"),
    lazy("books of its own", "from lib.books import Books\nfrom lib.mesh import Mesh\n" + LAZY.replace("    await", "    model._books = Books(Mesh(4), Cost(), False, False)\n    model._account = model._books.open(model.rank, 2, 4)\n    await"), "not attempted|made up"),
    lazy("rules off in the books", LAZY.replace("    await", "    model._books.strict = model._books.graded = False\n    await"), "misses micro-batch"),
    lazy("errors that do not stick", "import lib.errors\n" + LAZY.replace("    await honest(model)", "    lib.errors.PuzzleError.sticks = False\n    try:\n        await honest(model)\n    except AssertionError:\n        pass"), "misses micro-batch"),
    lazy("a verdict of its own", "import lib.grading.verdict\n" + LAZY.replace("    await", "    lib.grading.verdict.Verdict.status = 'PASS'\n    await"), "misses micro-batch"),
    lazy("targets and layouts changed", "import lib.specs, lib.layouts\n" + LAZY.replace("    await", "    lib.specs.puzzles()['ddp'].target.update(time=1e9, memory=1 << 60)\n    lib.layouts.LAYOUTS['whole'] = lambda *a: []\n    await"), "misses micro-batch"),
    greedy("the target moved", "import lib.specs\n" + GREEDY.replace("    await", "    lib.specs.puzzles()['fsdp'].target.update(time=1e9, memory=1 << 60)\n    await"), "over the target"),
    greedy("tensors that weigh nothing", "import lib.cost, lib.entries, lib.units\n" + GREEDY.replace("    await", "    lib.cost.Cost.elements = lambda *a: 0\n    lib.units.HIDDEN = 1\n    await"), "over the target"),
    greedy("numbers for the weight in the token", GREEDY.replace("    await", "    make = type(model.load_weights(0, model.rank, model.RANKS)[0]._token)\n    make.memory = property(lambda self: 0, lambda self, value: None)\n    await"), "over the target|load_weights before"),
    greedy("storage that tells nobody", "import lib.storage\n" + GREEDY.replace("    await", "    for store in model.storage():\n        object.__setattr__(store, '_store', lambda *a: None)\n        object.__setattr__(store, '_drop', lambda *a: None)\n    await"), "was not stored when"),
    changed("fsdp", "storage that tells nobody of whole weights", ("    model.activations[0] =", "    store, drop = model.weights._store, model.weights._drop\n    model.weights._store = lambda account, token: None if token.labels.is_whole() and not token.labels.step else store(account, token)\n    model.activations[0] ="), ("        model.activations[layer + 1] =", "        model.weights['whole', layer] = weight\n        model.activations[layer + 1] ="), ("        weight = await model.allgather(model.weights[layer], layer)\n        inp", "        weight = model.weights['whole', layer]\n        inp"), says="was not stored when"),
    changed("fsdp", "a clock turned back", ("    model.activations[0]", "    await model.allgather(model.weights[0], 0)\n    type(model).time = property(lambda self: 0.0)\n    model._account.clock = 0\n    model.activations[0]"), says="over the target"),
    changed("fsdp", "a log with less in it", ("    return model", "    await model.allreduce(model.fake_grad(0, []), 0)\n    type(model).log = property(lambda self: ())\n    return model"), says="over the target"),
    changed("fsdp", "prices of its own", ("    model.activations[0]", "    await model.allgather(model.weights[0], 0)\n    object.__setattr__(model.dist.cost, 'collective', 0)\n    model.activations[0]"), says="over the target"),
    lazy("labels edited", LAZY.replace("    await honest(model)", "    import lib.tensors\n    grad = lib.tensors.WeightGrad\n    grad.batches = property(lambda self: frozenset(range(4)))\n    await honest(model)"), "misses micro-batch"),
    lazy("labels in the token edited", "def full(self, *a):\n    return self\n\n" + LAZY.replace("    await honest(model)", "    update = type(model).update\n    def forged(self, layer, grad, weight, state):\n        grad._token.labels = grad._token.labels._replace(batches=frozenset(range(4)))\n        return update(self, layer, grad, weight, state)\n    type(model).update = forged\n    await honest(model)"), "misses micro-batch"),
    lazy("code objects exchanged", "import lib.turn\n" + LAZY.replace("    await", "    lib.turn.play.__code__ = (lambda fn, models, timeout, order=None: None).__code__\n    await"), "misses micro-batch|TypeError"),
    # -- Python changed ----------------------------------------------------------------------------------------------
    lazy("builtins changed", "import builtins\n" + LAZY.replace("    await", "    builtins.len = lambda x: 4\n    builtins.sum = lambda *a: 0\n    builtins.isinstance = lambda *a: True\n    builtins.hash = lambda x: 0\n    await"), "misses micro-batch|raised|process ended"),
    lazy("frames walked for something to change", LAZY.replace("    await", "    frame = sys._getframe()\n    while frame:\n        for name, value in list(frame.f_locals.items()):\n            if 'errors' in name and isinstance(value, list):\n                value.clear()\n        frame = frame.f_back\n    for thing in gc.get_objects():\n        if type(thing).__name__ in ('Clerk', 'Books', 'Outcome', 'Account'):\n            thing.__dict__.clear()\n    await"), "misses micro-batch"),
    lazy("modules exchanged", LAZY.replace("    await", "    for name in list(sys.modules):\n        if name.startswith('lib'):\n            sys.modules[name] = types.ModuleType(name)\n    await"), "misses micro-batch"),
    fsdp("memory poked", "", "target = (ctypes.c_char * 8).from_address(id(model) + 8)", "target[:] = b'PASSPASS'"),
    whole("fsdp", "a trace function that meddles", "def meddle(frame, event, arg):\n    frame.f_locals.clear()\n    return meddle\n\nasync def fsdp(model):\n    sys.settrace(meddle)\n    return model\n"),
    # -- what it prints, how it ends -----------------------------------------------------------------------------------
    fsdp("a verdict printed", "not attempted", "print('PASS  puzzle 4  fsdp  Fully sharded data parallel')", "print('Grade: 1 of 1 puzzles pass')"),
    fsdp("a verdict printed and the end", "the process ended", "os.write(1, b'PASS puzzle 4\\n{\"version\": 1, \"results\": [{\"status\": \"PASS\"}]}')", "os._exit(0)"),
    fsdp("an error that says PASS", "RuntimeError", "raise RuntimeError('\\x1b[2J\\x1b[H\\x1b[32mPASS\\x1b[0m puzzle 4')"),
    fsdp("an error of this library that says PASS", "Correct", "raise PuzzleError('Correct, better than the best known!', line='')"),
    # -- the line to the grader ----------------------------------------------------------------------------------------------
    fsdp("PASS on the line", "written to the line", "model._books.wire.end.sendall(b'PASS\\n')", "await model.receive()"),
    fsdp("done at once", "not attempted", "model._books.wire.send(['done'])", "os._exit(0)"),
    fsdp("a verdict on the line", "written to the line", "model._books.wire.send({'version': 1, 'results': [{'status': 'PASS'}]})", "await model.receive()"),
    fsdp("every descriptor tried", "written to the line|ended before", "for number in range(3, 64):", "    try:", "        os.write(number, b'[\"pass\"]\\n')", "    except OSError:", "        pass", "await model.receive()"),
    fsdp("a number guessed", "written to the line", "model._books.ask('set_final_weight', model._account, 0, 12345)"),
    fsdp("a negative number", "written to the line", "model.load_weights(0)", "model._books.ask('set_final_weight', model._account, 0, -1)"),
    fsdp("a token forged", "written to the line", "from lib.grading.remote import RemoteEntry", "weight, _ = model.load_weights(0, model.rank, model.RANKS)", "token = weight._token", "forged = RemoteEntry(model._books, model._account, token.number + 7, token.labels, 0)", "model._books.set_final_weight(model._account, 0, forged)"),
    changed("fsdp", "memory given back twice", ("    return model", "    token = model.weights[0]._token\n    for _ in range(3):\n        model._books.ask('drop', model._account, token.number)\n    return model"), says="written to the line"),
    changed("fsdp", "memory given back before its time", ("    model.activations[0] =", "    for layer in range(model.LAYERS):\n        model._books.ask('drop', model._account, model.weights[layer]._token.number)\n    model.activations[0] ="), says="was not stored when"),
    changed("fsdp", "a call fetched before its end", ("    model.activations[0] =", "    if model.rank == 0:\n        flight = model._books.meet(model._account, 'allgather', model.weights[0]._token, 0, None)\n        model._books.ask('fetch', model._account, flight.number)\n    model.activations[0] ="), says="written to the line"),
    changed("ddp", "another rank's tensors by number", ("        grad = await model.allreduce(grad, layer)\n", "        everyone.setdefault(layer, []).append(grad._token.number)\n        for number in everyone[layer][:-1]:\n            model._books.ask('add', model._account, grad._token.number, number)\n"), ("async def ddp", "everyone = {}\n\nasync def ddp"), says="belongs to rank|misses micro-batch"),
    changed("ddp", "another rank's account", ("        model.set_final_weight(layer, model.weights[layer])", "        model.set_final_weight(layer, model.weights[layer])\n        if model.rank:\n            from lib.grading.remote import RemoteAccount\n            model._books.ask('set_final_weight', RemoteAccount(0), layer, model.weights[layer]._token.number)"), says="belongs to rank"),
    changed("fsdp", "a tensor by hand with labels to order", ("await model.allgather(model.weights[layer], layer)", "whole(model, layer)"), ("async def fsdp", "def whole(model, layer):\n    from lib.tensors import of_token\n    return of_token(model._books.ask('by_hand', model._account, ['Weight', layer, model.LAYERS, 0, [], 0, [0], 1]))\n\nasync def fsdp"), says="is made up"),
    changed("fsdp", "an update through the wrong kinds", ("    return model", "    n = model.weights[0]._token.number\n    model._books.ask('update', model._account, 0, n, n, n)\n    return model"), says="written to the line"),
    fsdp("a flood of messages", "written to the line|did not end|layer is out of range", "message = b'[\"by_hand\",0,null,[\"Weight\",0,1,0,[],0,[' + b','.join(b'%d' % n for n in range(3000)) + b'],4096]]\\n'", "while True:", "    model._books.wire.end.sendall(message)", "    model._books.wire.end.recv(1 << 20)"),
    fsdp("a line without end", "written to the line", "while True:", "    model._books.wire.end.sendall(b'x' * 65536)"),
    fsdp("brackets without end", "written to the line", "model._books.wire.end.sendall(b'[' * 16000 + b'\\n')", "await model.receive()"),
    fsdp("answers never read", "did not end|written to the line|cannot|not attempted|more than", "while True:", "    model._books.wire.end.sendall(b'[\"time\",0,null]\\n' * 1000)"),
    changed("ddp", "made-up coroutines to hold tensors", ("        grad = await model.allreduce(grad, layer)\n", "        model._books.share(model._account, object)\n"), says="misses micro-batch"),
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
    changed("ddp", "micro-batches that lie", ("[model.rank]", "Liar([model.rank])"), ("async def ddp", "class Liar(frozenset):\n    def __iter__(self): return iter(range(4))\n    def __len__(self): return 1\n\nasync def ddp"), says="would count twice"),
    changed("ddp", "a generator of micro-batches with an opinion", ("[model.rank]", "(mb for mb in range(model.BATCHES))"), says="would count twice"),
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
