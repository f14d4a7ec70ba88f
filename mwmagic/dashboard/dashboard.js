// The browser side of the dashboard: a view keeps and shows what the kernel sends about a run.
// Text from workers reaches the page as text nodes only, never as markup.
// It follows `chart.js` in one module, and `hosting.js` follows it.

// Log lines shown at a time: as many as the kernel keeps of each task.
const SHOWN_LINES = 10000;
// Log lines in a block that the browser lays out, or skips, as a unit.
const BLOCK_LINES = 200;
// Characters from which on a state has a line of its own, below the buttons.
const LONG = 40;
// Points kept of all series together, as in the kernel; beyond that, every second one is dropped.
const SERIES_POINTS = 12000;
// The CSS class of each kind of text; the kernel sends its index.
const MARKS = ["", ".noise", ".error", ".note"];
// While you type elsewhere in the page, what arrives is shown this long after a key, all at once.
const TYPING_MS = 250;
// For how long a button waits for a second click.
const SURE_MS = 3000;
// The hues of a terminal's colours; the lightness follows the theme.
const HUES = "#888 #d00 #080 #a80 #06d #a0a #088 #888".split(" ");
// Matches what switches colours on and off in a line, and what marks the ends of a match.
const CODE = "\x1b\\[[\\d;]*m", SWITCH = new RegExp(`(\x01|\x02|${CODE})`);

// One of a terminal's 256 colours.
function hue(n) {
  if (n < 16) return HUES[n % 8];
  const [r, g, b] = n < 232 ? [(n - 16) / 36, ((n - 16) / 6) % 6, (n - 16) % 6] : Array(3).fill((n - 230) / 5);
  return `rgb(${[r, g, b].map((part) => 51 * Math.floor(part))})`;
}

// A part of a line in the style that a terminal's codes ask for.
function styled(codes, child) {
  const node = h("span.ansi"), rest = codes.split(";").map(Number);
  while (rest.length) {
    const code = rest.shift(), ground = { 3: "--a", 4: "--b" }[Math.floor(code / 10) % 6];
    const exact = () => (rest.shift() === 5 ? hue(rest.shift()) : `rgb(${rest.splice(0, 3)})`);
    if (ground) node.style.setProperty(ground, HUES[code % 10] ?? exact());
    else node.classList.add(`mw-a${code}`);
  }
  node.append(child);
  return node;
}

// Draw a text with its colours, and with what was searched for marked.
function painted(text, wanted) {
  const node = h("span");
  let codes = "", found = false;
  const marked = wanted ? text.replace(wanted, "\x01$&\x02") : text;
  for (const part of marked.split(SWITCH)) {
    if (part === "\x01" || part === "\x02") found = part === "\x01";
    else if (part[0] === "\x1b") codes = part.slice(2, -1).replace(/^0$/, "");
    else if (part) {
      const child = found ? h("mark", {}, part) : part;
      node.append(codes ? styled(codes, child) : child);
    }
  }
  return node;
}

// Show a result on a button for a moment.
function flash(button, text) {
  button.label ??= button.textContent;
  button.textContent = text;
  clearTimeout(button.timer);
  button.timer = setTimeout(() => (button.textContent = button.label), 1500);
}

// Name tasks by their ranks: "[0-2,5]", or "worker:1" alone.
function together(names, tasks) {
  const ranks = [...tasks].sort((a, b) => a - b);
  if (ranks.length < 2) return names[ranks[0]];
  const spans = ranks.map((rank, i) => (rank - 1 === ranks[i - 1] ? (rank + 1 === ranks[i + 1] ? "" : `-${rank}`) : `,${rank}`));
  return `[${spans.join("").slice(1)}]`;
}

