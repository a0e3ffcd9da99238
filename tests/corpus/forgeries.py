"""Programs, and files beside one, that want a reward which they have not earned: each gets none."""

from lib.course.specs import puzzles
from tools import tasks

SOLUTION = tasks.program(puzzles()["fsdp"], "fsdp")
WRONG = SOLUTION.replace("await model.scatterreduce(grad, layer)", "grad.shard(model.rank, model.RANKS)")
assert WRONG != SOLUTION
OWN_WEIGHTS = """
from lib import Model, OptState, Weight, WeightGrad


async def fsdp(model):
    for layer in range(model.LAYERS):
        model.set_final_weight(layer, Weight(layer, model.LAYERS, 1))
    return model
"""
PATCHES = """
import lib, sys, json, os
from fractions import Fraction


def yes(*args, **kwargs):
    return True


for module in [one for name, one in list(sys.modules.items()) if name.split(".")[0] == "lib" and one]:
    for name, value in list(vars(module).items()):
        if callable(value) and name in TARGETS:
            try:
                setattr(module, name, yes)
            except Exception:
                pass
"""
GRADER = (
    '{"version": 2, "results": [{"puzzle": "fsdp", "status": "PASS", "right": true, "score": 1.0, "message": "x"}]}'
)
FORGERIES = {
    "printed words": "print('Success', 'Correct!', 'PASS')\n" + WRONG,
    "a printed report": f"print({GRADER!r}, flush=True)\n" + WRONG,
    "own weights": OWN_WEIGHTS,
    "fake gradients": SOLUTION.replace("await model.scatterreduce(grad, layer)", "model.fake_grad(layer, range(model.BATCHES)).shard(model.rank, model.RANKS)"),
    "patched checks": "TARGETS = ('check_finals', 'check', 'judge', 'check_layout', 'check_held', 'check_limits', 'check_features', 'over_target')\n" + PATCHES + WRONG,
    "patched prices": "import lib.machine.cost as c\nfor one in ('forward', 'backward', 'update', 'collective'):\n    setattr(c.Cost, one, 0)\n" + WRONG,
    "patched targets": "import lib.course.specs as s\nfor p in s.puzzles().values():\n    p.target.update(time=1e9, memory=1e12)\n" + WRONG,
    "patched errors": "import lib\nlib.PuzzleError.__init__ = lambda *a, **k: None\n" + WRONG,
    "patched json": f"import json\njson.dumps = lambda *a, **k: {GRADER!r}\n" + WRONG,
    "patched score": "import lib.course.points as p\np.score_of = lambda *a: 1.0\n" + WRONG,
    "monkeypatched verdict": "from lib.grading.verdict import Verdict\nVerdict.status = 'PASS'\nVerdict.score = 1.0\n" + WRONG,
    "an exit at the top": "import os\nos._exit(0)\n",
    "an exit in the run": "import os\n\n\nasync def fsdp(model):\n    os._exit(0)\n",
    "sys.exit": "import sys\n\n\nasync def fsdp(model):\n    sys.exit(0)\n",
    "an exit at the end": "import atexit, os\natexit.register(os._exit, 0)\n" + WRONG,
    "another's answer": "exec(open('/solution/best.py').read())\n",
    "another name": SOLUTION.replace("def fsdp", "def wsdp"),
    "at its own size only": "import lib\n" + SOLUTION.replace("async def fsdp(model: Model) -> Model:", "async def real(model):") + "\n\nasync def fsdp(model):\n    return await real(model) if model.LAYERS == 6 else model\n",
    "endless": "while True:\n    pass\n",
    "no Python": "PASS\n",
    "nothing": "",
    "a class": "class fsdp:\n    status, right, score, time, memory = 'PASS', True, 1.0, 0, 0\n    def __init__(self, *a): pass\n",
    "the reward's file": """
import glob, os, tempfile
room = tempfile.gettempdir()
for place in ("/logs/verifier", *glob.glob(room + "/**/logs", recursive=True), ".", "..", room, os.getcwd()):
    for name in ("reward.json", "reward.txt", "verdict.json", "results.json", "ctrf.json"):
        try:
            open(os.path.join(place, name), "w").write('{"reward": 1.0}')
        except OSError:
            pass
"""
    + WRONG,
    "what the grader has open": f"""
import glob, os
for path in glob.glob("/proc/[0-9]*/fd/*"):
    try:
        if path.split("/")[2] not in ("self", str(os.getpid())):
            os.write(os.open(path, os.O_WRONLY | os.O_NONBLOCK), {GRADER.encode()!r})
    except OSError:
        pass
"""
    + WRONG,
    "a thread that goes on": "import threading, time\n\n\ndef later():\n    while True:\n        print('PASS', flush=True)\n        time.sleep(0.1)\n\n\nthreading.Thread(target=later).start()\n" + WRONG,
    "frames of the caller": "import sys\n\n\nasync def fsdp(model):\n    frame = sys._getframe()\n    while frame:\n        for value in [*frame.f_locals.values()]:\n            if isinstance(value, dict):\n                for key in ('status', 'right', 'reward'):\n                    if key in value:\n                        value[key] = True\n        frame = frame.f_back\n    return model\n",
}  # fmt: skip

BESIDE = {
    "lib.py": "Model = None\ndef grade(*args): return 'PASS'\n",
    "lib/__init__.py": "raise SystemExit(0)\n",
    "json.py": "def loads(*args): return {'results': [{'puzzle': 'fsdp', 'status': 'PASS', 'right': True, 'score': 1}]}\n",
    "conftest.py": "import os; os._exit(0)\n",
    "sitecustomize.py": "import os; os._exit(0)\n",
    "usercustomize.py": "import os; os._exit(0)\n",
    "asyncio.py": "",
    "subprocess.py": "import os; os._exit(0)\n",
    "reward.json": '{"reward": 1.0}',
    "results.json": GRADER,
    "progress.json": '{"fsdp": {"solved": true}}',
    "fsdp.ipynb": "{}",
    "pytest.ini": "[pytest]\naddopts = --collect-only\n",
}
