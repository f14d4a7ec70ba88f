"""The conversation that docs/internals/wire.md shows takes place."""

from __future__ import annotations

import json
import re
from pathlib import Path

from speaker import PYTHON

PAGE = Path(__file__).parents[2] / "docs" / "internals" / "wire.md"
LINE = re.compile(r"^([<>]) (\{.*\})$", re.MULTILINE)
PLACES = {"executable", "package", "pid", "ports"}
"""Fields whose values are those of a machine."""


def test_the_conversation_of_the_page_takes_place(speak, tmp_path):
    agent = speak(greet=False)
    for side, text in LINE.findall(PAGE.read_text(encoding="utf-8")):
        message = json.loads(text)
        if side == ">":
            if message["type"] == "start":
                message["argv"][:1] = PYTHON
                message |= {"cwd": str(tmp_path), "log": str(tmp_path / message["log"])}
            agent.say(message.pop("type"), **message)
        else:
            known = {name: value for name, value in message.items() if name not in PLACES}
            event = agent.wait(known.pop("type"), **known)
            assert message.keys() <= event.keys()
    assert agent.child.wait() == 0
