// The page's side of the dashboard. A Store holds what the kernel sent of a cluster's
// run; a View shows a Store. Text from workers reaches the page as textContent only.

const KEPT = 10000; // lines in the page, as in the kernel
const BLOCK = 200; // lines in a block that the browser lays out, or skips, as one
const POINTS = 3000; // points of one series; of more, every second one goes
const NOISE = 1, ERROR = 2, NOTE = 4;
const COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00"]; // Okabe-Ito
const DASHES = [[], [7, 4], [2, 3], [9, 3, 2, 3]];

const colour = (task) => COLOURS[task % COLOURS.length];
const dash = (task) => DASHES[Math.floor(task / COLOURS.length) % DASHES.length];

function h(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name in node && !name.includes("-")) node[name] = value;
    else if (value !== null) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

function set(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function clock(seconds) {
  const s = Math.max(0, Math.round(seconds));
  const two = (n) => String(n).padStart(2, "0");
  const rest = `${Math.floor(s / 60) % 60}:${two(s % 60)}`;
  return s < 3600 ? rest : `${Math.floor(s / 3600)}:${two(Math.floor(s / 60) % 60)}:${two(s % 60)}`;
}

function bytes(n) {
  return n < 2 ** 30 ? `${Math.round(n / 2 ** 20)} MB` : `${(n / 2 ** 30).toFixed(1)} GB`;
}

const some = (texts) => texts.filter(Boolean).join(" · ");
const short = (y) => (y === null ? "nan" : String(+y.toPrecision(4)));

async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = h("textarea", { value: text });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  const label = button.textContent;
  if (label === "Copied") return;
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = label), 1200);
}

class Store {
  constructor(model) {
    this.model = model;
    this.page = Math.random().toString(36).slice(2);
    this.label = model.get("label");
    this.style = h("style");
    this.views = new Set();
    this.skew = 0;
    this.heard = 0;
    this.begin(null);
    const saved = model.get("state");
    if (saved.header) this.state(saved);
  }

  begin(run) {
    Object.assign(this, { run, lines: [], first: 0, next: 0, point: 0, version: 0, lost: 0 });
    Object.assign(this, { live: {}, series: new Map(), metrics: new Set(), rows: {}, header: null });
  }

  state({ header, rows, live }) {
    if (header) this.header = header;
    for (const [i, row] of Object.entries(rows || {})) this.rows[i] = { ...this.rows[i], ...row };
    Object.assign(this.live, live);
  }

  take(frame) {
    this.heard = Date.now();
    this.gone = false;
    this.skew = Date.now() / 1000 - frame.now;
    const fresh = frame.run !== this.run;
    if (fresh) this.begin(frame.run);
    const { first, from, runs } = frame.lines;
    const [point, version] = frame.since;
    const missed = (from > this.next && first <= this.next) || point > this.point || version > this.version;
    if (missed) return this.answer(); // a frame was lost
    const added = this.append(from, runs);
    // A page that asked twice is told twice: what it has already is passed over.
    for (const [task, attempt, metric, values] of frame.points) this.plot(task, attempt, metric, values, point);
    this.point = Math.max(this.point, frame.point);
    if (frame.state >= this.version) this.state(frame);
    this.version = Math.max(this.version, frame.state);
    for (const view of this.views) view.update(added, fresh, frame.points.length > 0);
    this.soon();
  }

  append(from, runs) {
    const added = [];
    if (from > this.next) {
      if (this.next) added.push({ task: -1, mark: NOTE, text: `${from - this.next} lines left out here` });
      this.lost += from - this.next;
      this.next = from;
    }
    let skip = this.next - from;
    for (const [task, mark, text] of runs) {
      for (const line of text.split("\n")) if (skip-- <= 0) added.push({ task, mark, text: line });
    }
    this.next = Math.max(this.next, from + runs.reduce((n, run) => n + run[2].split("\n").length, 0));
    for (const line of added) this.lines.push(line);
    const excess = this.lines.length - KEPT;
    if (excess > 0) this.lines.splice(0, excess), (this.lost += excess);
    return added;
  }

