"""What programs see of Python, of themselves and of the frameworks."""

# ruff: noqa: E501 - the programs are read as they are

from __future__ import annotations

SIGNALS = {
    "SIGKILL": "import os; os.kill(os.getpid(), 9)",
    "SIGTERM with a handler": """
        import os, signal, sys
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()
    """,
    "SIGTERM in an exit handler": """
        import atexit, os, signal
        atexit.register(os.kill, os.getpid(), signal.SIGTERM)
    """,
    "SIGALRM": "import signal; signal.setitimer(signal.ITIMER_REAL, .02); signal.pause()",
    "SIGALRM with a handler": """
        import signal
        def ring(*_): raise TimeoutError('rang')
        signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, .02)
        signal.pause()
    """,
    "SIGSEGV": "import os, signal; signal.signal(11, signal.SIG_DFL); os.kill(os.getpid(), 11)",
    "abort": "import faulthandler, os; faulthandler.disable(); os.abort()",
    "handlers of some": (
        "import signal; print(signal.getsignal(13), signal.getsignal(25), signal.getsignal(1))"
    ),
    "all handlers": """
        import signal
        own = {signal.SIGSEGV, signal.SIGFPE, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, 50}
        print([(s, signal.getsignal(s)) for s in sorted(signal.valid_signals() - own)])
        print(signal.pthread_sigmask(signal.SIG_BLOCK, []))
    """,
    "a closed pipe": """
        import os, sys
        r, w = os.pipe()
        os.close(r)
        try: os.write(w, b'x')
        except BrokenPipeError as e: print(e)
    """,
    "exit in an exit handler": "import atexit, sys; atexit.register(sys.exit, 4)",
    "exit in a thread": """
        import sys, threading
        t = threading.Thread(target=sys.exit, args=[9]); t.start(); t.join(); print('on')
    """,
    "exit with an odd value": "raise SystemExit([1, 'é'])",
    "exit with a bool and None": "import sys\ntry: sys.exit(False)\nexcept SystemExit as e: print(e.code)\nexit()",
    "exit with a large code": "import sys; sys.exit(2**40 + 7)",
    "quit": "quit('bye')",
}