function newLog(run, ask, chose) {
  let kept = [], wanted = null, found, task, follow = true, folded = true, seen = 0;
  const select = h("select", { ariaLabel: "Task" });
  const find = h("input", { type: "search", placeholder: "Search", ariaLabel: "Search the log" });
  const told = h("output.dim");
  const notices = button("Notices", unfold, "Show the framework's notices");
  const error = button("First error", jump);
  const following = button("Follow", () => place(!follow));
  const whole = button("Whole log", save, "Download all logs, or the chosen task's");
  const foot = h("span.dim.gap");
  const blocks = h(".blocks"), live = h(".live");
  const pane = h(".lines", { role: "log", ariaLive: "off", ariaLabel: "Log", tabIndex: 0 }, blocks, live);
  const el = h("", {},
    h(".tools", {}, select, find, told, notices, error, h("span.gap"), following),
    pane,
    h(".tools", {}, foot, whole),
  );
  const [errors, noise] = ["mw-error", "mw-noise"].map((name) => blocks.getElementsByClassName(name));
  const shows = (index) => task < 0 || index < 0 || index === task;
  select.onchange = () => choose(run.names.indexOf(select.value));
  find.oninput = () => {
    // A match may change its colour on the way.
    const letters = [...find.value].map((one) => one.replace(/\W/, "\\$&"));
    wanted = letters.length ? new RegExp(letters.join(`(?:${CODE})*`), "gi") : null;
    filter();
  };
  pane.onscroll = () => {
    seen = pane.scrollTop;
    follow = pane.scrollHeight - seen - pane.clientHeight < 24;
    head();
  };

  function choose(index) {
    filter(index);
    chose();
  }

  // Show what is kept of a task, or of all tasks, again.
  function filter(chosen = task, texts = kept) {
    let at = texts.length;
    [task, kept, found] = [(run.task = chosen), texts, 0];
    blocks.replaceChildren();
    offer(select, ["all tasks", ...run.names], run.names[task] ?? "all tasks");
    run.cards.forEach(({ el }, i) => (el.firstChild.ariaPressed = i === task));
    for (let lines = 0; at && lines < SHOWN_LINES; lines += left(kept[--at]).length);
    show(kept.slice(at));
  }

  // Add texts: consecutive lines of one task. The kernel says from which number on it keeps each
  // task's texts. If this page never had some in between, what came before them goes.
  function add(texts, missed) {
    kept = kept.filter(([n, index]) => !(n < run.cards[index]?.row.first)).concat(texts);
    if (missed) filter();
    else show(texts);
  }

  // The lines of a text that the search and the chosen task leave.
  function left([, index, , text]) {
    if (!shows(index) || (wanted && text.search(wanted) < 0)) return [];
    const lines = text.split("\n");
    return wanted ? lines.filter((line) => line.search(wanted) >= 0) : lines;
  }

  function show(texts) {
    for (const text of texts) {
      const lines = left(text), last = blocks.lastChild?.lastChild, [, index, mark] = text;
      if (!lines.length || alike(last, index, mark, lines.join("\n"))) continue;
      if (!(blocks.lastChild?.count < BLOCK_LINES)) blocks.append(h(".block", { count: 0, noise: 0 }));
      const block = blocks.lastChild, node = draw(index, mark, lines.join("\n"));
      node.says = [[index], mark, lines.join("\n")];
      block.append(node);
      block.count += lines.length;
      if (node.matches(".mw-noise")) block.noise += lines.length;
      found += lines.length;
    }
    for (; found > SHOWN_LINES; blocks.firstChild.remove()) found -= blocks.firstChild.count;
    const now = run.cards.map(({ row }, i) => [i, 0, row.live]).filter(([i, , text]) => text && shows(i));
    live.replaceChildren(...now.slice(0, 4).map((text) => draw(...text)));
    place();
  }

  // Add a task to the last text, if it is one of many that print the same.
  function alike(last, index, mark, text) {
    if (task >= 0 || index < 0 || run.header.size === "rows" || MARKS[mark] === ".error") return false;
    const [tasks, ...said] = last?.says ?? [[index]];
    if (tasks.includes(index) || said[0] !== mark || said[1] !== text) return false;
    tasks.push(index);
    last.dataset.task = together(run.names, tasks);
    return true;
  }

  function draw(index, mark, text) {
    const plain = !wanted && !text.includes("\x1b");
    const node = h(`.line${MARKS[mark]}`, { style: `--c: ${colour(index)}` }, plain ? text : painted(text, wanted));
    if (index >= 0) node.dataset.task = run.names[index];
    return node;
  }

  function unfold() {
    folded = !folded;
    place();
  }

  function head() {
    const log = run.cards[task]?.row.log;
    notices.hidden = !noise.length;
    notices.ariaPressed = !folded;
    const hides = pane.classList.toggle("mw-folded", folded && !find.value);
    const shown = [...blocks.children].reduce((all, { count, noise }) => all + count - hides * noise, live.childElementCount);
    following.ariaPressed = follow;
    set(told, find.value && `${found} found`);
    set(foot, `${shown.toLocaleString("en")} line${shown === 1 ? "" : "s"} shown · all in ${log || run.header.folder}`);
    error.hidden = !errors.length;
    whole.disabled = run.gone || (task >= 0 && !log);
  }

  function jump() {
    const { culprit } = run.header, mine = () => [...errors].find((node) => node.dataset.task === culprit);
    if (culprit && !mine()) filter(run.names.indexOf(culprit));
    const node = mine() ?? errors[0];
    pane.focus();
    place(follow && !node);
    node?.scrollIntoView({ block: "nearest" });
  }

  // Scroll to the end if the reader follows the log; otherwise leave the pane where it is.
  function place(wanted = follow) {
    follow = wanted;
    if (follow) pane.scrollTop = pane.scrollHeight;
    head();
  }

  // Jupyter does not serve files in hidden directories: the kernel sends them, piece by piece.
  async function save() {
    const parts = [];
    for (let at = 0, size = 1; at < size; at += parts.at(-1).byteLength) {
      const [told, piece] = await ask({ kind: "log", task, at });
      flash(whole, told.error || `${Math.round(at / 1e6)} MB`);
      if (told.error) return;
      size = told.size;
      parts.push(piece);
    }
    const href = URL.createObjectURL(new Blob(parts));
    h("a", { href, download: `run-${run.number}-${run.names[task] ?? "all"}.log`.replace(":", "-") }).click();
    setTimeout(() => URL.revokeObjectURL(href), 60000);
  }

  // Without a secure connection a page has no other way to copy.
  function copy({ target }) {
    const texts = kept.filter(([, index]) => run.names[index] === run.header.culprit);
    const value = texts.map((text) => text[3]).join("\n").replace(new RegExp(CODE, "g"), "");
    const area = h("textarea", { value });
    el.append(area);
    area.select();
    flash(target, document.execCommand("copy") ? "Copied" : "Copy failed");
    area.remove();
    target.focus();
  }

  function arrange() {
    pane.scrollTop = seen;
    place();
  }

  return { el, add, arrange, copy, filter, jump, toggle: (chosen) => choose(task === chosen ? -1 : chosen) };
}

