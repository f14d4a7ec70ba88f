"""Scripts that must mean the same to the bootstrap as to the interpreter."""

from __future__ import annotations

import sys

PROGRAMS = {
    # What a script sees of itself.
    "arguments": "import sys; print(sys.argv)",
    "the import path": "import sys; print(sys.path)",
    "its own names": (
        "print(__file__, __name__, __package__, __spec__, __doc__, type(__loader__), __cached__, "
        "__builtins__, sorted(globals()), __annotations__)"
    ),
    "the main module": (
        "import sys, __main__\n"
        "print(vars(__main__) is globals(), sys.modules['__main__'] is __main__, __main__)"
    ),
    "its docstring": "'''The docstring.'''\nprint(__doc__)",
    "interactive builtins": "print(exit, quit)",
    "signal handlers": (
        "import signal\nprint(signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGPIPE))"
    ),
    "standard input": "import sys\nprint(repr(sys.stdin.read()))",
    "input at the end": "input('? ')",
    "files beside it": (
        "from pathlib import Path\n"
        "print(Path('data.txt').read_text(), (Path(__file__).parent / 'data.txt').read_text())"
    ),
    "modules beside it": "import helper\nprint(helper.__file__)",
    "itself as a module": "import main\nprint(main.__name__)",
    # What the language does with a main module.
    "a dataclass": (
        "from dataclasses import dataclass\n@dataclass\nclass A:\n    x: int = 1\nprint(A())"
    ),
    "a future import": (
        "from __future__ import annotations\ndef f(x: no): pass\nprint(f.__annotations__)"
    ),
    "no future import": "def f(x: int): pass\nprint(f.__annotations__)",
    "pickling": (
        "import pickle\nclass A: x = 1\na = pickle.loads(pickle.dumps(A()))\nprint(type(a) is A)"
    ),
    "its own source": (
        "import inspect\ndef f(x):\n    return x\nprint(inspect.getsource(f), "
        "inspect.getsourcefile(f), inspect.getmodule(f))"
    ),
    # Encodings.
    "a declared encoding": "# coding: latin-1\nprint(ascii('é'))\nraise ValueError('é')".encode(
        "latin-1"
    ),
    "a byte order mark": b"\xef\xbb\xbf" + "print(ascii('é'))\nundefined".encode(),
    "lines that end as on Windows": b"x = '''a\r\nb'''\r\nprint(repr(x))\r\nraise ValueError\r\n",
    "a form feed": b"x = 1\n\x0cdef f():\n    raise ValueError('x')\nf()\n",
    # Ends.
    "exit None": "import sys; sys.exit(None)",
    "exit nothing": "raise SystemExit",
    "exit 3": "import sys; sys.exit(3)",
    "exit -1": "import sys; sys.exit(-1)",
    "exit 256": "import sys; sys.exit(256)",
    "exit True": "import sys; sys.exit(True)",
    "exit text": "import sys; sys.exit('text')",
    "exit a tuple": "raise SystemExit(1, 2)",
    "exit at once": "import os\nprint('x', flush=True)\nos._exit(9)",
    "SIGTERM": "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)",
    "SIGINT": "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(5)",
    "KeyboardInterrupt": "raise KeyboardInterrupt",
    "GeneratorExit": "raise GeneratorExit",
    # What is raised.
    "an exception": "def f(x):\n    return 1 / x\n\nf(0)\n",
    "a chain": (
        "def f():\n    try:\n        {}['a']\n    except KeyError as e:\n"
        "        raise ValueError('bad') from e\n"
        "try:\n    f()\nexcept ValueError:\n    raise RuntimeError('third')\n"
    ),
    "a chain of one": "e = ValueError('x')\nraise e from e",
    "an exception in a module": "import helper\nhelper.fail()",
    "an exception without text": (
        "class E(Exception):\n    def __str__(self): raise TypeError('no')\nraise E"
    ),
    "text that cannot be encoded": "raise ValueError('\\udc80 é')",
    "a syntax error": "x = 1\nif x\n    pass\n",
    "a wrong indentation": "def f():\n  return 1\n   y = 2\n",
    "a text that does not end": "x = 'abc\n",
    "a syntax error in a module": "import broken",
    "an exception in a coroutine": (
        "import asyncio\nasync def f():\n    raise ValueError('x')\nasyncio.run(f())"
    ),
    "a logged exception": (
        "import logging\ntry:\n    1 / 0\nexcept ZeroDivisionError:\n    logging.exception('x')"
    ),
    "a warning": "import warnings\ndef f(): warnings.warn('w', stacklevel=2)\nf()",
    "an exception hook": (
        "import sys, traceback\ndef hook(kind, error, trace):\n"
        "    print('HOOK', kind, error, traceback.extract_tb(trace))\n"
        "sys.excepthook = hook\nraise ValueError('x')"
    ),
    "a hook that fails": (
        "import sys\ndef hook(kind, error, trace):\n    raise TypeError('hook')\n"
        "sys.excepthook = hook\nraise ValueError('x')"
    ),
    "a hook that exits": "import sys\nsys.excepthook = lambda *_: sys.exit(7)\nraise ValueError",
    "the last exception": (
        "import atexit, sys\natexit.register(lambda: print(sys.last_type, sys.last_value))\n"
        "raise ValueError('x')"
    ),
    # What happens at the end.
    "exit handlers": "import atexit\natexit.register(print, 1)\natexit.register(print, 2)",
    "exit handlers after an exception": "import atexit\natexit.register(print, 1)\nraise OSError",
    "an exit handler that fails": (
        "import atexit\ndef f(): raise ValueError('late')\natexit.register(print, 'a')\n"
        "atexit.register(f)\natexit.register(print, 'b')"
    ),
    "a line without an end": "import sys\nsys.stdout.write('no newline')",
    "no standard output": "import sys\nprint('x')\nsys.stdout = None",
    "a standard output of its own": (
        "import sys\nclass T:\n    def write(self, text): sys.__stdout__.write(text.upper())\n"
        "    def flush(self): pass\nsys.stdout = T()\nprint('x')"
    ),
    "a thread": (
        "import threading, time\ngo = threading.Event()\ndef f():\n    go.wait()\n"
        "    time.sleep(.05)\n    print('thread')\n"
        "threading.Thread(target=f).start()\nprint('end')\ngo.set()"
    ),
    "a thread after an exception": (
        "import threading\ndef f():\n    threading.main_thread().join()\n    print('thread')\n"
        "threading.Thread(target=f).start()\nraise ValueError('x')"
    ),
    "a thread after an exit": (
        "import atexit, sys, threading, time\natexit.register(print, 'a')\ndef f():\n"
        "    time.sleep(.05)\n    print('thread')\nthreading.Thread(target=f).start()\nsys.exit(3)"
    ),
    "a daemon": (
        "import threading, time\nthreading.Thread(target=time.sleep, args=[9], daemon=True).start()"
    ),
    "an exception in a thread": (
        "import threading\ndef f(): 1 / 0\nt = threading.Thread(target=f, name='T')\n"
        "t.start()\nt.join()"
    ),
    "a pool of threads": (
        "from concurrent.futures import ThreadPoolExecutor\nimport threading, time\n"
        "go = threading.Event()\n"
        "ThreadPoolExecutor(2).submit(lambda: (go.wait(), time.sleep(.05), print('pool')))\n"
        "print('end')\ngo.set()"
    ),
    "an open file": "f = open('out.txt', 'w')\nf.write('data')",
    "an open file after an exception": "f = open('out.txt', 'w')\nf.write('data')\nraise OSError",
    "an open file of a module": "import helper\nhelper.log('x')",
    "an open file beside a function": (
        "def f(): pass\nf = [f, open('out.txt', 'w')]\nf[1].write('data')"
    ),
    "an open file of a finalizer": (
        "class A:\n    def __init__(self): self.file = open('out.txt', 'w')\n"
        "    def __del__(self): self.file.write('data')\na = A()"
    ),
    "an open archive": "import gzip\nf = gzip.open('out.txt', 'wt')\nf.write('data')",
    "a finalizer": "class A:\n    def __del__(self): print('gone', print is not None)\na = A()",
    "a finalizer in a cycle": "class A:\n    def __del__(self): print('gone')\na = A()\na.me = a",
    "a finalizer that fails": "class A:\n    def __del__(self): 1 / 0\na = A()\ndel a",
    "text from C": "import ctypes\nctypes.CDLL(None).printf(b'from C\\n')",
    # Children.
    "a forked child": (
        "import multiprocessing as m\ndef f(q): q.put(42)\nif __name__ == '__main__':\n"
        "    c = m.get_context('fork')\n    q = c.Queue()\n    p = c.Process(target=f, args=(q,))\n"
        "    p.start()\n    print(q.get())\n    p.join()\n    print(p.exitcode)"
    ),
    "a spawned child": (
        "import multiprocessing as m\ndef f(x): return x * x\nif __name__ == '__main__':\n"
        "    with m.get_context('spawn').Pool(1) as p: print(p.map(f, [1, 2, 3]))"
    ),
    "what a spawned child sees": (
        "import inspect, multiprocessing as m, sys\nfrom pathlib import Path\n"
        "DATA = (Path(__file__).parent / 'data.txt').read_text()\nNAMES = sorted(globals())\n"
        "if __name__ == '__mp_main__': print(sys.argv)\n"
        "def f(x): return (DATA, __file__, __name__, __package__, __spec__, __doc__, __cached__, "
        "NAMES, sys.argv, sys.path, inspect.getsource(f), inspect.getsourcefile(f))\n"
        "if __name__ == '__main__':\n"
        "    with m.get_context('spawn').Pool(1) as p: print(*p.map(f, [1])[0], sep='\\n')"
    ),
    "a child of a fork server": (
        "import multiprocessing as m\ndef f(x): return x * x, __file__, __name__\n"
        "if __name__ == '__main__':\n"
        "    with m.get_context('forkserver').Pool(1) as p: print(p.map(f, [1, 2, 3]))"
    ),
    "a spawned grandchild": (
        "import multiprocessing as m\ndef f(x): print(x, __file__, flush=True)\n"
        "def g(x):\n    p = m.get_context('spawn').Process(target=f, args=(x,))\n"
        "    p.start()\n    p.join()\n    print(p.exitcode)\n"
        "if __name__ == '__main__':\n"
        "    p = m.get_context('spawn').Process(target=g, args=(1,))\n    p.start()\n    p.join()"
    ),
    "a spawned child that fails": (
        "import multiprocessing as m\ndef f():\n    raise ValueError('child')\n"
        "if __name__ == '__main__':\n"
        "    p = m.get_context('spawn').Process(target=f, name='P')\n"
        "    p.start()\n    p.join()\n    print(p.exitcode)"
    ),
    "a class in a spawned child": (
        "import multiprocessing as m, pickle\nclass A: x = 1\ndef f(a): return type(a), a.x\n"
        "if __name__ == '__main__':\n"
        "    with m.get_context('spawn').Pool(1) as p: print(p.map(f, [A()]))"
    ),
    "a fork that fails": (
        "import os\nif os.fork() == 0:\n    raise RuntimeError('child')\n"
        "print(os.waitstatus_to_exitcode(os.wait()[1]))"
    ),
}

if sys.version_info >= (3, 11):
    PROGRAMS["a group"] = "raise ExceptionGroup('g', [ValueError(1), TypeError('x')])"
    PROGRAMS["a note"] = "e = ValueError('x')\ne.add_note('a note')\nraise e"

HELPER = """
f = open("helper.txt", "w")
def log(text): f.write(text)
def fail():
    raise ValueError("in the helper")
"""

LEFT_OPEN = """
import atexit, json, os, string
task = json.loads(os.environ["TF_CONFIG"])["task"]
own = f"{task['type']}-{task['index']}"
string.kept = open(f"{own}.txt", "w")
string.kept.write("data")
atexit.register(lambda: open(f"{own}.handled", "w").close())
def suspended(open=open, own=own):
    try: yield
    finally: open(f"{own}.closed", "w").close()
generator = suspended()
next(generator)
"""
"""What a task of a gang leaves open: a file, an exit handler and a generator."""

FINISHED = {"txt": "data", "handled": "", "closed": ""}
"""What the interpreter makes of that as it ends, by the ends of the files' names."""


def finished(folder, own):
    """Return what was made of what a task left open."""
    return {path.suffix[1:]: path.read_text() for path in folder.glob(f"{own}.*")}