PYTHON = {
    "argparse": """
        import argparse
        p = argparse.ArgumentParser()
        p.add_argument('a'); p.add_argument('--b', action='store_true'); p.add_argument('--c', type=int)
        print(p.prog, p.parse_args())
        p.print_usage()
    """,
    "argparse that refuses": """
        import argparse
        argparse.ArgumentParser().parse_args(['--no'])
    """,
    "pickling by value and by name": """
        import copy, pickle
        class A:
            def __init__(self): self.x = [1]
            def __eq__(self, other): return self.x == other.x
        def f(): return 3
        for p in range(pickle.HIGHEST_PROTOCOL + 1):
            assert pickle.loads(pickle.dumps(A(), p)) == A() and pickle.loads(pickle.dumps(f, p)) is f
        print(pickle.dumps(A, 0), copy.deepcopy(A()).x)
    """,
    "pickling in a thread": """
        import pickle, threading
        class A: pass
        t = threading.Thread(target=lambda: print(pickle.loads(pickle.dumps(A)) is A)); t.start(); t.join()
    """,
    "pickling with multiprocessing": """
        from multiprocessing.reduction import ForkingPickler
        import sys
        class A: pass
        print(ForkingPickler.loads(ForkingPickler.dumps(A)) is A)
        print(sys.modules.get('__mp_main__', sys.modules['__main__']) is sys.modules['__main__'])
    """,
    "a dataclass with annotations of strings": """
        from __future__ import annotations
        import dataclasses, typing
        @dataclasses.dataclass(frozen=True)
        class A:
            x: list[int] = dataclasses.field(default_factory=list)
            y: typing.ClassVar[int] = 2
        print(A(), [f.type for f in dataclasses.fields(A)], typing.get_type_hints(A))
    """,
    "enums and named tuples": """
        import collections, enum, pickle, typing
        class E(enum.Enum): A = 1
        class T(typing.NamedTuple): x: int
        P = collections.namedtuple('P', 'a b')
        print(E.A, E.__module__, T(1), P(1, 2), P.__module__, pickle.loads(pickle.dumps(P(1, 2))))
    """,
    "the main module's names": """
        import __main__, sys
        print(sorted(vars(__main__)), __main__.__spec__, __main__.__package__, __main__.__loader__.name)
        print(__main__.__loader__.get_filename('__main__') == __file__, __main__.__cached__)
    """,
    "its arguments": "import sys; print(sys.argv, sys.orig_argv, sys.orig_argv[0] == sys.executable)",
    "since when it logs": """
        import logging, time
        print(0 <= logging.makeLogRecord({}).relativeCreated < 1500)
    """,
    "where it is": """
        import inspect, os, sys
        from pathlib import Path
        print(os.getcwd(), Path.cwd(), __file__, sys.argv, sys.path[0], Path(__file__).resolve())
        print(inspect.getfile(inspect.currentframe()), inspect.stack()[0].code_context)
        print(len(inspect.stack()) >= 1, inspect.getmodule(inspect.currentframe()).__name__)
    """,
    "runpy": "import runpy; print(sorted(runpy.run_path('helper.py')), __name__)",
    "warnings": """
        import warnings
        warnings.warn('one'); warnings.warn('two', DeprecationWarning)
        for i in range(2): warnings.warn('again', UserWarning)
        def f(): warnings.warn('deep', FutureWarning, stacklevel=2)
        f()
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter('always'); warnings.warn('kept')
        print([str(w.message) for w in seen])
    """,
    "a SyntaxWarning": "x = 1\nprint(x is 1)",
    "logging": """
        import logging, sys
        log = logging.getLogger(__name__)
        log.warning('no handler'); log.info('not shown')
        logging.basicConfig(level=logging.INFO, format='%(name)s %(levelname)s %(module)s %(funcName)s %(lineno)d %(processName)s %(threadName)s')
        log.info('shown')
        print(logging.getLogger().handlers, logging.getLogger().level)
        log.error('x', exc_info=True, stack_info=False)
    """,
    "logging before": "import logging; print(logging.getLogger().handlers, logging.root.level, logging.raiseExceptions)",
    "tracebacks": """
        import traceback, sys
        def f(n): return 1 / n if not n else f(n - 1)
        try: f(3)
        except ZeroDivisionError: traceback.print_exc(); print(traceback.format_exc(limit=1))
        print(traceback.format_stack()[-1], len(traceback.extract_tb(sys.exc_info()[2])))
        f(1)
    """,
    "recursion": "import sys; print(sys.getrecursionlimit())\ndef f(): f()\ntry: f()\nexcept RecursionError as e: print(e)",
    "a deep recursion": "import sys; sys.setrecursionlimit(9000)\ndef f(n): return n and f(n - 1)\nprint(f(8000))",
    "an exception with a long text": "raise ValueError('x' * 5000)",
    "an exception of a lambda": "f = lambda: {}['a']\nf()",
    "an assertion": "assert 1 == 2, 'they differ'",
    "an exception whose class is of a module": "import helper, json\njson.loads('{')",
    "streams": """
        import sys
        for s in (sys.stdin, sys.stdout, sys.stderr):
            print(type(s), s.name, s.mode, s.encoding, s.errors, s.newlines, s.isatty(), s.fileno())
            print(getattr(s, 'line_buffering', None), getattr(s, 'write_through', None))
        print(sys.stdin.read())
    """,
    "streams of bytes": "import sys; sys.stdout.buffer.write(b'\\xff\\n'); sys.stdout.buffer.flush(); print('é', ascii('é'))",
    "what cannot be encoded": "print('\\udc80')",
    "standard input closed": "import os, sys; os.close(0); print(open('data.txt').read(), sys.stdin.closed)",
    "standard error is output": "import sys; sys.stderr = sys.stdout; print('a', file=sys.stderr); 1 / 0",
    "encodings": """
        import locale, sys, os
        print(sys.getdefaultencoding(), sys.getfilesystemencoding(), sys.getfilesystemencodeerrors())
        print(locale.getpreferredencoding(), locale.setlocale(locale.LC_ALL), sys.flags.utf8_mode)
        open('ä', 'w').write('ö'); print(os.listdir('.') == sorted(os.listdir('.')) or sorted(os.listdir('.')))
    """,
    "attributes of sys": """
        import sys
        for name in ('flags', 'executable', 'prefix', 'base_prefix', 'platform', 'maxsize', 'byteorder',
                     'dont_write_bytecode', 'warnoptions', '_xoptions', 'pycache_prefix', 'hash_info',
                     'float_repr_style', 'thread_info', 'tracebacklimit', 'ps1', 'stdlib_module_names'):
            value = getattr(sys, name, 'none')
            print(name, sorted(value) if isinstance(value, frozenset) else value)
        print(sys.getswitchinterval(), sys.gettrace(), sys.getprofile(), sys.exc_info(), sys.displayhook)
        print(sys.excepthook, sys.breakpointhook, sys.int_info, sys.getdlopenflags())
    """,
    "hooks of sys": "import sys; print(sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__, sys.stdout is sys.__stdout__)",
    "modules that are not to be imported": """
        import sys
        for name in ('jax', 'tensorflow', 'keras', 'torch', 'numpy', 'json', 'nothing'):
            sys.modules[name] = None
            try: __import__(name)
            except ImportError as e: print(type(e).__name__, e, e.name, e.path)
    """,
    "garbage collection": "import gc; print(gc.isenabled(), gc.get_threshold(), gc.get_debug(), gc.garbage)",
    "numbers that are seeded": """
        import random, hashlib
        random.seed(7); print(random.random(), random.choice('abc'), random.getstate()[1][:3])
        print(random.Random(3).random(), hash(3.5), hashlib.sha256(b'x').hexdigest())
    """,
    "numbers that are not seeded": """
        import random, uuid, os, secrets
        values = [random.random(), uuid.uuid4(), os.urandom(4), secrets.token_hex(4), random.SystemRandom().random()]
        open('kinds', 'w').write(str([type(v).__name__ for v in values]))
    """,
    "hash of strings": "import sys; print(sys.flags.hash_randomization)",
    "threads": """
        import threading
        print(threading.current_thread().name, threading.active_count(), threading.stack_size())
        print(threading.main_thread() is threading.current_thread(), len(threading.enumerate()))
        local = threading.local(); local.x = 1
        t = threading.Thread(target=lambda: print(hasattr(local, 'x'), threading.current_thread().name)); t.start(); t.join()
    """,
    "thread names": "import threading\nt = threading.Thread(target=print); print(t.name); t.start(); t.join(); print(threading.Timer(1, print).name)",
    "a context variable": "import contextvars; v = contextvars.ContextVar('v', default=1); print(v.get(), v in contextvars.copy_context())",
    "the process": """
        import multiprocessing as m, os
        p = m.current_process()
        print(p.name, p.daemon, m.parent_process(), m.active_children(), m.get_start_method(), p._identity)
        print(os.getpid() == p.pid, os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid())
    """,
    "children's names": """
        import multiprocessing as m
        def f(): print(m.current_process().name, m.parent_process().name, __name__, flush=True)
        if __name__ == '__main__':
            for c in ('fork', 'spawn'):
                p = m.get_context(c).Process(target=f); p.start(); p.join(); print(p.name, p.exitcode)
    """,
    "a child that exits": """
        import multiprocessing as m, os, sys, atexit
        atexit.register(lambda: print('handler', os.getpid() == main, flush=True))
        main = os.getpid()
        def f(): sys.exit(7)
        for t in (f, os.abort):
            import faulthandler; faulthandler.disable()
            p = m.get_context('fork').Process(target=t); p.start(); p.join(); print(p.exitcode)
    """,
    "a fork": """
        import atexit, os
        atexit.register(print, 'handler', flush=True)
        f = open('out.txt', 'w')
        if os.fork():
            os.wait(); f.write('parent')
        else:
            f.write('child')
    """,
    "a fork that exits by code": "import os, sys\nif os.fork() == 0: sys.exit(3)\nprint(os.waitstatus_to_exitcode(os.wait()[1]))",
    "a subprocess": """
        import subprocess, sys
        print(subprocess.run([sys.executable, '-c', 'import sys; print(sys.argv, sys.path[0] == \\'\\')'], capture_output=True, text=True))
        print(subprocess.run([sys.executable, 'helper.py'], capture_output=True).returncode)
    """,
    "open descriptors in a child": """
        import subprocess, sys
        code = 'import os; print([n for n in sorted(map(int, os.listdir("/proc/self/fd"))) if n < 3])'
        print(subprocess.run([sys.executable, '-c', code], capture_output=True, text=True).stdout)
    """,
    "asyncio": """
        import asyncio
        async def f(): await asyncio.sleep(.01); return asyncio.current_task().get_name(), asyncio.get_running_loop().is_running()
        print(asyncio.run(f()), asyncio.get_event_loop_policy())
        async def g(): asyncio.create_task(h()); await asyncio.sleep(.01)
        async def h(): raise ValueError('never retrieved')
        asyncio.run(g())
    """,
    "decimals and time": "import decimal, time; print(decimal.getcontext(), time.tzname, time.gmtime(0).tm_hour)",
    "limits": "import resource; print([resource.getrlimit(r) for r in (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE, resource.RLIMIT_STACK)])",
    "umask and nice": "import os; print(os.umask(0), os.nice(0), os.cpu_count(), len(os.sched_getaffinity(0)))",
    "input without an answer": "try: input('? ')\nexcept EOFError as e: print(repr(e))\nbreakpoint",
    "doctest": '"""\n>>> 1 + 1\n2\n>>> 1 + 1\n3\n"""\nimport doctest\nprint(doctest.testmod())',
    "unittest": """
        import unittest
        class T(unittest.TestCase):
            def test_a(self): self.assertEqual(1, 2)
        unittest.main(argv=['x'], exit=False, verbosity=0)
    """,
    "exec and eval": "exec(compile('def f(): return __name__', 'x.py', 'exec')); print(f(), eval('__file__') == __file__)",
    "type hints at run time": "def f(a: int, *, b: 'str' = '') -> None: 'doc'\nimport inspect; print(inspect.signature(f), f.__doc__, f.__module__, f.__qualname__)",
    "a class's source": "import inspect\nclass A:\n    x = 1\n    def f(self): return 2\nprint(inspect.getsource(A), inspect.getsourcelines(A.f))",
    "a profile": "import cProfile, pstats, io\np = cProfile.Profile(); p.runcall(sorted, [2, 1]); print(len(pstats.Stats(p).stats) > 0)",
    "tracemalloc": "import tracemalloc; tracemalloc.start(); x = [1] * 1000; print(tracemalloc.is_tracing(), tracemalloc.get_traced_memory()[0] > 0)",
    "a trace function": "import sys\nn = []\nsys.settrace(lambda *a: n.append(a[1]))\ndef f(): pass\nf(); sys.settrace(None); print(n)",
    "an audit hook": "import sys\nsys.addaudithook(lambda e, a: print(e) if e == 'mine' else None)\nsys.audit('mine')",
    "a local package": "import pack.inner, pack; print(pack.inner.__package__, pack.__file__, pack.__path__, pack.inner.up)",
    "importlib": "import importlib, importlib.util, helper; print(importlib.reload(helper) is helper, importlib.util.find_spec('main').origin, importlib.util.find_spec('no'))",
    "a module that fails": "try: import broken\nexcept SyntaxError as e: print(e.filename, e.lineno)\nimport nothing_like_this",
    "main as a module twice": "import main as one, sys\nprint(one.__name__, one is sys.modules['main'], __name__)",
    "__getattr__ of a module": "def __getattr__(name): return name\nimport sys; print(sys.modules['__main__'].anything)",
    "a replaced main": "import sys, types\nsys.modules['__main__'] = types.ModuleType('__main__')\nprint('on')",
    "a deleted main": "import sys\ndel sys.modules['__main__']\nprint('on')",
    "changed working directory": "import os; os.mkdir('sub'); os.chdir('sub'); open('x', 'w').write('x'); raise ValueError('from elsewhere')",
    "changed arguments": "import sys; sys.argv[:] = ['z']; sys.path.insert(0, 'q'); raise ValueError(sys.argv)",
}
"""Programs that need Python only."""

