"""Shows bytes as a terminal would: carriage returns, backspaces, colours, split UTF-8.

Keras redraws its progress bar thousands of times on one line, and the raw bytes contain
every draft. A `Terminal` keeps only what remains visible.
"""

from __future__ import annotations

import codecs
import re
from itertools import groupby, repeat

LINE_COLUMNS = 65_536
"""Where a line wraps, so that an endless line takes a bounded amount of memory."""

_CONTROL = r"\x00-\x08\x0b-\x1f\x7f-\x9f"  # all but tab and newline
_STRING = rf"\x1b[\]PX^_][^{_CONTROL}\n]{{0,4096}}"  # a title, a hyperlink, an image
_CSI = r"\x1b\[[0-?]{0,64}[ -/]{0,4}"
_SHORT = r"\x1b[ -/]{0,4}"
_TOKEN = re.compile(
    rf"[^{_CONTROL}]+|\x08+|{_CSI}[@-~]|{_STRING}(?:\x07|\x1b\\)|"
    rf"{_SHORT}[0-OQ-WYZ\\`-~]|[{_CONTROL}]"
)
_CUT = re.compile(rf"(?:{_STRING}\x1b?|{_CSI}|{_SHORT})\Z")
_SPECIAL = re.compile(rf"[{_CONTROL}]")
_ESCAPE = re.compile(rf"{_CSI}[@-~]|{_STRING}(?:\x07|\x1b\\)|{_SHORT}[0-OQ-WYZ\\`-~]|\x1b")
_CODES = re.compile(r"(\x1b\[[\d;]*m)")

_RESETS = {"22": "weight", "23": "3", "24": "4", "25": "5", "27": "7", "28": "8", "29": "9"}
_RESETS |= {"39": "ink", "49": "paper", "55": "53"}


def plain(text: str) -> str:
    """Return `text` without ANSI escape sequences."""
    return _ESCAPE.sub("", text) if "\x1b" in text else text


def clipped(text: str, limit: int) -> str:
    """Return the first `limit` characters that a terminal shows of `text`, with their colours."""
    if len(text) <= limit:
        return text
    parts, left = [], limit
    for part in _CODES.split(text):
        parts.append(part if part.startswith("\x1b") else part[:left])
        left -= 0 if part.startswith("\x1b") else len(parts[-1])
        if not left:
            break
    return "".join(parts) + ("\x1b[0m" if len(parts) > 1 else "")


def printable(text: str) -> str:
    """Return `text` without anything that would act on a terminal."""
    return _SPECIAL.sub("", plain(text))


def shown(data: bytes, *, ansi: bool) -> list[str]:
    """Return the lines that a terminal shows after `data`, a whole log."""
    terminal = Terminal(ansi=ansi)
    return terminal.feed(data) + terminal.close()


class Terminal:
    """Turns the bytes of one stream, which may be split anywhere, into finished lines.

    Finished lines never change again, so moving the cursor up is ignored.
    """

    def __init__(self, *, ansi: bool = False) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""  # the start of an incomplete escape sequence
        self._row = _Row(ansi=ansi)

    @property
    def current(self) -> str:
        """The line that has not ended yet, as it looks now."""
        return self._row.render()

    def feed(self, data: bytes) -> list[str]:
        """Take the next bytes and return the lines they finished, each exactly once."""
        return self.write(self._decoder.decode(data))

    def write(self, text: str) -> list[str]:
        """Take the next text, already decoded; see `feed`."""
        return self._write(self._held + text)

    def close(self) -> list[str]:
        """End the stream and return the remaining lines, if they are not empty."""
        lines = self._write(self._held + self._decoder.decode(b"", final=True))
        self._held = ""
        if self.current:
            lines.append(self._row.finish())
        return lines

    def _write(self, text: str) -> list[str]:
        *finished, tail = text.split("\n")
        lines: list[str] = []
        simple = _SPECIAL.search(text) is None
        for piece in finished:
            if (
                self._row.fresh
                and len(piece) <= LINE_COLUMNS
                and (simple or not _SPECIAL.search(piece))
            ):
                lines.append(piece)
            else:
                lines += self._row.write(piece)
                lines.append(self._row.finish())
        cut = None if simple else _CUT.search(tail)
        self._held = cut[0] if cut else ""
        return lines + self._row.write(tail[: cut.start()] if cut else tail)


