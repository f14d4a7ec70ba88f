"""What a page and a kernel say to each other: the widget's own messages."""

from __future__ import annotations

from queue import Empty

from kernels import execute, plain
from processes import eventually


class Page:
    """A page that shows a dashboard: it takes frames and says how far it is."""

    def __init__(self, kernel, name):
        self.kernel, self.name = kernel, name
        self.run, self.at = None, (0, 0, 0)
        self.lines, self.points, self.header, self.rows = [], [], None, {}
        self.stacks = ""

    def say(self, **more):
        self.kernel.message(
            {"kind": "at", "page": self.name, "at": self.at, "run": self.run, **more}
        )

    def take(self, frame):
        """Take a frame, and answer if it asks, or if one before it was lost."""
        missed = self._take(frame)
        if missed or frame["question"]:
            self.say(question=frame["question"])

    def _take(self, frame):
        if frame["run"] != self.run:
            self.__init__(self.kernel, self.name)
            self.run = frame["run"]
        if any(start > at for start, at in zip(frame["from"], self.at, strict=True)):
            return True
        known, point, _ = self.at
        new = [(task, text) for number, task, _, text in frame["texts"] if number >= known]
        self.lines += [(task, line) for task, text in new for line in text.split("\n")]
        self.points += map(tuple, frame.get("points", [])[max(point - frame["from"][1], 0) :])
        self.at = tuple(map(max, self.at, frame["to"]))
        self.header = {**(self.header or {}), **frame.get("header", {})}
        self.stacks = frame.get("stacks", self.stacks)
        for index, row in frame.get("rows", {}).items():
            self.rows.setdefault(index, {}).update(row)
        return False


class Kernel:
    """A kernel with the extension loaded, and all that it has sent."""

    def __init__(self, manager, client):
        self.manager, self.client = manager, client
        self.outputs, self.states, self.pages, self.pieces = {}, [], [], []
        self.comm = self.opened = self.replied = None
        self.error = ""

    def page(self, name):
        self.pages.append(Page(self, name))
        self.pages[-1].say()
        return self.pages[-1]

    def message(self, content):
        data = {"method": "custom", "content": content}
        message = self.client.session.msg("comm_msg", {"comm_id": self.comm, "data": data})
        self.client.shell_channel.send(message)

    def start(self, code):
        self.request = execute(self.client, code)

    def run(self, code):
        """Execute a cell and wait for its end."""
        self.start(code)
        eventually(lambda: self.look() or self.replied == self.request, "end of the cell")
        assert not self.error, self.error

    def look(self):
        """Take the messages that have come; each page answers the frames."""
        while True:
            try:
                message = self.client.get_iopub_msg(timeout=0.02)
            except Empty:
                return
            getattr(self, f"_{message['msg_type']}", lambda _: None)(message)

    def until(self, condition, what):
        return eventually(lambda: self.look() or condition(), what)

    def _status(self, message):
        if message["content"]["execution_state"] == "idle":
            request = message["parent_header"].get("msg_id")
            self.replied = request if request == self.request else self.replied

    def _error(self, message):
        self.error = plain(message["content"])

    def _display_data(self, message):
        content = message["content"]
        self.outputs[content["transient"].get("display_id")] = content

    _update_display_data = _display_data

    def _comm_open(self, message):
        state = message["content"]["data"].get("state", {})
        if "_esm" in state:
            self.comm, self.opened = message["content"]["comm_id"], state

    def _comm_msg(self, message):
        data = message["content"]["data"]
        if data["method"] == "update" and "state" in data["state"]:
            self.states.append(data["state"]["state"])
        if data["method"] == "custom" and data["content"]["kind"] == "log":
            self.pieces.append((data["content"], bytes(message["buffers"][0])))
        elif data["method"] == "custom":
            for page in self.pages:
                page.take(data["content"])

    @property
    def board(self):
        """The output that shows the dashboard, as it is now."""
        [found] = [one for one in self.outputs.values() if "text/html" in one["data"]]
        return found
