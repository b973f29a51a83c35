"""The rest of the bank: a patched harness, files that are none of its business, strange answers."""

from __future__ import annotations

from hostile_bank import Hostile

PATCHES = (
    Hostile(
        "patched builtins",
        "fail error",
        "",
        "return 0",
        "import builtins\nbuiltins.sum = builtins.len = builtins.abs = lambda *a: 0\n"
        "builtins.isinstance = builtins.all = builtins.any = lambda *a: True",
    ),
    Hostile(
        "patched NumPy",
        "fail",
        "total([",
        "return np.float64(-1)",
        "import numpy as np\nnp.array_equal = np.allclose = np.isfinite = lambda *a, **k: True",
    ),
    Hostile(
        "patched harness",
        "fail",
        "total([",
        "return 0",
        "from tutor.grading import compare, kit, run, verdict\n"
        "compare.first_difference = lambda *a, **k: None\nkit.Context.expect_equal = lambda *a, **k: None\n"
        "verdict.overall = lambda *a: 'pass'\nrun.grade = lambda *a, **k: None",
    ),
    Hostile(
        "patched runner",
        "fail",
        "total([",
        "return 1",
        "from tutor.grading.guest import Runner\nRunner._answer = lambda self, message: 0\nRunner._own = 0.0",
    ),
    Hostile(
        "forged with the right nonce",
        "error fail",
        "",
        "runner = next(o for o in gc.get_objects() if type(o).__name__ == 'Runner')\n"
        "frame = rpc.encode(rpc.Done(runner._nonces[-1], 0))\nos.write(runner._outgoing, frame)\n"
        "return 0",
        "import gc\nfrom tutor.grading import rpc",
    ),
    Hostile(
        "reads the solution", "fail", "Error", "return answer_of(SOLUTION, numbers)", "{reader}", plain=True
    ),
    Hostile(
        "reads the checks", "fail", "Error", "open(CHECK).read()\nreturn sum(numbers)", "{reader}", plain=True
    ),
    Hostile("lists the exercises", "fail error", "", "return os.listdir(FOLDER)[0]", "{reader}", plain=True),
    Hostile(
        "reads a stored reference",
        "fail",
        "Error",
        "os.listdir(REFERENCES)[0]\nreturn sum(numbers)",
        "{reader}",
        plain=True,
    ),
    Hostile(
        "reads another's work",
        "fail",
        "Error",
        "return answer_of(NEIGHBOUR, numbers)",
        "{reader}",
        plain=True,
    ),
    Hostile(
        "unmounts what hides it",
        "fail",
        "Error",
        "libc = ctypes.CDLL(None)\nfor _ in range(3): libc.umount2(os.fsencode(FOLDER), 2)\n"
        "libc.unshare(0x10000000 | 0x20000)\nlibc.umount2(os.fsencode(FOLDER), 2)\n"
        "return answer_of(SOLUTION, numbers)",
        "{reader}",
    ),
    Hostile(
        "searches the judge's memory",
        "fail",
        "no judge",
        "for pid in filter(str.isdigit, os.listdir('/proc')):\n"
        "    if int(pid) == os.getpid(): continue\n"
        "    try: open(f'/proc/{pid}/mem', 'rb').read(1)\n"
        "    except OSError as error:\n"
        "        if error.errno == 5: return sum(numbers)  # open, but nothing at address 0\n"
        "raise LookupError('no judge')",
        plain=True,
    ),
)

ANSWERS = (
    Hostile("equal to everything", "fail", "returned a value of type Yes", "return Yes()"),
    Hostile("an int equal to everything", "fail", "total([", "return YesInt(0)"),
    Hostile("broken exception", "fail", "Rude", "raise Rude"),
    Hostile("cyclic", "fail", "contains itself", "held = []\nheld.append(held)\nreturn held"),
    Hostile(
        "nested",
        "fail",
        "nested more than 64 levels",
        "held = []\nfor _ in range(10**4): held = [held]\nreturn held",
    ),
    Hostile("a generator", "fail", "total([", "return (n for n in numbers)"),
    Hostile("an endless generator", "fail", "goes on after", "return itertools.count()", "import itertools"),
    Hostile("endless generator", "fail", "goes on after 1,000,000 items", "return iter(int, 1)"),
    Hostile("coroutine", "fail", "a coroutine", "async def later(): return 1\nreturn later()"),
    Hostile("too large", "fail", "70 MiB of data; 64 is the limit", "return bytes(70 * 2**20)"),
    Hostile("a million numbers", "fail", "total([", "return list(range(10**6))"),
    Hostile("a huge number", "fail", "too long to be written out", "return 10**(10**5)"),
    Hostile("not a number", "fail", "total([", "return float('nan')"),
    Hostile("infinite", "fail", "total([", "return float('-inf')"),
    Hostile("text", "fail", "total([", "return str(sum(numbers))"),
    Hostile("complex", "fail", "of type complex", "return complex(sum(numbers))"),
    Hostile("a function", "fail", "of type function", "return lambda: sum(numbers)"),
    Hostile("a class", "fail", "of type type", "return int"),
    Hostile("wrong dtype", "fail", "dtype object", "return np.array([None])", "import numpy as np"),
    Hostile(
        "array of dates",
        "fail",
        "dtype datetime64",
        "return np.array(['2026-01-01'], 'M8[D]')",
        "import numpy as np",
    ),
    Hostile("wrong shape", "fail", "total([", "return np.zeros((3, 0, 2))", "import numpy as np"),
    Hostile("a lone surrogate", "fail", "lone surrogate", "return '\\ud800'"),
    Hostile("raises a lone surrogate", "fail", "\\ud800", "raise ValueError('\\ud800')"),
    Hostile("prints a lone surrogate", "fail", "UnicodeEncodeError", "print('\\ud800')\nreturn sum(numbers)"),
    Hostile("prints a stray byte", "pass", "", "print('\\udcff')\nreturn sum(numbers)"),
    Hostile("an exception with a long text", "fail", "ValueError: x", "raise ValueError('x' * 10**7)"),
    Hostile(
        "an exception group",
        "fail",
        "ExceptionGroup",
        "raise ExceptionGroup('two', [ValueError('a'), TypeError('b')])",
    ),
)