  plot(task, attempt, metric, values, base) {
    this.metrics.add(metric);
    const key = `${metric}\n${attempt}\n${task}`;
    if (!this.series.has(key)) this.series.set(key, { task, attempt, metric, points: [] });
    const series = this.series.get(key);
    const { points } = series;
    for (let i = 0; i < values.length; i += 3) {
      if (base + values[i] >= this.point) points.push([values[i + 1], values[i + 2]]);
    }
    if (points.length > POINTS) series.points = points.filter((_, i) => (points.length - i) % 2);
  }

  soon() {
    // After the browser has drawn; a hidden page draws nothing and its timers are slow.
    if (document.hidden) return this.answer();
    let done = false;
    const answer = () => {
      if (!done) this.answer();
      done = true;
    };
    requestAnimationFrame(() => setTimeout(answer));
    setTimeout(answer, 200);
  }

  answer() {
    const { page, run, next, point, version } = this;
    // Jupyter's own pages hold all outputs in one document: any of them can be our place.
    const hosts = !!document.querySelector(".jp-Notebook");
    this.send({ kind: "at", page, run, line: next, point, state: version, hosts });
  }

  send(message) {
    if (this.gone) return;
    try {
      this.model.send(message);
    } catch {
      this.end();
    }
  }

  beat() {
    // A frame or an answer may be lost while the connection is: say again where we are.
    if (Date.now() - this.heard > 4000) this.answer();
  }

  end() {
    this.gone = true;
    for (const view of this.views) view.head();
  }
}

class Chart {
  constructor(store, metric) {
    Object.assign(this, { store, metric });
    this.select = h("select", { "aria-label": "Metric", onchange: () => this.choose(this.select.value) });
    this.canvas = h("canvas", { role: "img" });
    this.tip = h("div", { className: "mw-tip", hidden: true });
    this.canvas.addEventListener("mousemove", (event) => this.hover(event));
    this.canvas.addEventListener("mouseleave", () => ((this.at = null), this.draw()));
    this.latest = h("span", { className: "mw-latest" });
    const head = h("figcaption", {}, this.select, this.latest);
    this.el = h("figure", { hidden: true }, head, h("div", { className: "mw-plot" }, this.canvas, this.tip));
  }

  choose(metric) {
    this.chosen = true;
    this.metric = metric;
    this.draw();
  }

  refresh() {
    const metrics = [...this.store.metrics];
    if (!this.chosen && !this.store.metrics.has(this.metric)) {
      const first = metrics.find((name) => name.includes("loss")) || metrics.find((name) => name !== "steps/s");
      this.metric = this.metric === "steps/s" ? this.metric : first || this.metric;
    }
    this.el.hidden = !this.lines().some((line) => line.points.length > 1);
    if (this.select.options.length !== metrics.length) {
      this.select.replaceChildren(...metrics.map((name) => h("option", { value: name }, name)));
    }
    this.select.value = this.metric;
    this.draw();
  }

  lines() {
    const names = this.store.header?.names || [];
    return [...this.store.series.values()]
      .filter((line) => line.metric === this.metric && line.points.length)
      .map((line) => ({ ...line, index: names.indexOf(line.task) }))
      .sort((a, b) => a.attempt - b.attempt || a.index - b.index);
  }

  scale(lines) {
    let [x0, x1, y0, y1] = [Infinity, -Infinity, Infinity, -Infinity];
    for (const { points } of lines) {
      for (const [x, y] of points) {
        (x0 = Math.min(x0, x)), (x1 = Math.max(x1, x));
        if (y !== null) (y0 = Math.min(y0, y)), (y1 = Math.max(y1, y));
      }
    }
    if (y0 > y1) (y0 = 0), (y1 = 1);
    const pad = (y1 - y0 || Math.abs(y1) || 1) * 0.08;
    if (this.metric === "steps/s") y0 = 0;
    else y0 = y0 >= 0 && y0 < pad ? 0 : y0 - pad;
    return { x0, x1: x1 > x0 ? x1 : x0 + 1, y0, y1: y1 + pad };
  }

