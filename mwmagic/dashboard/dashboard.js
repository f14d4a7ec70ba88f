// The browser side of the dashboard: a view keeps and shows what the kernel sends about a run.
// Text from workers reaches the page as text nodes only, never as markup.

// Log lines shown at a time: as many as the kernel keeps of each task.
const SHOWN_LINES = 10000;
// Log lines in a block that the browser lays out, or skips, as a unit.
const BLOCK_LINES = 200;
// Characters from which on a state has a line of its own, below the buttons.
const LONG = 40;
// Points kept of all series together, as in the kernel; beyond that, every second one is dropped.
const KEPT_POINTS = 12000;
// The CSS class of each kind of text; the kernel sends its index.
const MARKS = ["", ".noise", ".error", ".note"];
const SPEED = "steps/s";
// Not a metric: its points mark where epochs begin.
const EPOCH = null;
// Values of a chart that are shown at once: as many as fit on it.
const MOST_TOLD = 8;
// Characters of a metric's name that fit beside a chart, and of a number.
const TITLE = 22, NUMBER = 8;
// The edges of the curves' area in a chart, in pixels; the names of its marks stand above it.
const LEFT = 58, RIGHT = 8, TOP = 20, BOTTOM = 146;
// The width of a character of a chart's words, in pixels, and the least space between two names.
const LETTER = 5.6, SPACE = 8;
// The most decades that a logarithmic scale divides by 2 and 5.
const DIVIDED = 2;
// While you type elsewhere in the page, what arrives is shown this long after a key, all at once.
const TYPING_MS = 250;
// For how long a button waits for a second click.
const SURE_MS = 3000;
// The palette of Okabe and Ito.
const COLOURS = "#0072B2 #E69F00 #009E73 #CC79A7 #56B4E9 #D55E00".split(" ");
const DASHES = ["", "7 4", "2 3", "9 3 2 3"];
// The hues of a terminal's colours; the lightness follows the theme.
const HUES = "#888 #d00 #080 #a80 #06d #a0a #088 #888".split(" ");
// Matches what switches colours on and off in a line, and what marks the ends of a match.
const CODE = "\x1b\\[[\\d;]*m", SWITCH = new RegExp(`(\x01|\x02|${CODE})`);

const colour = (task) => COLOURS[task % COLOURS.length];
const number = (n) => String(+n.toPrecision(6));
const short = (y) => (y === null ? "nan" : String(+y.toPrecision(4)));

// Create an element: h("span.class", { title: "a property" }, "a child"); h(".class") is a div.
function h(tag, props, ...children) {
  const [name, ...classes] = tag.split(".");
  const drawn = ["svg", "path", "text"].includes(name);
  const node = document.createElementNS(`http://www.w3.org/${drawn ? "2000/svg" : "1999/xhtml"}`, name || "div");
  for (const one of classes) node.classList.add(`mw-${one}`);
  if (!drawn) Object.assign(node, props);
  else for (const key in props) node.setAttribute(key, props[key]);
  node.append(...children);
  return node;
}

const button = (text, onclick, title = "") => h("button", { type: "button", onclick, title }, text);

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