// The texts of a row, and the tooltip of its name, which has all of them.
function newTexts(name, parts) {
  const texts = parts.map((part) => [part, h(`span.${part}`)]);
  return [texts.map(([, node]) => node), (row) => {
    for (const [part, node] of texts) set(node, row[part]);
    name.title = parts.map((part) => row[part]).filter(Boolean).join("\n");
  }];
}

function newCard(task, index, choose) {
  const row = {};
  const name = h("button.name", { type: "button", onclick: choose }, swatch(index), task);
  const bar = h("progress.bar", { ariaLabel: `Progress of ${task}` });
  const [[state, ...others], tell] = newTexts(name, ["state", "progress", "metrics", "usage"]);
  const el = h(".card", { role: "listitem" }, name, state, bar, ...others);

  function update(changed) {
    Object.assign(row, changed);
    el.dataset.tone = row.tone;
    tell(row);
    bar.hidden = row.part === null;
    bar.value = row.part;
  }

  return { el, row, update };
}

// One of several machines, above its tasks. It folds them, except those that need attention.
function newHost([name, indices], run, open, toggled) {
  const row = { raised: [] };
  const fold = h("button.name", { type: "button", onclick: toggle }, name);
  const [texts, tell] = newTexts(fold, ["state", "progress", "usage"]);
  const cards = indices.map((i) => run.cards[i].el);
  const list = h(".tasks", { role: "list", ariaLabel: `Tasks on ${name}` }, ...cards);
  const el = h(".host", { role: "listitem" }, h(".card.machine", {}, fold, ...texts), list);
  list.dataset.size = run.header.size;
  arrange();

  function toggle() {
    arrange((open = !open));
    toggled(open);
  }

  function arrange() {
    fold.ariaExpanded = open;
    indices.forEach((i, at) => (cards[at].hidden = !open && !row.raised.includes(run.names[i])));
    list.hidden = cards.every((card) => card.hidden);
  }

  function update(changed) {
    Object.assign(row, changed);
    el.dataset.tone = row.tone;
    tell(row);
    arrange();
  }

  return { el, update, isOpen: () => open };
}