  draw() {
    const width = this.canvas.clientWidth, height = this.canvas.clientHeight;
    const lines = this.lines();
    if (!width || !lines.length) return;
    const ratio = window.devicePixelRatio || 1;
    if (this.canvas.width !== Math.round(width * ratio)) this.canvas.width = Math.round(width * ratio);
    if (this.canvas.height !== Math.round(height * ratio)) this.canvas.height = Math.round(height * ratio);
    const pen = this.canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    const s = this.scale(lines), left = 44, bottom = 18, top = 6, right = 8;
    const X = (x) => left + ((x - s.x0) / (s.x1 - s.x0)) * (width - left - right);
    const Y = (y) => top + (1 - (y - s.y0) / (s.y1 - s.y0)) * (height - top - bottom);
    this.axes(pen, s, X, Y, width, height - bottom);
    this.attempts(pen, lines, X, top, height - bottom);
    const last = Math.max(...lines.map((line) => line.attempt));
    for (const line of lines) this.stroke(pen, line, X, Y, line.attempt === last ? 1 : 0.35);
    this.pointer(pen, lines, s, X, Y, left, width - right);
    this.tell(lines.filter((line) => line.attempt === last));
  }

  axes(pen, s, X, Y, right, bottom) {
    const style = getComputedStyle(this.el);
    pen.font = `10px ${style.fontFamily}`;
    pen.fillStyle = style.color;
    pen.strokeStyle = style.color;
    pen.lineWidth = 1;
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    for (const y of ticks(s.y0, s.y1, 4)) {
      const at = Math.round(Y(y)) + 0.5;
      pen.globalAlpha = 0.13;
      pen.beginPath(), pen.moveTo(X(s.x0), at), pen.lineTo(right, at), pen.stroke();
      pen.globalAlpha = 0.75;
      pen.fillText(short(y), X(s.x0) - 6, at);
    }
    pen.textAlign = "center";
    for (const x of ticks(s.x0, s.x1, 5, 1)) pen.fillText(short(x), Math.min(X(x), right - 14), bottom + 11);
    pen.globalAlpha = 1;
  }

  attempts(pen, lines, X, top, bottom) {
    pen.setLineDash([3, 3]);
    pen.textAlign = "left";
    for (const attempt of new Set(lines.map((line) => line.attempt))) {
      if (attempt === 1) continue;
      const x = X(Math.min(...lines.filter((line) => line.attempt === attempt).map((line) => line.points[0][0])));
      pen.globalAlpha = 0.5;
      pen.beginPath(), pen.moveTo(x, top), pen.lineTo(x, bottom), pen.stroke();
      pen.globalAlpha = 0.75;
      pen.fillText(`attempt ${attempt}`, x + 4, top + 6 + 11 * (attempt - 2));
    }
    pen.setLineDash([]);
    pen.globalAlpha = 1;
  }

  stroke(pen, line, X, Y, alpha) {
    pen.strokeStyle = pen.fillStyle = colour(line.index);
    pen.globalAlpha = alpha;
    pen.lineWidth = this.store.series.size > 99 ? 1 : 1.8;
    pen.setLineDash(dash(line.index));
    pen.beginPath();
    let open = false;
    for (const [x, y] of line.points) {
      if (y === null) open = false;
      else open ? pen.lineTo(X(x), Y(y)) : (pen.moveTo(X(x), Y(y)), (open = true));
    }
    pen.stroke();
    pen.setLineDash([]);
    const [x, y] = line.points[line.points.length - 1];
    if (y !== null) pen.beginPath(), pen.arc(X(x), Y(y), 2.5, 0, 7), pen.fill();
    pen.globalAlpha = 1;
  }

  tell(lines) {
    const names = lines.slice(0, 4).map((line) => `${line.task} ${short(line.points[line.points.length - 1][1])}`);
    this.canvas.setAttribute("aria-label", `${this.metric}: ${names.join(", ")}`);
    const all = new Set(names.map((text) => text.split(" ")[1]));
    set(this.latest, all.size === 1 ? [...all][0] : "");
  }

