"""Which files run between `train` and the first compiled gradient step (Python calls, imports left out)."""

import os, sys, collections, threading

os.environ["JAX_PLATFORMS"] = "cpu"
ROOT = os.path.realpath(sys.argv[1])
METHOD = sys.argv[2]
STEPS = int(sys.argv[3])
MODE = sys.argv[4] if len(sys.argv) > 4 else "old"
import jaxrl_rollouts as jr
from jaxrl_rollouts import offline

data = offline.load("pendulum-mixed") if MODE != "load" else "pendulum-mixed"
seen = collections.OrderedDict()
on = [True]
order = []


def prof(frame, event, arg):
    if event != "call" or not on[0]:
        return
    code = frame.f_code
    f = code.co_filename
    rf = os.path.realpath(f)
    if not rf.startswith(ROOT + "/"):
        return
    if code.co_name in ("<module>",):
        return
    # class bodies: name not in function flags
    if not code.co_flags & 0x2:
        return
    rel = rf[len(ROOT) + 1 :]
    if not order or order[-1] != rel:
        order.append(rel)
    seen[(rel, code.co_qualname, code.co_firstlineno)] = code


class Stop(Exception):
    pass


from jaxrl_rollouts import chunks, loop

real = chunks.Chunk.run


def run(self, *a, **k):
    if getattr(run, "n", 0) >= run.skip:
        on[0] = False
        raise Stop
    run.n = getattr(run, "n", 0) + 1
    return real(self, *a, **k)


run.skip = 10**9
chunks.Chunk.run = run
# stop at the agent's training: patch loop.train stage
import jaxrl_rollouts.loop as L

orig = L.train


def train(*a, **k):
    st = k.get("stage", "")
    if st and not ("world" in st or "posterior" in st or "termination" in st):
        run.skip = getattr(run, "n", 0)
    return orig(*a, **k)


import importlib

for m in list(sys.modules.values()):
    pass
L.train = train
kw = {}
sys.setprofile(prof)
try:
    if MODE == "new":
        offline.next_train(data, METHOD, steps=STEPS, seeds=1)
    else:
        offline.train(data, METHOD, steps=STEPS, seeds=1)
except Stop:
    pass
finally:
    sys.setprofile(None)
files = collections.Counter(k[0] for k in seen)


def lines(f):
    return sum(1 for _ in open(os.path.join(ROOT, f)))


import ast


def fn_lines(code):
    ls = [l for _, _, l in code.co_lines() if l]
    return max(ls) - code.co_firstlineno + 1


print(
    "stops",
    len(order),
    "files",
    len(files),
    "functions",
    len(seen),
    "lines of those files",
    sum(lines(f) for f in files),
    "lines of those functions",
    sum(fn_lines(c) for c in seen.values()),
)
by = collections.Counter(f.split("/")[0] for f in files)
print(dict(by))
for f, n in sorted(files.items()):
    print(f"{f}:{lines(f)} ({n})")