FRAMEWORKS = {
    "signatures and documentation": """
        import inspect, keras, linecache, multiprocessing.spawn, sys, tensorflow, threading
        OF = "keras.", "tensorflow.python.distribute", "linecache", "multiprocessing"
        said = {}
        def about(one):
            if isinstance(one, property): one = one.fget
            if isinstance(one, (classmethod, staticmethod)): one = one.__func__
            if not inspect.isfunction(one) or id(one) in said: return
            try: signature = inspect.signature(one)
            except (TypeError, ValueError): signature = None
            said[id(one)] = str((one.__module__, one.__qualname__, one.__name__, signature, one.__doc__))
        for module in [module for name, module in sorted(sys.modules.items()) if name.startswith(OF)]:
            for value in [*vars(module).values()]:
                if isinstance(value, type):
                    for name, method in [*vars(value).items()]:
                        if name[0] != '_' or name[:2] == '__': about(method)
                elif inspect.isfunction(value): about(value)
        print(threading.excepthook is threading.__excepthook__, sys.unraisablehook is sys.__unraisablehook__)
        print(*sorted({*said.values()}), sep='\\n')
    """,
    "devices, seeds, tf.data, AutoGraph and its source, checkpoints, gradients": """
        import random, shutil, numpy as np, tensorflow as tf, keras
        print([d.name for d in tf.config.list_physical_devices()], tf.config.threading.get_intra_op_parallelism_threads())
        print(tf.config.list_logical_devices(), tf.executing_eagerly(), tf.config.functions_run_eagerly())

        keras.utils.set_random_seed(3)
        print(random.random(), np.random.rand(2), tf.random.uniform([2]).numpy(), keras.random.normal([2]).numpy())
        tf.random.set_seed(1); print(tf.random.normal([2]).numpy(), np.random.default_rng(5).random())
        print(keras.backend.backend(), keras.config.floatx(), keras.config.image_data_format())

        tf.random.set_seed(1)
        d = tf.data.Dataset.range(10).shuffle(5).map(lambda x: x * 2, num_parallel_calls=2).batch(3).cache().prefetch(1)
        print([b.numpy().tolist() for b in d])
        def g():
            for i in range(3): yield i
        print(list(tf.data.Dataset.from_generator(g, output_signature=tf.TensorSpec([], tf.int32)).as_numpy_iterator()))
        print(list(tf.data.Dataset.from_tensor_slices([1]).apply(tf.data.experimental.assert_cardinality(1))))

        @tf.function
        def f(x):
            s = 0
            for i in tf.range(x):
                if i > 1: s += i
            return s
        print(f(tf.constant(5)).numpy(), tf.autograph.to_code(f.python_function))

        v = tf.Variable(1.0); c = tf.train.Checkpoint(v=v); m = tf.train.CheckpointManager(c, 'ck', 2)
        m.save(); v.assign(5.); m.save(); c.restore(m.latest_checkpoint); print(v.numpy(), len(m.checkpoints))
        shutil.rmtree('ck')

        x = tf.Variable(3.)
        with tf.GradientTape() as t: y = x ** 3
        print(t.gradient(y, x).numpy(), tf.nn.softmax([1., 2.]).numpy())
        tf.debugging.assert_equal(1, 2, 'differs')
    """,
    "a fit, and one of mixed precision": """
        import numpy as np, keras, tensorflow as tf
        keras.utils.set_random_seed(1)
        tf.config.experimental.enable_op_determinism()
        x = np.random.rand(32, 4).astype('float32'); y = x.sum(1)
        m = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(8, 'relu'), keras.layers.Dropout(.1), keras.layers.Dense(1)])
        m.compile('adam', 'mse'); h = m.fit(x, y, epochs=2, verbose=0, validation_split=.25)
        print(h.history, [w.sum() for w in m.get_weights()], m.name, [l.name for l in m.layers])
        m.summary()
        m.save_weights('w.weights.h5'); m.load_weights('w.weights.h5')
        import os; os.remove('w.weights.h5'); print(m.evaluate(x, y, verbose=0), m.predict(x[:1], verbose=0).shape)

        keras.mixed_precision.set_global_policy('mixed_float16'); keras.utils.set_random_seed(1)
        m = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3)]); m.compile('sgd', 'mse')
        m.fit(np.ones((8, 4)), np.ones((8, 3)), verbose=0); print(m.layers[0].compute_dtype, m.optimizer, m.get_weights())
    """,
    "absl": """
        from absl import app, flags, logging
        F = flags.FLAGS
        flags.DEFINE_integer('n', 1, 'how many')
        def main(argv):
            print(argv[1:], F.n, F['n'].module if hasattr(F['n'], 'module') else '')
            logging.set_verbosity('info')
            import tensorflow as tf
            print(tf.constant(1).numpy())
            return 3
        app.run(main, argv=['main.py', '--n=4', 'rest'])
    """,
    "writers that are open": """
        import tensorflow as tf
        w = tf.io.TFRecordWriter('a.tfrecord'); w.write(b'x' * 100)
        g = tf.io.gfile.GFile('g.txt', 'w'); g.write('data')
        s = tf.summary.create_file_writer('logs'); print(type(s).__name__)
        import shutil; shutil.rmtree('logs', ignore_errors=True)
        import string
        string.kept = tf.io.TFRecordWriter('b.tfrecord'); string.kept.write(b'y' * 100)
        string.also = tf.io.gfile.GFile('h.txt', 'w'); string.also.write('data')
        raise ValueError('mine')
    """,
    "HDF5 that is open": """
        import h5py, numpy as np, os, atexit, sys
        f = h5py.File('a.h5', 'w', track_order=False); f['x'] = np.arange(5)
        import string
        string.kept = h5py.File('b.h5', 'w'); string.kept['y'] = np.arange(3)
        print('end'); sys.exit(3)
    """,
    "an error of TensorFlow's": "import tensorflow as tf\ntf.matmul(tf.ones([2, 3]), tf.ones([2, 3]))",
    "jax": """
        import jax, jax.numpy as jnp
        print(jax.random.normal(jax.random.key(0), (2,)), jax.jit(lambda x: x * 2)(3.), jax.grad(jnp.sin)(1.), jax.devices())
    """,
    "Keras without JAX": """
        import sys
        sys.modules['jax'] = None
        import keras, numpy as np
        keras.utils.set_random_seed(1)
        m = keras.Sequential([keras.layers.Dense(1)]); m.compile('sgd', 'mse')
        print(m.fit(np.ones((4, 2)), np.ones(4), verbose=0).history)
        import jax
    """,
    "a process pool with TensorFlow": """
        import multiprocessing as m
        def f(x):
            import numpy as np
            return float(np.sqrt(x))
        if __name__ == '__main__':
            import tensorflow as tf
            print(tf.constant(1).numpy())
            with m.get_context('spawn').Pool(1) as pool: print(pool.map(f, [4.]))
    """,
}
"""Programs that import a framework, twice each for seconds: one holds what needs no own process."""