class _Row:
    """The line under the cursor: one cell per character, each with its style."""

    def __init__(self, *, ansi: bool) -> None:
        self._cells: list[str] = []
        self._styles: list[str] = []
        self._column = 0
        self._slots: dict[str, str] = {}  # the active codes, by what each replaces
        self._style = ""
        self._ansi = ansi

    @property
    def fresh(self) -> bool:
        """Whether plain text that is written now becomes the line unchanged."""
        return not self._cells and not self._column and not self._style

    def write(self, text: str) -> list[str]:
        """Write `text`, which holds no newline; return the lines that wrapped."""
        lines: list[str] = []
        for part in _TOKEN.findall(text):
            if part[0] == "\b":
                self._column = max(0, self._column - len(part))
            elif part[0] == "\r":
                self._column = 0
            elif part.startswith("\x1b["):
                self._control(part)
            elif part == "\t" or not _SPECIAL.match(part):
                lines += self._put(part)
        return lines

    def finish(self) -> str:
        """Return the line and start the next one."""
        line = self.render()
        self._cells.clear()
        self._styles.clear()
        self._column = 0
        return line

    def render(self) -> str:
        """Return the line as it looks now."""
        if not self._ansi:
            return "".join(self._cells)
        runs = groupby(zip(self._styles, self._cells, strict=True), key=lambda cell: cell[0])
        text = [(style, "".join(char for _, char in cells)) for style, cells in runs]
        return "".join(f"\x1b[{style}m{run}\x1b[0m" if style else run for style, run in text)

    def _put(self, text: str) -> list[str]:
        lines = []
        while text:
            if self._column >= LINE_COLUMNS:
                lines.append(self.finish())
            part, text = text[: LINE_COLUMNS - self._column], text[LINE_COLUMNS - self._column :]
            self._pad()
            end = self._column + len(part)
            self._cells[self._column : end] = part
            if self._ansi:
                self._styles[self._column : end] = repeat(self._style, len(part))
            self._column = end
        return lines

    def _pad(self) -> None:
        missing = self._column - len(self._cells)
        self._cells.extend(repeat(" ", missing))
        if self._ansi:
            self._styles.extend(repeat("", missing))

    def _control(self, sequence: str) -> None:
        """Apply a CSI sequence as far as it affects this line (ECMA-48)."""
        last, body = sequence[-1], sequence[2:-1]
        number = int(body) if body.isascii() and body.isdigit() else 0
        if last == "m":
            self._colour(body)
        elif last in "KJ":
            self._erase(number)
        elif last == "D":
            self._column = max(0, self._column - max(1, number))
        elif last == "C":
            self._column = min(LINE_COLUMNS - 1, self._column + max(1, number))
        elif last == "G":
            self._column = min(LINE_COLUMNS, max(1, number)) - 1
        elif last == "H":
            self._column = 0

    def _erase(self, how: int) -> None:
        if how == 0:
            del self._cells[self._column :], self._styles[self._column :]
        elif how == 1:
            erased = min(self._column + 1, len(self._cells))
            self._cells[:erased] = repeat(" ", erased)
            self._styles[:erased] = repeat("", erased if self._ansi else 0)
        else:
            self._cells.clear()
            self._styles.clear()

    def _colour(self, body: str) -> None:
        """Apply the parameters of an SGR sequence (ECMA-48 8.3.117)."""
        codes = (body or "0").split(";")
        while self._ansi and codes:
            code = codes.pop(0).lstrip("0") or "0"
            if code in {"38", "48"}:  # a palette number follows 5, three bytes follow 2
                count = {"5": 2, "2": 4}.get(codes[0], 0) if codes else 0
                code, codes = ";".join([code, *codes[:count]]), codes[count:]
            self._switch(code)
        self._style = ";".join(self._slots.values())

    def _switch(self, code: str) -> None:
        if code == "0":
            self._slots.clear()
        elif code in _RESETS:
            self._slots.pop(_RESETS[code], None)
        elif (slot := _slot(code)) is not None:
            self._slots[slot] = code


def _slot(code: str) -> str | None:
    """Return what an SGR code replaces: the foreground, the background, or the code itself."""
    if code in {"1", "2"}:
        return "weight"
    if re.fullmatch(r"3[0-7]|9[0-7]|38;[0-9;]+", code):
        return "ink"
    if re.fullmatch(r"4[0-7]|10[0-7]|48;[0-9;]+", code):
        return "paper"
    return code if code in {"3", "4", "5", "7", "8", "9", "53"} else None