  hover(event) {
    this.at = event.offsetX;
    this.draw();
  }

  pointer(pen, lines, s, X, Y, left, right) {
    this.tip.hidden = this.at == null || this.at < left || this.at > right;
    if (this.tip.hidden) return;
    const wanted = s.x0 + ((this.at - left) / (right - left)) * (s.x1 - s.x0);
    const rows = [];
    let place = null;
    for (const line of lines) {
      const [x, y] = nearest(line.points, wanted);
      if (y === null || Math.abs(X(x) - this.at) > 40) continue;
      place = x;
      pen.fillStyle = colour(line.index);
      pen.beginPath(), pen.arc(X(x), Y(y), 3.5, 0, 7), pen.fill();
      const attempt = line.attempt > 1 || lines.some((other) => other.attempt > 1) ? ` · attempt ${line.attempt}` : "";
      rows.push(h("div", {}, swatch(line.index), `${line.task}${attempt}  ${short(y)}`));
    }
    this.tip.hidden = !rows.length;
    this.tip.replaceChildren(h("b", {}, `step ${short(place)}`), ...rows.slice(0, 8));
    this.tip.style.left = `${Math.min(this.at + 12, right - 150)}px`;
  }
}

function nearest(points, x) {
  let [low, high] = [0, points.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (points[middle][0] < x) low = middle;
    else high = middle;
  }
  return x - points[low][0] < points[high][0] - x ? points[low] : points[high];
}

function ticks(from, to, count, least = 0) {
  const rough = Math.max((to - from) / count, least);
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * unit).find((n) => n >= rough);
  const found = [];
  for (let n = Math.ceil(from / step); n * step <= to; n++) found.push(n * step);
  return found;
}

function swatch(task) {
  const node = h("i", { className: "mw-swatch" });
  const stops = [];
  let at = 0;
  dash(task).forEach((length, i) => stops.push(`${i % 2 ? "#0000" : colour(task)} ${at}px ${(at += length)}px`));
  node.style.background = stops.length ? `repeating-linear-gradient(90deg, ${stops})` : colour(task);
  return node;
}

class Log {
  constructor(store) {
    this.store = store;
    this.task = -1;
    this.unseen = 0;
    this.follow = true;
    this.folded = true;
    this.hits = [];
    this.hit = -1;
    this.select = h("select", { "aria-label": "Task", onchange: () => this.filter(+this.select.value) });
    this.find = h("input", { type: "search", placeholder: "Search", "aria-label": "Search the log" });
    this.find.addEventListener("input", () => this.search());
    this.find.addEventListener("keydown", (event) => event.key === "Enter" && this.step(event.shiftKey ? -1 : 1));
    this.count = h("span", { className: "mw-count", role: "status" });
    this.notices = this.button("Notices", () => this.unfold(), "Show what TensorFlow says to itself");
    this.error = this.button("First error", () => this.jump(), "Jump to the first traceback");
    this.error.hidden = true;
    this.following = this.button("Follow", () => this.toggle(), "Keep the newest line in view");
    this.blocks = h("div", { className: "mw-blocks" });
    this.live = h("div", { className: "mw-live" });
    this.pane = h(
      "div",
      { className: "mw-lines", role: "log", "aria-live": "off", "aria-label": "Log", tabIndex: 0 },
      this.blocks,
      this.live,
    );
    this.pane.addEventListener("scroll", () => this.scrolled());
    this.foot = h("span", { className: "mw-foot" });
    this.path = this.button("Copy path", () => copy(this.file(), this.path), "Copy where the whole log is");
    this.el = h(
      "div",
      { className: "mw-log" },
      h("div", { className: "mw-tools", role: "toolbar", "aria-label": "Log" }, this.select, this.find, this.count,
        this.notices, this.error, h("span", { className: "mw-gap" }), this.following),
      this.pane,
      h("div", { className: "mw-under" }, this.foot, this.path),
    );
  }