function newView(model) {
  const page = Math.random(), opened = new Map();
  const byTime = (metric) => run.timed.includes(metric) && "seconds";
  const run = { axis: (index, metric) => byTime(metric) || run.cards[index].row.axis, name: (tasks) => together(run.names, tasks) };
  let said = 0, skew = 0, plotted = false, typed = 0, held = [], asked, told;
  const act = (kind, click = () => send({ kind })) => Object.assign(button("", click), { kind });
  const actions = [act("stacks"), firm("restart"), firm("stop")];
  const title = h("strong"), time = h("span.dim"), why = h("pre");
  const notice = h("output.notice");
  const failed = h("summary"), attempts = h("pre"), earlier = h("details.earlier", {}, failed, attempts);
  const words = h("output.words");
  const tasks = h(".tasks", { role: "list" }), shared = h("output.shared", { ariaLive: "off" });
  const charts = [newChart(run, "loss", "first"), newChart(run, SPEED, "second")];
  const log = newLog(run, ask, report);
  const plots = h(".charts", {}, ...charts.map((chart) => chart.el)), gallery = h(".charts");
  const head = h("header", {}, title, words, time, h("span.gap"), ...actions);
  const place = h("strong"), stacks = h("pre", { tabIndex: 0, ariaLabel: "The stacks" });
  const panel = h("section", { ariaLabel: "Where each worker is", hidden: true },
    h(".tools", {}, place, h("span.gap"), button("Close", close, "Close the stacks")),
    stacks,
  );
  const el = h("section", { className: "mw" },
    head,
    notice,
    panel,
    h(".cause", {}, why, button("Show in the log", log.jump), button("Copy its log", log.copy)),
    earlier,
    shared,
    tasks,
    plots,
    gallery,
    log.el,
  );

  // What ends a run asks for a second click: a slip must not lose a training. The second click
  // of a double click is part of the slip.
  function firm(kind) {
    const ask = (whether) => {
      one.asked = whether;
      label(one);
    };
    const one = act(kind, ({ detail }) => {
      if (detail > 1) return;
      const sure = run.header.over || one.asked;
      ask(!sure);
      clearTimeout(one.timer);
      if (sure) send({ kind });
      else one.timer = setTimeout(ask, SURE_MS, false);
    });
    one.ariaLive = "polite";
    return one;
  }

  function label(one) {
    const [text, title] = run.header.buttons[one.kind];
    set(one, one.asked ? `${text}? Click again` : text);
    one.title = title;
  }

  function hear(message, buffers) {
    if (message.id === asked) told?.([message, buffers[0]]);
    if (!message.to) return;
    const left = typed + TYPING_MS - Date.now();
    if (held.push(message) > 1) return;
    if (left > 0) setTimeout(take, left);
    else take();
  }

  function take() {
    const taken = held;
    held = [];
    taken.forEach(show);
  }

  function show(message) {
    run.gone = false;
    // The kernel's clock may differ from the page's.
    skew = Date.now() / 1000 - message.now;
    const next = message.run !== run.number;
    if (next) begin(message.run);
    const { from, to, texts, points = [], question } = message, [text, point, state] = run.at;
    const missed = from.some((n, i) => n > run.at[i]);
    if (!missed) {
      // A page that asked twice is answered twice: skip what it already has.
      run.at = to.map((n, i) => Math.max(n, run.at[i]));
      if (to[2] >= state) update(message);
      points.slice(Math.max(point - from[1], 0)).forEach(plot);
      log.add(texts.filter(([n]) => n >= text), run.cards.some(({ row }) => row.first > text));
    }
    // At once: the curves of the run before are not this run's.
    if (next) redraw();
    if (missed || question) answer(question);
  }

  function begin(number) {
    Object.assign(run, { number, at: [0, 0, 0], cards: [], hosts: [], series: {}, figures: {} });
    gallery.replaceChildren();
  }

  function update({ header, hosts = {}, rows = {}, figures, stacks: found }) {
    run.header = { ...run.header, ...header };
    run.timed = run.header.timed;
    const dealt = !run.cards.length;
    if (dealt) deal(run.header.names);
    if (dealt || header?.hosts) group();
    for (const [i, host] of Object.entries(hosts)) run.hosts[i].update(host);
    for (const [i, row] of Object.entries(rows)) run.cards[i].update(row);
    if (found !== undefined) open(found);
    if (figures) exhibit(figures);
    draw();
  }

  // The last figures that programs showed: their order and captions, and those that are new.
  function exhibit(figures) {
    Object.assign(run.figures, figures);
    gallery.replaceChildren(...(run.figures[""] ?? []).map(([key, text]) => {
      const src = run.figures[key];
      return h("figure", {}, ...(src ? [h("img", { src, alt: text })] : []), h("figcaption.dim", {}, text));
    }));
  }

  function deal(names) {
    run.names = names;
    run.cards = names.map((name, i) => newCard(name, i, () => log.toggle(i)));
    log.filter(-1, []);
  }

  // Put the tasks below their hosts, if there are several.
  function group() {
    const { hosts, folded, size } = run.header, several = hosts.length > 0;
    for (const { el } of run.cards) el.hidden = false;
    run.hosts = hosts.map((host) => newHost(host, run, opened.get(host[0]) ?? !folded, (open) => {
      opened.set(host[0], open);
      report();
    }));
    tasks.replaceChildren(...(several ? run.hosts : run.cards).map(({ el }) => el));
    tasks.dataset.size = several ? "rows" : size;
    tasks.classList.toggle("mw-hosts", several);
    // Of many tasks the charts say more than the cards.
    if (size === "rows") tasks.after(plots);
    else shared.before(plots);
  }

  // Of many tasks the kernel sends only what is looked at.
  function report() {
    if (run.header.folded) answer();
  }

  // What the stacks were is shown until the reader closes it; its first line is a title.
  function open(found) {
    const [when, ...lines] = found.split("\n");
    panel.hidden = !found;
    set(place, when);
    set(stacks, lines.join("\n"));
  }

  // At once, even if the kernel is busy or gone.
  function close() {
    panel.hidden = true;
    send({ kind: "close" });
  }

  function plot([index, attempt, metric, x, y]) {
    const line = (run.series[JSON.stringify([metric, attempt, index])] ??= { index, attempt, metric, points: [] });
    line.points.push([x, y]);
    const { length } = line.points;
    if (length * Object.keys(run.series).length > SERIES_POINTS) line.points = line.points.filter((_, i) => (length - i) % 2);
    plotted = true;
  }

  function answer(question = 0) {
    said = Date.now();
    const hosts = [...run.hosts.keys()].filter((i) => run.hosts[i].isOpen());
    const looks = run.header.folded ? { hosts, tasks: run.task < 0 ? [] : [run.task] } : {};
    send({ kind: "at", page, question, run: run.number, at: run.at, ...looks });
  }

  function send(message) {
    try {
      if (!run.gone) model.send(message);
    } catch {
      end();
    }
  }

  function ask(message) {
    asked = Math.random();
    send({ ...message, page, id: asked });
    return new Promise((resolve) => (told = resolve));
  }

  function draw() {
    const { header, gone } = run, lost = gone && !header.over;
    head.dataset.tone = lost ? "off" : header.tone;
    set(title, header.title);
    el.ariaLabel = header.title;
    set(words, lost ? `kernel gone; last seen: ${header.words}` : header.words);
    words.classList.toggle("mw-long", words.textContent.length > LONG);
    for (const one of actions) {
      one.disabled = gone || !header.actions.includes(one.kind);
      label(one);
    }
    set(notice, header.notice);
    set(shared, header.shared);
    set(why, header.cause);
    why.parentNode.hidden = !header.cause;
    list(header.earlier, header.unfolded);
    if (gone) return;
    const spent = Math.max(0, (header.ended || Date.now() / 1000 - skew) - header.started);
    const minutes = new Date(1000 * spent).toISOString().slice(14, 19);
    set(time, `${Math.floor(spent / 3600)}:${minutes}`.replace(/^0:0?/, ""));
  }

  // Why earlier attempts failed: each new one is shown, until they are many.
  function list([heading = "", ...lines], few) {
    earlier.hidden = !heading;
    if (failed.textContent !== heading) earlier.open = few;
    set(failed, heading);
    set(attempts, lines.join("\n"));
  }

  function end() {
    run.gone = true;
    draw();
    log.arrange();
  }

  function tick() {
    // A packet or an answer may have been lost: report the position again.
    if (Date.now() - said > 2000) answer();
    draw();
    if (!plotted || !el.clientHeight) return;
    plotted = false;
    redraw();
  }

  function redraw() {
    const hidden = () => charts.map(({ el }) => el.hidden).join(), before = hidden();
    for (const chart of charts) chart.draw();
    // One that appears takes room from the other.
    if (hidden() !== before) for (const chart of charts) chart.draw();
  }

  // The view was moved or resized.
  function arrange() {
    if (!el.clientHeight) return;
    plotted = true;
    log.arrange();
    // Jupyter removes the view for a moment when it renders the output again.
    el.closest(".jp-OutputArea")?.style.setProperty(`--${model.get("label")}`, `${el.offsetHeight}px`);
  }

  function remove() {
    clearInterval(timer);
    release();
    el.remove();
  }

  begin(null);
  update(model.get("state"));
  new ResizeObserver(arrange).observe(el);
  const refocus = keepFocus(el);
  const release = keepKeys(el, () => (typed = Date.now()));
  const timer = setInterval(tick, 500);
  answer();
  return { el, hear, end, arrange, refocus, remove };
}