function set(node, text) {
  if (node.textContent !== text) node.textContent = text;
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

function offer(select, names, chosen) {
  if (select.textContent !== names.join("")) select.replaceChildren(...names.map((name) => new Option(name)));
  select.value = chosen;
}

// A task's line in a chart, and a short sample of it beside the task's name.
function stroke(task, d, opacity = 1) {
  const dashes = DASHES[Math.floor(task / COLOURS.length) % DASHES.length];
  return h("path", { d, opacity, stroke: colour(task), "stroke-dasharray": dashes });
}

const swatch = (task) => h("svg", { width: 17, height: 4 }, stroke(task, "M0 2H17"));

function range(values) {
  const known = values.filter((value) => value !== null);
  return known.length ? [Math.min(...known), Math.max(...known)] : [0, 1];
}

function ticks(low, high, least = 0) {
  const rough = Math.max((high - low) / 5, least);
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = unit * [1, 2, 5, 10].find((n) => n * unit >= rough), first = Math.ceil(low / step);
  return Array.from({ length: Math.floor(high / step) - first + 1 }, (_, i) => (first + i) * step);
}

// Numbers for an axis: as short as they fit beside it, with an exponent if one of them does not.
function labels(values) {
  const texts = values.map(number), step = values.length > 1 ? Math.abs(values[1] - values[0]) : 1;
  if (texts.every((text) => text.length <= NUMBER)) return texts;
  const power = (value) => Math.floor(Math.log10(Math.abs(value)));
  const digits = (value) => Math.max(0, Math.min(power(value) - power(step), NUMBER / 2));
  return values.map((value) => (value ? value.toExponential(digits(value)).replace("e+", "e") : "0"));
}

function newChart(run, preferred, which) {
  let metric = preferred;
  let lines = [], xs = [], cursor = Infinity, hovered, chosen, logged = false, axis = "step", X, Y;
  const named = (what) => `${what} of the ${which} chart`;
  const select = h("select", { ariaLabel: named("Metric"), onchange: () => draw((metric = chosen = select.value)) });
  const log = button("log", () => draw((logged = !logged)), "Logarithmic scale");
  const smooth = h("input", { type: "range", max: 0.98, step: 0.02, value: 0, ariaLabel: named("Smoothing"), oninput: () => draw() });
  const svg = h("svg"), tip = h(".tip"), pointer = h("path.cursor");
  const hover = (at) => show((hovered = at));
  const plot = h(".plot", {
    role: "slider", tabIndex: 0, onkeydown: move, onmousemove: (event) => hover(event.offsetX), onmouseleave: () => hover(),
  }, svg, tip);
  const el = h("figure", { hidden: true }, h(".tools", {}, select, log, h("label.dim", {}, "smooth", smooth)), plot);
  log.ariaLabel = named("Logarithmic scale");

  // Where a value is on the y axis before it is scaled to pixels; null if nowhere.
  const raised = (y) => (!logged || y === null ? y : y > 0 ? Math.log10(y) : null);

  function draw() {
    const all = Object.values(run.series), names = [...new Set(all.map((line) => line.metric))].filter((name) => name !== EPOCH);
    // Training and validation in one chart.
    const pairs = Object.fromEntries(names.filter((name) => names.includes(`val_${name}`)).map((name) => [`${name} and val_${name}`, [name, `val_${name}`]]));
    const both = Object.keys(pairs), offered = [...names, ...both];
    if (!chosen && preferred === SPEED && both.length) metric = pairs["loss and val_loss"] ? "loss and val_loss" : both[0];
    if (metric !== SPEED && names.length && !offered.includes(metric)) metric = names.find((name) => name.includes("loss")) ?? names[0];
    const pick = (...wanted) => all.filter((line) => wanted.includes(line.metric)).sort((a, b) => a.attempt - b.attempt || a.index - b.index);
    lines = pick(...(pairs[metric] ?? [metric]));
    log.ariaPressed = logged;
    // A chart that is there stays until it is known that the next run has nothing to show in it.
    el.hidden = !lines.length && (el.hidden || run.header.over);
    const width = plot.clientWidth;
    if (!lines.length) {
      svg.replaceChildren();
      set(tip, "");
    }
    if (!width || !lines.length) return;
    offer(select, offered, metric);
    const points = lines.flatMap((line) => line.points), last = lines.at(-1).attempt;
    axis = run.cards[lines[0].index].row.axis ?? axis;
    xs = [...new Set(points.map(([x]) => x))].sort((a, b) => a - b);
    let [x0, x1] = range(xs);
    if (x0 === x1) [x0, x1] = [x0 - 1, x1 + 1];
    let [y0, y1] = range(points.map(([, y]) => raised(y)));
    const pad = 0.08 * (y1 - y0 || Math.abs(y1) || 1);
    y0 = !logged && y0 >= 0 && (metric === SPEED || y0 < pad) ? 0 : y0 - pad;
    y1 += pad;
    X = (x) => LEFT + ((x - x0) / (x1 - x0)) * (width - LEFT - RIGHT);
    Y = (y) => TOP + ((y1 - y) / (y1 - y0)) * (BOTTOM - TOP);
    const marks = pick(EPOCH).findLast((line) => line.attempt === last)?.points ?? [];
    const every = Math.ceil(marks.length / 8), heights = rulers(y0, y1), numbers = labels(heights);
    const attempts = lines.filter((line, i) => i && line.attempt > lines[i - 1].attempt);
    svg.replaceChildren(
      ...heights.flatMap((y, i) => [h("path.rule", { d: `M${LEFT} ${Y(raised(y))}H${width}` }), write(LEFT - 6, Y(raised(y)) + 3, numbers[i], "end")]),
      ...ticks(x0, x1, 1).map((x) => write(Math.min(X(x), width - 3 * number(x).length), BOTTOM + 15, number(x), "middle")),
      write((LEFT + width - RIGHT) / 2, BOTTOM + 31, axis, "middle"),
      write(-(TOP + BOTTOM) / 2, 10, metric.length > TITLE ? `${metric.slice(0, TITLE / 2 - 1)}…${metric.slice(-TITLE / 2)}` : metric, "middle", { transform: "rotate(-90)" }),
      ...begun(width, [
        ...attempts.map(({ attempt, points: [[x]] }) => ["attempt", x, attempt]),
        ...marks.filter(([x], i) => x >= x0 && i % every === 0).map(([x, y]) => ["epoch", x, y]),
      ]),
      ...lines.flatMap(curves),
      pointer,
    );
    plot.ariaLabel = `${metric}: ${words(width).join(", ")}`;
    plot.ariaValueMin = x0;
    plot.ariaValueMax = x1;
    show();
  }

  // The numbers of the y axis. On a logarithmic scale they are powers of ten, with 2 and 5 times
  // these if it has few, or round numbers if it has not even two of those.
  function rulers(y0, y1) {
    if (!logged) return ticks(y0, y1);
    if (y1 - y0 > DIVIDED) return ticks(y0, y1, 1).map((y) => 10 ** y);
    const powers = Array.from({ length: Math.floor(y1) - Math.floor(y0) + 1 }, (_, i) => Math.floor(y0) + i);
    const found = powers.flatMap((power) => [1, 2, 5].map((n) => n * 10 ** power)).filter((y) => Math.log10(y) >= y0 && Math.log10(y) <= y1);
    return found.length > 1 ? found : ticks(10 ** y0, 10 ** y1).filter((y) => y > 0);
  }

  const write = (x, y, text, side, props) => h("text", { x, y, "text-anchor": side, ...props }, text);

  // Lines where attempts and epochs begin, and above them the names that there is room for.
  function begun(width, marks) {
    const taken = [];
    return marks.flatMap(([kind, x, number]) => {
      const line = h(`path.${kind}`, { d: `M${X(x)} ${TOP}V${BOTTOM}` }), name = `${kind} ${number}`, wide = LETTER * name.length;
      const from = Math.min(X(x), width - wide), to = from + wide;
      if (taken.some(([left, right]) => from < right + SPACE && to > left - SPACE)) return [line];
      taken.push([from, to]);
      return [line, write(from, TOP - 7, name, "start")];
    });
  }

  function curves({ index, attempt, metric, points }) {
    const weight = +smooth.value, strength = attempt < lines.at(-1).attempt ? 0.35 : 1;
    const drawn = (some, opacity) => {
      // A point that no line leads to or from is a dot: a line of no length with round ends.
      const d = path(some), dots = d.match(/M[^ML]+(?![^M])/g)?.map((at) => `${at}h0`).join("");
      const line = stroke(index, d, opacity);
      if (metric !== lines[0].metric) line.classList.add("mw-validation");
      return dots ? [line, h("path.dot", { d: dots, opacity, stroke: colour(index) })] : [line];
    };
    return weight ? [...drawn(points, 0.2 * strength), ...drawn(means(points, weight), strength)] : drawn(points, strength);
  }

  // Means of the values up to each point, in which older ones weigh less and less.
  function means(points, weight) {
    let sum = 0, all = 0;
    return points.map(([x, y]) => {
      if (y === null) return [x, y];
      [sum, all] = [weight * sum + y, weight * all + 1];
      return [x, sum / all];
    });
  }

  function path(points) {
    let drawn = "", pen = "M";
    for (const [x, y] of points) {
      const high = raised(y);
      if (high !== null) drawn += `${pen}${X(x).toFixed(1)} ${Y(high).toFixed(1)}`;
      // A value that is not a number leaves a gap.
      pen = high === null ? "M" : "L";
    }
    return drawn;
  }

  // The values of the lines, or of the chosen task's, at the point nearest to a pixel. Those that
  // are equal are shown once.
  function words(at) {
    const away = ([x]) => Math.abs(X(x) - at), found = new Map(), several = new Set(lines.map((line) => line.metric)).size > 1;
    for (const { index, attempt, metric, points } of lines) {
      if (run.task >= 0 && index !== run.task) continue;
      const [x, y] = points.reduce((best, point) => (away(point) <= away(best) ? point : best));
      const value = `${attempt > 1 ? ` · attempt ${attempt}` : ""} · ${axis} ${x}: ${several ? `${metric} ` : ""}${short(y)}`;
      found.set(value, [...(found.get(value) ?? []), index]);
    }
    const told = [...found].map(([value, tasks]) => together(run.names, tasks) + value), more = told.length - MOST_TOLD;
    return more > 0 ? [...told.slice(more), `… and ${more} more`] : told;
  }

  const clamped = (at) => Math.max(0, Math.min(at, xs.length - 1));

  // Tell the values below the mouse, or where the keys have moved the cursor: at first, at the end.
  function show() {
    const x = xs[clamped(cursor)], at = hovered ?? X(x);
    set(tip, words(at).join("\n"));
    tip.style.left = `${Math.max(0, Math.min(at + 12, plot.clientWidth - 200))}px`;
    pointer.setAttribute("d", `M${at} ${TOP}V${BOTTOM}`);
    plot.ariaValueNow = x;
    plot.ariaValueText = words(X(x)).join(", ");
  }

  function move(event) {
    const by = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10, Home: -Infinity, End: Infinity }[event.key];
    if (!by) return;
    event.preventDefault();
    cursor = clamped(clamped(cursor) + by);
    if (cursor === xs.length - 1) cursor = Infinity;
    show((hovered = undefined));
  }

  return { el, draw };
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
  const page = Math.random(), run = {}, opened = new Map();
  let said = 0, skew = 0, plotted = false, typed = 0, held = [], asked, told, focused;
  const act = (kind, click = () => send({ kind })) => Object.assign(button("", click), { kind });
  const actions = [act("stacks"), firm("restart"), firm("stop")];
  const title = h("strong"), time = h("span.dim"), why = h("pre");
  const notice = h("output.notice");
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
    if (length * Object.keys(run.series).length > KEPT_POINTS) line.points = line.points.filter((_, i) => (length - i) % 2);
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
    if (gone) return;
    const spent = Math.max(0, (header.ended || Date.now() / 1000 - skew) - header.started);
    const minutes = new Date(1000 * spent).toISOString().slice(14, 19);
    set(time, `${Math.floor(spent / 3600)}:${minutes}`.replace(/^0:0?/, ""));
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

  // Keys typed here are not for the notebook, where "d d" deletes a cell; saving the notebook
  // and running a cell still work.
  function keys({ target, ctrlKey, metaKey, altKey, shiftKey, key }) {
    const theirs = ctrlKey || metaKey || altKey || (shiftKey && key === "Enter");
    if (!theirs && !el.contains(target)) typed = Date.now();
    // Jupyter's listener runs before ours and looks at this attribute.
    el.toggleAttribute("data-lm-suppress-shortcuts", !theirs);
    el.onkeydown = (event) => theirs || event.stopPropagation();
  }

  // An element that loses the focus because it is removed from the page gets it back, unless
  // something else has it: the notebook would receive the keys, and they could delete a cell.
  function leave() {
    if (el.isConnected && !el.contains(document.activeElement)) focused = null;
  }

  function refocus() {
    if (document.activeElement === document.body) focused?.focus({ preventScroll: true });
  }

  function remove() {
    clearInterval(timer);
    window.removeEventListener("keydown", keys, true);
    el.remove();
  }

  begin(null);
  update(model.get("state"));
  new ResizeObserver(arrange).observe(el);
  el.addEventListener("focusin", ({ target }) => (focused = target));
  el.addEventListener("focusout", () => setTimeout(leave));
  window.addEventListener("keydown", keys, true);
  const timer = setInterval(tick, 500);
  answer();
  return { el, hear, end, arrange, refocus, remove };
}