  button(text, onclick, title) {
    return h("button", { type: "button", title, onclick }, text);
  }

  names() {
    return this.store.header?.names || [];
  }

  head() {
    const names = this.names();
    if (this.select.options.length !== names.length + 1) {
      const all = h("option", { value: -1 }, "all tasks");
      this.select.replaceChildren(all, ...names.map((name, i) => h("option", { value: i }, name)));
      this.select.value = this.task;
    }
    this.pane.style.setProperty("--w", `${Math.max(0, ...names.map((name) => name.length)) + 2}ch`);
    this.notices.setAttribute("aria-pressed", !this.folded);
    this.following.setAttribute("aria-pressed", this.follow);
    set(this.following, this.follow || !this.unseen ? "Follow" : `Follow · ${this.unseen} new`);
    const { lines, lost } = this.store;
    const kept = `${lines.length.toLocaleString("en")} lines`;
    const whole = this.file();
    const left = lost ? ` of ${(lost + lines.length).toLocaleString("en")}` : "";
    set(this.foot, `${kept}${left}${whole ? ` · all in ${whole.replace(/.*(?=\.mwmagic)/, "")}` : ""}`);
    this.path.hidden = !whole;
  }

  file() {
    const log = this.store.rows[Math.max(this.task, 0)]?.log || "";
    return this.task < 0 ? log.replace(/[^/]*$/, "") : log;
  }

  filter(task) {
    this.task = task;
    this.select.value = task;
    this.reset();
  }

  reset() {
    this.blocks.replaceChildren();
    this.hits = [];
    this.hit = -1;
    this.error.hidden = true;
    this.add(this.store.lines);
    this.update([], false);
  }

  update(added, fresh) {
    if (fresh) return this.reset();
    this.add(added);
    const tasks = Object.entries(this.store.live).filter(([task, text]) => text && this.shows(+task));
    this.live.replaceChildren(...tasks.slice(0, 4).map(([task, text]) => this.line({ task: +task, mark: 0, text })));
    if (this.follow) this.bottom();
    else this.unseen += added.length;
    this.head();
  }

  shows(task) {
    return this.task < 0 || task < 0 || task === this.task;
  }

  add(lines) {
    const words = this.find.value.toLowerCase();
    for (const line of lines) {
      if (!this.shows(line.task)) continue;
      let block = this.blocks.lastElementChild;
      if (!block || block.lines >= BLOCK) {
        block = h("div", { className: "mw-block" });
        block.lines = 0;
        this.blocks.append(block);
      }
      block.lines++;
      const node = this.line(line);
      if (line.mark & NOISE) this.fold(block).append(node);
      else block.append(node);
      if (line.mark & ERROR) this.error.hidden = false;
      if (words) this.check(node, words);
    }
    this.trim();
  }

  line({ task, mark, text }) {
    const node = h("div", { className: "mw-line" });
    node.textContent = text || " ";
    if (mark & NOTE) node.classList.add("mw-note");
    else {
      node.dataset.task = this.names()[task] || "";
      node.dataset.c = task % COLOURS.length;
    }
    if (mark & ERROR) node.classList.add("mw-error");
    return node;
  }

  fold(block) {
    let fold = block.lastElementChild;
    if (!fold?.classList.contains("mw-fold")) {
      fold = h("details", { className: "mw-fold", open: !this.folded }, h("summary"));
      block.append(fold);
    }
    fold.count = (fold.count || 0) + 1;
    fold.firstChild.textContent = `${fold.count} ${fold.count > 1 ? "notices" : "notice"} of TensorFlow`;
    return fold;
  }

  unfold() {
    this.folded = !this.folded;
    for (const fold of this.blocks.querySelectorAll("details")) fold.open = !this.folded;
    this.head();
  }

  trim() {
    let kept = 0;
    for (const block of this.blocks.children) kept += block.lines;
    while (kept - (this.blocks.firstChild?.lines || 0) >= KEPT) {
      kept -= this.blocks.firstChild.lines;
      this.blocks.firstChild.remove();
    }
  }

