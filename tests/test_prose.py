"""The words of the code: plain English, and units in the names of constants."""

import ast
import io
import itertools
import json
import re
import tokenize
from functools import cache
from pathlib import Path

import pytest

from mwmagic.model.variables import ANNOUNCED

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "mwmagic").rglob("*.py"))
OTHERS = [
    path
    for room in ("tests", "benchmarks")
    for path in sorted((ROOT / room).rglob("*.py"))
    if path != Path(__file__)  # it has the words that it looks for
]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "notebooks").glob("*.ipynb")]

TEXTS = [*SOURCES, *(ROOT / "benchmarks").glob("*.py"), *PAGES]
"""What users and contributors read, whose sentences are read one by one."""

UNITS = {
    *(
        "SECONDS",
        "MICROSECONDS",
        "BYTES",
        "LINES",
        "CHARACTERS",
        "PIXELS",
        "COLUMNS",
        "ROWS",
        "POINTS",
        "PORTS",
    ),
    *("TASKS", "LOOKS", "TRIES", "TIMES", "COUNT", "LIMIT", "VERSION", "FORMAT", "CODE", "SIGNAL"),
    *(
        "PIECES",
        "PINGS",
        "PACKETS",
        "DESCRIPTORS",
        "VALUES",
        "EPOCHS",
        "CORES",
        "RATIO",
        "METRICS",
        "KEYS",
        "VARIABLES",
    ),
    "MODE",
}
"""What a number may count; the name of a numeric constant has one of them among its words."""

SYSTEM = re.compile(r"MADV_|PR_|SIOC|STD(?:IN|OUT)")
"""How the system's own names begin."""

BANNED = re.compile(
    r"\b(?:hurtless|somebody|whoever|anew|of another making"
    r"|is no (?:JSON|number|task|host name|regular expression|whole number)"
    r"|who (?:evaluates|trains|fails|failed|waits|forks|serves|was)"
    r"|goes on with(?!out)|test_(?:\w+_)?who_\w+)\b",
    re.IGNORECASE,
)
"""What reads as translated; plain words say the same."""

HABITS = re.compile(
    r"\b(?:is|are|was|were|be|been) told\b(?! to\b)"  # facts are shown or reported
    r"|\btells (?:it|what|which|that|of|why|whether|where|how)\b"
    r"|\b(?:go|goes|going|went) on\b"  # continue
    r"|(?<![`.\w])processors?\b(?!`)"  # CPUs
    r"|\b(?:is|are|was|were) said\b"  # reported, or a line says so
    r"|\bas by hand\b"  # as without mwmagic
    r"|\bmend(?:s|ed|ing)?\b"  # fix
    r"|(?<=[.!?] )(?:Where|What|Of)\b[^.?!]*[.!;,]"  # if, when, or a noun
)
"""What reads as translated in a sentence."""

OPENING = re.compile(
    r"(?:^|(?<=[.!?:] ))[^\w`\[]*"
    r"(?:Of|Beside|Besides|Behind|Beyond|What|Where)\b[^?]*?[.!;:](?= |$)"
)
"""A sentence of a page that opens with a preposition, or with a question that it does not ask."""


@cache
def tree(path):
    """Return a module's syntax tree."""
    return ast.parse(path.read_text())


def name(path):
    """Name a file in a test's id."""
    return str(path.relative_to(ROOT))


def is_quantity(node):
    """Return whether an expression is a number that counts something: a negative one does not."""
    return all(
        isinstance(part, ast.BinOp | ast.operator | ast.Load)
        or (isinstance(part, ast.Constant) and type(part.value) in (int, float))
        for part in ast.walk(node)
    )


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_numeric_constants_name_their_unit(path):
    constants = [
        target.id
        for node in tree(path).body
        if isinstance(node, ast.Assign) and is_quantity(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    ]
    assert not [c for c in constants if not UNITS & {*c.split("_")} and not SYSTEM.match(c)]


@pytest.mark.parametrize("path", [*SOURCES, *OTHERS, *PAGES], ids=name)
def test_the_text_is_plain_english(path):
    lines = path.read_text().splitlines()
    assert not [f"{i}: {line.strip()}" for i, line in enumerate(lines, 1) if BANNED.search(line)]


def sentences(path):
    """Yield what a file says: texts and comments of a module, paragraphs and cells of a page."""
    text = path.read_text()
    if path.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    if path.suffix != ".py":
        yield from re.split(
            r"\n\s*\n|\n(?=\s*(?:[-*>]|\d+\.) )|\|", re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        )
        return
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
    lines = [
        one
        for one in tokenize.generate_tokens(io.StringIO(text).readline)
        if one.type == tokenize.COMMENT
    ]
    before = None
    block = []
    for one in lines:
        if one.start[0] - 1 != before:
            yield " ".join(block)
            block = []
        block.append(one.string.lstrip("# "))
        before = one.start[0]
    yield " ".join(block)


@pytest.mark.parametrize("path", TEXTS, ids=name)
def test_no_sentence_has_a_habit_of_another_language(path):
    said = [" ".join(one.split()) for one in sentences(path) if " " in one]
    assert not [f"{m.group()!r} in: {one}" for one in said for m in HABITS.finditer(one)]


@pytest.mark.parametrize("path", [one for one in PAGES if one.parent.name != "reference"], ids=name)
def test_no_sentence_of_a_page_makes_its_reader_wait_for_its_subject(path):
    """Pages of the reference are made of phrases, such as "Where to put it"."""
    said = [" ".join(one.split()) for one in sentences(path) if " " in one]
    assert not [m.group() for one in said for m in OPENING.finditer(one)]


COUNTED = re.compile(
    r" (?:more |other |earlier )?"
    r"(?:attempt|cell|GPU|host|line|machine|metric|restart|slot|step|task)s\b"
)
"""How a text continues after a number, if nothing makes it singular."""


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_no_sentence_counts_one_thing_in_the_plural(path):
    """`counted` makes it "1 task"."""
    texts = [node.values for node in ast.walk(tree(path)) if isinstance(node, ast.JoinedStr)]
    assert not [
        f"{after.lineno}: {ast.unparse(before)}{after.value}"
        for parts in texts
        for before, after in itertools.pairwise(parts)
        if isinstance(before, ast.FormattedValue)
        and isinstance(after, ast.Constant)
        and COUNTED.match(after.value)
    ]


def test_how_announced_lines_begin_is_written_once():
    begun = {
        str(path.relative_to(ROOT))
        for path in SOURCES
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Constant) and str(node.value).startswith(ANNOUNCED)
    }
    assert begun == {"mwmagic/model/variables.py"}


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_a_function_that_answers_a_question_says_return_whether(path):
    wrong = []
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef) and (doc := ast.get_docstring(node)):
            marked = {d.id for d in node.decorator_list if isinstance(d, ast.Name)}
            plain = not marked & {"property", "cached_property"}
            if doc.startswith("Tell ") or (doc.startswith("Whether") and plain):
                wrong.append(f"{node.name}: {doc.splitlines()[0]}")
    assert not wrong