export default () => {
  const views = [], watch = new MutationObserver(seek);
  let model, label;

  // Jupyter renders an output again whenever it is updated: a view that has just lost its place
  // moves to the new one, with its filter, its search and its scroll position.
  function settle(el) {
    if (views.some((view) => view.home === el && view.el.isConnected)) return;
    let view = views.find((view) => !view.el.isConnected);
    if (!view) views.push((view = newView(model)));
    view.home = el;
    el.prepend(view.el);
    if (el.parentNode) watch.observe(el.parentNode, { childList: true });
    view.arrange();
    view.refocus();
    const end = () => view.home === el && views.splice(views.indexOf(view), 1)[0].remove();
    return () => setTimeout(end, 2000);
  }

  // A static output can also hold the view, as long as the page knows the run. A CSS animation
  // on it reports that it was inserted.
  function seek() {
    for (const el of document.getElementsByClassName(label)) settle(el);
  }

  // After a reload Jupyter no longer knows which of its outputs the kernel updates.
  function keep({ output }) {
    for (const { outputs } of model.widget_manager?.context?.model.cells ?? []) {
      for (let i = 0; i < outputs?.length; i++) {
        const html = String(outputs.get(i).data["text/html"]);
        if (html.includes(label) && html !== output.data["text/html"]) outputs.set(i, output);
      }
    }
  }

  function initialize(given) {
    model = given.model;
    label = model.get("label");
    model.on("msg:custom", (message, buffers) => {
      if (message.kind === "keep") keep(message);
      else for (const view of views) view.hear(message, buffers);
    });
    model.on("comm_live_update", () => views.forEach((view) => view.end()));
    document.addEventListener("animationstart", seek);
    // Jupyter's own pages hold all outputs in one document: any of them can hold the view.
    model.send({ kind: "hosts", hosts: !!document.querySelector(".jp-Notebook"), age: performance.now() / 1000 });
    // Jupyter loads a typesetter for its first HTML output, which would delay a run's first lines.
    model.widget_manager?.rendermime?.latexTypesetter?.typeset(h("p"));
    seek();
    return () => {
      watch.disconnect();
      document.removeEventListener("animationstart", seek);
      views.forEach((view) => view.remove());
    };
  }

  return { initialize, render: ({ el }) => settle(el) };
};