  // Searching.

  search() {
    for (const node of this.hits) node.classList.remove("mw-hit", "mw-now");
    this.hits = [];
    this.hit = -1;
    const words = this.find.value.toLowerCase();
    if (words) for (const node of this.blocks.querySelectorAll(".mw-line")) this.check(node, words);
    this.hit = this.hits.length;
    if (words) this.step(-1);
    this.tally();
  }

  check(node, words) {
    if (!node.textContent.toLowerCase().includes(words)) return;
    node.classList.add("mw-hit");
    this.hits.push(node);
    this.tally();
  }

  tally() {
    const at = this.hit >= 0 && this.hit < this.hits.length ? `${this.hit + 1} of ` : "";
    set(this.count, this.find.value ? `${at}${this.hits.length} found` : "");
  }

  step(by) {
    this.hits = this.hits.filter((node) => node.isConnected);
    if (!this.hits.length) return this.tally();
    this.hits[this.hit]?.classList.remove("mw-now");
    this.hit = (this.hit + by + this.hits.length) % this.hits.length;
    this.hits[this.hit].classList.add("mw-now");
    this.reveal(this.hits[this.hit]);
    this.tally();
  }

  jump() {
    const culprit = this.store.header?.culprit;
    const errors = [...this.blocks.querySelectorAll(".mw-error")];
    const first = errors.find((node) => node.dataset.task === culprit) || errors[0];
    if (first) this.reveal(first);
  }

  reveal(node) {
    const fold = node.closest("details");
    if (fold) fold.open = true;
    this.follow = false;
    node.scrollIntoView({ block: "nearest" });
    this.pane.scrollTop += node.getBoundingClientRect().top - this.pane.getBoundingClientRect().top - 40;
    this.head();
  }

  // Following.

  toggle() {
    this.follow = !this.follow;
    if (this.follow) this.bottom();
    this.head();
  }

  bottom() {
    this.unseen = 0;
    const before = this.pane.scrollTop;
    this.pane.scrollTop = this.pane.scrollHeight;
    this.seen = this.pane.scrollTop;
    this.own = this.seen !== before; // the event that follows needs no look, which would cost a layout
  }

  arrived() {
    if (this.follow) this.bottom();
    else this.pane.scrollTop = this.seen;
  }

  scrolled() {
    if (this.own) return void (this.own = false);
    const { scrollTop, scrollHeight, clientHeight } = this.pane;
    if (!clientHeight) return;
    const low = scrollHeight - scrollTop - clientHeight < 24;
    const grew = !low && this.follow && scrollTop >= this.seen;
    this.seen = scrollTop;
    if (low === this.follow || grew) return;
    this.follow = low;
    if (low) this.unseen = 0;
    this.head();
  }

  text(task) {
    return this.store.lines.filter((line) => line.task === task).map((line) => line.text).join("\n");
  }
}

class View {
  constructor(store) {
    this.store = store;
    const act = (kind) => () => store.send({ kind });
    const button = (text, title, onclick) => h("button", { type: "button", title, onclick }, text);
    this.dot = h("span", { className: "mw-dot" });
    this.name = h("strong");
    this.words = h("span", { className: "mw-words", role: "status" });
    this.time = h("span", { className: "mw-time" });
    this.stop = button("Stop", "End every worker", act("stop"));
    this.again = button("Restart", "Start every worker again with the same code", act("restart"));
    this.stacks = button("Stacks", "Show in the log where each worker is", act("stacks"));
    this.why = h("pre");
    this.show = button("Show in the log", "Jump to the first error", () => this.blame());
    this.take = button("Copy its log", "Copy what the failing task printed", () => this.carry());
    this.cause = h("div", { className: "mw-cause", hidden: true }, this.why, h("div", {}, this.show, this.take));
    this.notice = h("div", { className: "mw-notice", role: "status", hidden: true });
    this.tasks = h("div", { className: "mw-tasks", role: "list", "aria-label": "Tasks" });
    this.cards = [];
    this.charts = [new Chart(store, "loss"), new Chart(store, "steps/s")];
    this.log = new Log(store);
    this.el = h(
      "section",
      { className: "mw", "aria-label": "Multi-worker run" },
      h("header", {}, this.dot, this.name, this.words, this.time, h("span", { className: "mw-gap" }),
        this.stacks, this.again, this.stop),
      this.notice,
      this.cause,
      this.tasks,
      h("div", { className: "mw-charts" }, ...this.charts.map((chart) => chart.el)),
      this.log.el,
    );
    this.size = new ResizeObserver(() => this.resized());
    this.size.observe(this.el);
    this.timer = setInterval(() => this.tick(), 1000);
    store.views.add(this);
    this.update([], true, true);
  }

