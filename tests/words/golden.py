"""Everything that mwmagic says of failures: ``make words`` writes it to ``golden.txt``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mwmagic.model.findings import (
    Cause,
    Finding,
    Location,
    Origin,
    Peer,
    Position,
    Remark,
    Stall,
    Symptom,
    Whereabouts,
)
from mwmagic.words.failure import ended, explain, headline, position, remark, sentence, stalled

GOLDEN = Path(__file__).with_name("golden.txt")

AT = "main.py:7 in load"
ONE = (Position("worker:1", Whereabouts.IN_USER_CODE, AT),)
TWO = (Position("worker:0", Whereabouts.IN_FRAMEWORK, "main.py:9 in train"), *ONE)
HOST = Finding(
    Symptom.HOST_LOST, "worker:1", host="node-3", detail="preempted", tasks=("worker:1",)
)
EIGHT = tuple(f"worker:{index}" for index in range(8, 16))
PART = ("chief:0", "worker:0", "worker:1")
FULL = Finding(
    Symptom.EXITED,
    "worker:1",
    peer="worker:0",
    at=AT,
    address="localhost:20001",
    code=1,
    signal=9,
    seconds=61.4,
    positions=TWO,
)
ENDS = (Symptom.EXITED, Symptom.KILLED, Symptom.OUT_OF_MEMORY)
SEVERAL = (
    Symptom.KEEPS_OTHERS_WAITING,
    Symptom.DIFFERENT_PLACES,
    Symptom.LEFT_OUT,
    Symptom.HOSTS_APART,
    Symptom.HOST_UNUSED,
    *(one for one in Symptom if one.name.startswith("COLD_")),
)
KILLED = Finding(Symptom.KILLED, "worker:1", signal=9)
FINDINGS = (
    *(replace(FULL, symptom=one, task="" if one in SEVERAL else "worker:1") for one in Symptom),
    Finding(Symptom.EXITED, "worker:1", code=0),
    Finding(Symptom.EXITED, "worker:1", code=1, detail="the log lost 5 bytes"),
    replace(KILLED, requested=True),
    replace(KILLED, signal=99),
    Finding(Symptom.AGENT_LOST, "worker:1", host="localhost"),
    Finding(Symptom.AGENT_LOST, "worker:1", host="node-3", detail="which got SIGTERM"),
    Finding(Symptom.HOST_LOST, "worker:1", host="node-3", detail="preempted"),
    Finding(Symptom.AGENT_LOST, "worker:1", detail="which got SIGTERM"),
    Finding(Symptom.NOT_STARTED, "worker:1", detail="cannot enter /x"),
    Finding(Symptom.COLD_VARIABLE, detail="KERAS_BACKEND, TZ"),
    Finding(Symptom.COLD_UNKNOWN, at="helper.py:3", detail="KERAS_BACKEND"),
    Finding(Symptom.COLD_FAILED, detail="the imports started 1 threads, which a fork would lose"),
    Finding(Symptom.COLD_FILE, detail="/home/me/.keras/keras.json"),
    Finding(Symptom.COLD_MODULE, detail="queue, secrets"),
    Finding(Symptom.LEFT_OUT, detail="pandas: its import starts threads, which a fork would lose"),
    Finding(Symptom.IMPORTED_LONG, "worker:1", seconds=1.26, detail="pandas,sklearn.datasets"),
    Finding(Symptom.LOG_UNWRITTEN, "worker:1", host="node-3", detail="/x/worker-1.log: no space"),
    Finding(Symptom.LOG_CUT, "worker:1", host="node-3", detail="/x/worker-1.log"),
    Finding(Symptom.HOST_UNUSED, host="node-3", detail="the agent on node-3 ended: no Python"),
    Finding(Symptom.KEEPS_OTHERS_WAITING, positions=ONE),
    Finding(Symptom.BEFORE_STRATEGY, "worker:1", peer="worker:0"),
    Finding(Symptom.HOSTS_APART, detail="a cannot connect to b at b:2222: Connection refused"),
    Finding(Symptom.STALLED, "worker:1", seconds=61.4, detail="a cannot connect to b"),
)
WHERE = Location("main.py", 9, "train", "fit()", "In [7]")
CAUSES = (
    Cause(FULL, "ValueError: bad", WHERE, "module-missing", ("x.y",), ("worker:0",)),
    Cause(
        FULL,
        where=replace(WHERE, source="accuracy.reset_states()"),
        known="reset-states",
        options={"keras": "auto"},
    ),
    Cause(KILLED, known="killed", log=("one", "two"), options={"restarts": "0"}),
    Cause(KILLED, known="killed", options={"restarts": "1"}),
    Cause(
        FULL,
        "InternalError: Collective instance 112 expected type 0",
        replace(WHERE, line=12),
        "different-lines",
        others=(Peer("worker:0", WHERE), Peer("worker:2", WHERE), Peer("worker:3")),
    ),
    Cause(KILLED, consequences=tuple(f"worker:{index}" for index in range(2, 20))),
    Cause(FULL, where=Location("main.py"), known="of another version"),
    Cause(
        replace(FULL, symptom=Symptom.FINISHED_EARLY), where=WHERE, known="left-early", log=("one",)
    ),
    Cause(
        FULL,
        "RuntimeError: no data\nfor this worker",
        WHERE,
        origins=(
            Origin("OSError: gone\nfor good", WHERE),
            Origin("KeyError: 'x'", handled=True),
        ),
    ),
    Cause(),
    Cause(HOST, known="host-lost", consequences=("worker:0",)),
    *(Cause(replace(HOST, detail=None, tasks=tasks)) for tasks in (EIGHT, PART, PART[1:], ())),
    *(
        Cause(replace(HOST, symptom=Symptom.AGENT_LOST, detail="which got SIGTERM", tasks=tasks))
        for tasks in (EIGHT, ("worker:1",))
    ),
)
REMARKS = (
    Remark("own-tf-config", ("worker:0",), replace(FULL, symptom=Symptom.ELSEWHERE)),
    Remark("of another version", ("worker:0",), replace(FULL, symptom=Symptom.ALONE)),
)
STALLS = (
    Stall(60.0),
    Stall(60.0, "worker:0", TWO),
    Stall(60.0, "worker:1", TWO, Remark("", ("worker:1",), Finding(Symptom.SECOND_PROCESS))),
)


def sections() -> dict[str, list[str]]:
    """Return the words, by what they are about."""
    return {
        "what is observed": list(map(sentence, FINDINGS)),
        "how a process ended, briefly": [ended(one) for one in FINDINGS if one.symptom in ENDS],
        "ended by mwmagic": [ended(KILLED, ours=True)],
        "headlines": list(map(headline, CAUSES)),
        "causes": [line for cause in CAUSES for line in explain(cause)],
        "remarks": list(map(remark, REMARKS)),
        "stalls": list(map(stalled, STALLS)),
        "positions": [position(Position("worker:1", where, AT)) for where in Whereabouts],
    }


def golden() -> str:
    """Return the text of the golden file."""
    parts = sections().items()
    return "\n".join("\n".join([f"== {title} ==", *lines, ""]) for title, lines in parts)


if __name__ == "__main__":
    GOLDEN.write_text(golden(), encoding="utf-8")
