"""Programs that never end, or end the process, or flood it. They run in a process of their own only."""

from . import Program, whole


def fsdp(name: str, says: str, *lines: str) -> Program:
    """A program of these lines."""
    body = "\n".join("    " + line for line in lines)
    return whole("fsdp", name, f"async def fsdp(model):\n{body}\n    return model\n", says)


LATE = "did not end within"
GONE = "the process ended before the function did"

ENDLESS: list[Program] = [
    fsdp("all receive", "deadlock: no rank can ever go on", "await model.receive()"),
    fsdp("one rank meets nobody", "deadlock: no rank can ever go on", "if model.rank == 0:", "    await model.allreduce(model.fake_grad(0, []), 0)"),
    fsdp("a future that nobody sets", "for something that no rank of this machine will do", "await asyncio.get_running_loop().create_future()"),
    fsdp("a deadlock that is swallowed, again and again", "deadlock|" + LATE, "while True:", "    try:", "        await model.receive()", "    except BaseException:", "        pass"),
    fsdp("a livelock", LATE, "while True:", "    await asyncio.sleep(0)"),
    fsdp("a busy loop", "line 6 of attempt.py in fsdp: while True", "while True:", "    pass"),
    fsdp("sleep", LATE, "time.sleep(60)"),
    fsdp("a busy loop that swallows", LATE, "while True:", "    try:", "        while True:", "            pass", "    except BaseException:", "        pass"),
    fsdp("a power beyond reach", LATE, "10 ** 10 ** 9"),
    fsdp("a regular expression", LATE, "re.match('(a+)+$', 'a' * 40 + 'b')"),
    fsdp("the alarm ignored", LATE, "signal.signal(signal.SIGALRM, signal.SIG_IGN)", "while True:", "    pass"),
    fsdp("the alarm turned off", LATE, "signal.setitimer(signal.ITIMER_REAL, 0)", "while True:", "    pass"),
    fsdp("all signals blocked", LATE, "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 64))", "while True:", "    pass"),
    fsdp("tasks without end", "did not end within|took too long|MemoryError", "while True:", "    asyncio.create_task(asyncio.sleep(100))"),
    fsdp("a thread left behind", "deadlock", "threading.Thread(target=lambda: [time.sleep(1) for _ in iter(int, 1)]).start()", "await model.receive()"),
    fsdp("a thread that is waited for", LATE, "thread = threading.Thread(target=lambda: [time.sleep(1) for _ in iter(int, 1)])", "thread.start()", "thread.join()"),
    fsdp("a fork", "does not call os.fork", "if os.fork() == 0:", "    while True:", "        pass"),
    fsdp("a fork past Python", "not attempted yet|process ended|no recording of a run|deadlock", "if ctypes.CDLL(None).fork() == 0:", "    ctypes.CDLL(None).setsid()", "    while True:", "        pass"),
    fsdp("another program", "does not call subprocess.Popen", "subprocess.run(['sleep', '100'])"),
    fsdp("a large array", "MemoryError", "bytearray(10 ** 11)"),
    fsdp("ever more memory", "MemoryError|did not end within", "kept = []", "while True:", "    kept.append('x' * 10 ** 7)"),
    fsdp("endless printing", LATE, "while True:", "    print('x' * 1000)"),
    fsdp("endless printing past Python", "File too large|did not end within", "while True:", "    os.write(1, b'x' * 100_000)"),
    fsdp("a text too long to print", LATE + "|not attempted", "print('x' * 10 ** 8)"),
    fsdp("endless recursion", "RecursionError", "def again():", "    return again()", "again()"),
    fsdp("recursion without a limit", GONE + "|did not end within|RecursionError|MemoryError", "sys.setrecursionlimit(10 ** 9)", "def again():", "    return again()", "again()"),
    fsdp("sys.exit", "SystemExit: 0", "sys.exit(0)"),
    fsdp("os._exit", GONE, "os._exit(0)"),
    fsdp("a crash", GONE, "ctypes.string_at(0)"),
    fsdp("killed by itself", GONE + "|not attempted", "os.kill(os.getpid(), signal.SIGKILL)"),
    fsdp("stopped by itself", LATE + "|not attempted", "os.kill(os.getpid(), signal.SIGSTOP)"),
    fsdp("an interrupt", "KeyboardInterrupt", "raise KeyboardInterrupt"),
    fsdp("a cancellation", "cancelled by itself", "raise asyncio.CancelledError"),
    fsdp("a generator's exit", "GeneratorExit|RuntimeError", "raise GeneratorExit"),
    fsdp("a handler at exit that never ends", "deadlock", "atexit.register(lambda: [0 for _ in iter(int, 1)])", "await model.receive()"),
    fsdp("an error that never says what it is", LATE, "class Error(Exception):", "    def __str__(self):", "        while True:", "            pass", "raise Error"),
    fsdp("an error that fails to say what it is", "which does not say what it is", "class Error(Exception):", "    def __str__(self):", "        raise ValueError", "raise Error"),
    fsdp("a thing with a long name", "inp must be an Activation", "class Thing:", "    def __repr__(self):", "        return 'x' * 10 ** 7", "model.forward(0, Thing(), Thing())"),
    fsdp("a thing that fails to say what it is", "function raised|inp must be", "class Thing:", "    def __repr__(self):", "        raise ValueError('no name')", "model.forward(0, Thing(), Thing())"),
    fsdp("an object that never goes", LATE + "|not attempted", "class Thing:", "    def __del__(self):", "        while True:", "            pass", "Thing()"),
    fsdp("input", "EOFError", "input()"),
    fsdp("a full temporary folder", "No space left|File too large|did not end within", "for number in range(10 ** 6):", "    with open(os.path.join(os.environ['TMPDIR'], str(number % 200)), 'wb') as file:", "        file.write(b'x' * 10 ** 6)"),
    whole("fsdp", "a class body that never ends", "class Endless:\n    while True:\n        pass\n\nasync def fsdp(model):\n    pass", "did not load in time"),
    whole("fsdp", "a default that never ends", "async def fsdp(model, x=[0 for _ in iter(int, 1)]):\n    pass", "did not load in time"),
    whole("fsdp", "an end while it loads", "class End:\n    sys.exit(0)\n\nasync def fsdp(model):\n    pass", "not attempted yet"),
    whole("fsdp", "a comparison that never ends", "class Endless:\n    def __index__(self):\n        while True:\n            pass\n\nasync def fsdp(model):\n    model.get_activation([Endless()])", LATE),
    whole("fsdp", "a tensor sent and unstored thousands of times", "async def fsdp(model):\n    if model.rank:\n        return model\n    model.weights[0], _ = model.load_weights(0)\n    for _ in range(12000):\n        model.pass_to(1, model.weights[0])\n    for _ in range(8000):\n        model.weights[0] = model.weights.pop(0)\n    model.log\n    return model", f"never awaited|{LATE}"),
]  # fmt: skip