  remove() {
    clearInterval(this.timer);
    clearTimeout(this.due);
    this.size.disconnect();
    this.store.views.delete(this);
    this.el.remove();
  }

  arrived() {
    this.resized();
    this.log.arrived();
  }

  resized() {
    if (!this.el.clientWidth) return;
    for (const chart of this.charts) chart.draw();
    if (this.log.follow) this.log.bottom();
  }

  tick() {
    this.store.beat();
    this.clock();
    const ink = getComputedStyle(this.el).color; // another theme, other axes
    if (ink !== this.ink) for (const chart of this.charts) chart.draw();
    this.ink = ink;
  }

  update(added, fresh, plotted) {
    this.head();
    if (this.store.header) this.row();
    this.log.update(added, fresh);
    if (fresh) this.plot();
    else if (plotted) this.due ||= setTimeout(() => this.plot(), 300); // drawing costs more than the rest
  }

  plot() {
    clearTimeout(this.due);
    this.due = 0;
    for (const chart of this.charts) chart.refresh();
  }

  head() {
    const { header, gone } = this.store;
    this.el.classList.toggle("mw-gone", !!gone);
    if (!header) return set(this.words, "waiting for the kernel");
    this.dot.dataset.tone = gone && !header.over ? "off" : header.tone;
    set(this.name, `Run ${header.number} · ${header.script}`);
    const words = header.doing || header.words;
    set(this.words, gone && !header.over ? `kernel gone; last seen: ${header.words}` : words);
    this.stop.disabled = gone || header.over || !!header.doing;
    this.again.disabled = gone || !!header.doing;
    this.stacks.disabled = gone || header.over || !!header.doing;
    this.notice.hidden = !header.notice;
    set(this.notice, header.notice || "");
    this.cause.hidden = !header.cause.length;
    set(this.why, header.cause.join("\n"));
    this.clock();
  }

  clock() {
    const { header, skew, gone } = this.store;
    if (!header) return;
    if (!gone) this.now = Date.now() / 1000 - skew;
    const spent = clock((header.ended || this.now) - header.started);
    set(this.time, header.attempt > 1 ? `${spent} · attempt ${header.attempt}` : spent);
  }

  row() {
    const { header, rows } = this.store;
    if (this.cards.length !== header.names.length) this.deal(header.names);
    const count = header.names.length;
    this.tasks.dataset.size = count <= 8 ? "roomy" : count <= 24 ? "cards" : "tiles";
    this.cards.forEach((card, i) => rows[i] && rows[i] !== card.row && card.update(rows[i], count <= 8));
  }

  deal(names) {
    this.cards = names.map((name, i) => new Card(name, i, () => this.log.filter(this.log.task === i ? -1 : i)));
    this.tasks.replaceChildren(...this.cards.map((card) => card.el));
  }

  blame() {
    this.log.jump();
    this.log.pane.focus();
  }

  carry() {
    const { header } = this.store;
    copy(this.log.text(header.names.indexOf(header.culprit)), this.take);
  }
}

