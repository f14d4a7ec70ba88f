"""What programs leave open, and what they are doing, when they end in several ways."""

from __future__ import annotations

ENDS = {
    "well": "",
    "an exception": "raise ValueError('mine')",
    "exit 3": "import sys; sys.exit(3)",
    "interrupted": "raise KeyboardInterrupt",
}
"""The last line of a program."""

OPEN = {
    "a text file": "f = open('out.txt', 'w')\nf.write('data')",
    "a file opened before gc.freeze": """
        import gc
        f = open('out.txt', 'w')
        f.write('data')
        b = open('out.bin', 'wb')
        b.write(b'data')
        gc.collect()
        gc.freeze()
    """,
    "a file in a cycle": """
        class A: pass
        a = A()
        a.me = a
        a.file = open('out.txt', 'w')
        a.file.write('data')
    """,
    "a file of a class and of a default": """
        class A:
            file = open('one.txt', 'w')
        def f(file=open('two.txt', 'w')): file.write('data')
        A.file.write('data')
        f()
    """,
    "a file that a module of the library holds": """
        import string
        string.mine = open('out.txt', 'w')
        string.mine.write('data')
    """,
    "an archive": """
        import zipfile
        z = zipfile.ZipFile('out.zip', 'w')
        z.writestr(zipfile.ZipInfo('a.txt'), 'data' * 100)
    """,
    "a compressed file": """
        import bz2, lzma
        b = bz2.open('out.bz2', 'wt')
        b.write('data' * 100)
        x = lzma.open('out.xz', 'wb')
        x.write(b'data' * 100)
    """,
    "C's files": """
        import ctypes
        libc = ctypes.CDLL(None)
        libc.fopen.restype = ctypes.c_void_p
        file = ctypes.c_void_p(libc.fopen(b'out.txt', b'w'))
        libc.fputs(b'data', file)
        libc.printf(b'from C\\n')
    """,
    "C's exit handlers": """
        import ctypes
        libc = ctypes.CDLL(None)
        libc.puts.argtypes = [ctypes.c_char_p]
        CALL = ctypes.CFUNCTYPE(None)
        libc.printf(b'before\\n')
        path = ctypes.create_string_buffer(b'mark')
        mark = open('mark', 'w').close()
        import string
        string.keep = path
    """,
    "temporary files": """
        import os, tempfile
        os.mkdir('tmp')
        tempfile.tempdir = os.path.abspath('tmp')
        one = tempfile.NamedTemporaryFile()
        two = tempfile.TemporaryDirectory()
        three = tempfile.TemporaryFile('w')
        open(two.name + '/x', 'w').close()
        import atexit, string
        string.four = tempfile.TemporaryDirectory()
        atexit.register(lambda: print(len(os.listdir('tmp'))))
    """,
    "a finalizer": """
        class A:
            def __del__(self): print('gone', flush=True)
        a = A()
        class B:
            def __del__(self, open=open):
                with open('out.txt', 'a') as f: f.write('b')
        b = [B(), B()]
    """,
    "a finalizer of what a library holds": """
        import string
        class A:
            def __del__(self, open=open):
                with open('out.txt', 'a') as f: f.write('x')
        string.mine = A()
    """,
    "weakref.finalize": """
        import weakref
        class A: pass
        a = A()
        weakref.finalize(a, print, 'one')
        weakref.finalize(a, print, 'two').atexit = False
        weakref.finalize(A, print, 'three')
    """,
    "a suspended generator": """
        def f():
            try:
                yield 1
            finally:
                print('finally', flush=True)
        g = f()
        next(g)
        import contextlib
        @contextlib.contextmanager
        def c():
            try: yield
            finally: print('closed', flush=True)
        kept = c()
        kept.__enter__()
    """,
    "exit stacks": """
        import atexit, contextlib
        stack = contextlib.ExitStack()
        stack.callback(print, 'callback')
        atexit.register(stack.close)
        def one(): print('one')
        def two():
            print('two')
            atexit.register(print, 'registered late')
        atexit.register(one)
        atexit.register(two)
    """,
    "log handlers": """
        import logging, logging.handlers
        file = logging.FileHandler('out.log', delay=True)
        memory = logging.handlers.MemoryHandler(100, target=file)
        logging.getLogger().addHandler(memory)
        logging.getLogger().warning('kept')
    """,
    "shelves and dbm": """
        import shelve, dbm.dumb
        db = dbm.dumb.open('dumb', 'c')
        db['a'] = 'b'
        s = shelve.Shelf(dict())
        s['x'] = 1
    """,
    "threads at work": """
        import threading
        f = open('out.txt', 'w')
        def work():
            threading.main_thread().join()
            f.write('012')
            print('worked')
        threading.Thread(target=work).start()
    """,
    "a thread that starts another": """
        import threading
        def second(): print('second')
        def first():
            threading.main_thread().join()
            threading.Thread(target=second).start()
        threading.Thread(target=first).start()
    """,
    "a pool of threads": """
        from concurrent.futures import ThreadPoolExecutor
        import threading, time
        def until_the_end():  # of the main thread's code, as what it raised is printed before
            while not threading._SHUTTING_DOWN: time.sleep(.01)
        pool = ThreadPoolExecutor(1)
        pool.submit(until_the_end)
        for i in range(3): pool.submit(print, 'done', i, flush=True)
    """,
    "a timer": """
        import threading
        threading.Timer(.1, lambda: open('late.txt', 'w').write('late')).start()
    """,
    "an event loop": """
        import asyncio
        loop = asyncio.new_event_loop()
        async def f():
            try: await asyncio.sleep(9)
            finally: print('cancelled', flush=True)
        task = loop.create_task(f())
        loop.run_until_complete(asyncio.sleep(0))
    """,
    "standard output that is buffered": """
        import io, sys
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, 'w', closefd=False)))
        print('buffered')
    """,
    "an exit handler that writes": """
        import atexit
        f = open('out.txt', 'w')
        atexit.register(f.write, 'late')
    """,
    "a process pool": """
        import multiprocessing as m
        pool = m.get_context('fork').Pool(2)
        print(pool.map(abs, [-1, -2]))
    """,
    "a child that is not waited for": """
        import multiprocessing as m, time
        def f():
            time.sleep(.05)
            open('child.txt', 'w').write('child')
        m.get_context('fork').Process(target=f).start()
    """,
    "a daemonic child": """
        import multiprocessing as m, time
        m.get_context('fork').Process(target=time.sleep, args=[60], daemon=True).start()
    """,
    "a process pool of futures": """
        from concurrent.futures import ProcessPoolExecutor
        import multiprocessing as m
        pool = ProcessPoolExecutor(1, mp_context=m.get_context('fork'))
        print(pool.submit(abs, -3).result())
    """,
    "a manager": """
        import multiprocessing as m
        manager = m.get_context('fork').Manager()
        d = manager.dict(a=1)
        print(d['a'])
    """,
}
"""What a program has open, or does, when its last line comes."""