class Card {
  constructor(name, index, choose) {
    this.name = name;
    this.label = h("button", { type: "button", className: "mw-name", title: `Show the log of ${name}`, onclick: choose });
    this.label.append(swatch(index), name);
    this.words = h("span", { className: "mw-state" });
    this.fill = h("span");
    this.bar = h("span", { className: "mw-bar", role: "progressbar", "aria-label": name, "aria-valuemin": 0, "aria-valuemax": 100 }, this.fill);
    this.place = h("span", { className: "mw-place" });
    this.metrics = h("span", { className: "mw-metrics" });
    this.usage = h("span", { className: "mw-usage" });
    this.el = h("div", { className: "mw-card", role: "listitem" }, this.label, this.words, this.bar, this.place, this.metrics, this.usage);
  }

  update(row, roomy) {
    this.row = row;
    this.el.dataset.tone = row.tone;
    const known = row.part !== null || row.tone === "good";
    const part = row.tone === "good" ? 1 : row.part || 0;
    this.bar.style.visibility = known ? "" : "hidden";
    this.fill.style.width = `${100 * part}%`;
    this.bar.setAttribute("aria-valuenow", Math.round(100 * part));
    const left = row.left && `${clock(row.left)} left`;
    const used = [row.cpu !== null && `${row.cpu} % CPU`, row.memory !== null && bytes(row.memory)];
    const usage = [row.at, row.pid && `pid ${row.pid}`, ...used];
    set(this.words, row.words);
    set(this.place, some([row.place, !roomy && left]));
    set(this.metrics, row.metrics.map(([name, value]) => `${name} ${value}`).join("   "));
    set(this.usage, some([left, ...usage]));
    this.el.classList.toggle("mw-plain", !known && !row.place && !row.metrics.length);
    const all = [this.name, row.words, row.place, this.metrics.textContent, this.usage.textContent];
    this.el.title = all.filter(Boolean).join("\n");
    this.label.setAttribute("aria-description", some(all.slice(1)));
  }
}

const stores = new Map();

// Jupyter renders an output anew whenever it is updated: a view that just lost its place
// moves to the new one, with its filter, its search and where it was scrolled to.
function settle(store, el) {
  const views = [...store.views];
  if (views.some((view) => view.home === el && view.el.isConnected)) return () => {};
  const lost = views.find((view) => !view.el.isConnected);
  const view = lost || new View(store);
  view.home = el;
  el.prepend(view.el);
  view.arrived();
  return () => {
    const height = view.el.offsetHeight;
    if (height) store.style.textContent = `.${store.label}{min-height:${height}px}`;
    setTimeout(() => view.home === el && view.remove(), 2000);
  };
}

// What is typed in the dashboard is not meant for the notebook, where "d d" deletes a cell;
// but saving it, and running a cell, work from here too.
function keys(event) {
  const { target, key } = event;
  if (!target.closest?.(".mw")) return;
  const run = event.shiftKey && key === "Enter" && target.tagName !== "INPUT";
  const theirs = event.ctrlKey || event.metaKey || event.altKey || run;
  target.toggleAttribute("data-lm-suppress-shortcuts", !theirs); // Jupyter's: for capturing listeners
  if (!theirs) target.addEventListener("keydown", (event) => event.stopPropagation(), { once: true });
}

function initialize({ model }) {
  const store = new Store(model);
  const take = (message) => message.kind === "frame" && store.take(message);
  const end = () => store.end();
  // An output that is static is our place all the same, while the page knows the run.
  const found = ({ animationName, target }) => {
    if (animationName === "mw-found" && target.classList.contains(store.label)) settle(store, target);
  };
  stores.set(store.label, store);
  document.head.append(store.style);
  model.on("msg:custom", take);
  model.on("comm_live_update", end);
  document.addEventListener("animationstart", found);
  window.addEventListener("keydown", keys, true);
  for (const el of document.getElementsByClassName(store.label)) settle(store, el);
  store.answer();
  return () => {
    document.removeEventListener("animationstart", found);
    model.off("msg:custom", take);
    model.off("comm_live_update", end);
    window.removeEventListener("keydown", keys, true);
    stores.delete(store.label);
    store.style.remove();
    for (const view of store.views) view.remove();
  };
}

function render({ model, el }) {
  return settle(stores.get(model.get("label")), el);
}

export default { initialize, render };
