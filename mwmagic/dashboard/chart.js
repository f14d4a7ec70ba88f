// What the pages of runs share: elements, and charts of metrics by step, epoch or time.
// Names and values reach the page as text nodes only, never as markup.

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
// The palette of Okabe and Ito.
const COLOURS = "#0072B2 #E69F00 #009E73 #CC79A7 #56B4E9 #D55E00".split(" ");
const DASHES = ["", "7 4", "2 3", "9 3 2 3"];

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

function set(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function offer(select, names, chosen) {
  if (select.textContent !== names.join("")) select.replaceChildren(...names.map((name) => new Option(name)));
  select.value = chosen;
}

// A line in a chart, of a task or of a run, and a short sample of it beside the name.
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

// What a chart's style sheet gives its parts, which a file has without the sheet.
const LOOK = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "opacity", "font-family", "font-size"];
// The height of a line of a picture's legend, in pixels, and how much finer a PNG is than the page.
const LEGEND = 16, FINER = 2;

// A drawing as the text of an SVG file, on the page's own background, with names of lines below it.
function pictured(svg, names) {
  const width = svg.clientWidth, high = svg.clientHeight, copy = svg.cloneNode(true), drawn = [...svg.children];
  [...copy.children].forEach((node, i) => {
    const look = getComputedStyle(drawn[i]);
    for (const name of LOOK) node.setAttribute(name, look.getPropertyValue(name));
    if (node.classList.contains("mw-cursor")) node.remove();
  });
  const { fill, fontFamily } = getComputedStyle(svg.querySelector("text")), style = { fill, "font-family": fontFamily, "font-size": "10px" };
  let x = LEFT, y = high + LEGEND / 2;
  for (const [index, name] of names) {
    const wide = 24 + LETTER * name.length;
    if (x > LEFT && x + wide > width) [x, y] = [LEFT, y + LEGEND];
    const sample = stroke(index, `M${x} ${y - 3}h17`);
    sample.setAttribute("stroke-width", 1.8);
    copy.append(sample, h("text", { x: x + 21, y, ...style }, name));
    x += wide + SPACE;
  }
  const height = names.length ? y + LEGEND / 2 : high;
  for (const [key, value] of Object.entries({ xmlns: "http://www.w3.org/2000/svg", width, height, viewBox: `0 0 ${width} ${height}` })) copy.setAttribute(key, value);
  copy.prepend(h("path", { d: `M0 0H${width}V${height}H0Z`, fill: getComputedStyle(svg.closest(".mw")).backgroundColor }));
  for (const node of copy.querySelectorAll("text")) set(node, node.textContent.replace(/[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]/g, "\ufffd")); // XML has no such characters
  return { text: new XMLSerializer().serializeToString(copy), width, height };
}

// A picture as a PNG, drawn by the browser.
async function rasterized({ text, width, height }) {
  const image = new Image(), canvas = h("canvas", { width: FINER * width, height: FINER * height });
  image.src = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  await image.decode();
  URL.revokeObjectURL(image.src);
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve) => canvas.toBlob(resolve));
}

// Rows as a CSV file has them.
const csv = (rows) => rows.map((row) => row.map((one) => (/[",\r\n]/.test(one ?? "") ? `"${one.replaceAll('"', '""')}"` : one ?? "")).join(",") + "\n").join("");

// Give the reader a file, without a server.
function save(name, content) {
  const href = URL.createObjectURL(new Blob([content]));
  h("a", { href, download: name.replace(/[^\w.-]+/g, "_") }).click();
  setTimeout(() => URL.revokeObjectURL(href), 60_000);
}

// A chart of `run.series`: lines with an index, an attempt, a metric, and points [x, y] or, with the
// spread of several workers, [x, y, low, high]. `run.name` names the lines of some indices, and
// `run.axis` what the x of one counts for a metric. `run.timed` are the metrics by time, which come
// last. The values of line `run.task` are shown alone, if it is one, and the others are faint if
// `run.dims`.
function newChart(run, preferred, which) {
  let metric = preferred;
  let lines = [], xs = [], cursor = Infinity, hovered, chosen, logged = false, axis = "step", X, Y;
  const named = (what) => `${what} of the ${which} chart`;
  const select = h("select", { ariaLabel: named("Metric"), onchange: () => draw((metric = chosen = select.value)) });
  const log = button("log", () => draw((logged = !logged)), "Logarithmic scale");
  const smooth = h("input", { type: "range", max: 0.98, step: 0.02, value: 0, ariaLabel: named("Smoothing"), oninput: () => draw() });
  const files = Object.entries({ SVG: "Save the chart", PNG: "Save the chart", CSV: "Save all points" }).map(([kind, what]) => {
    const one = button(kind, () => keep(kind), `${what} as ${kind}`);
    one.ariaLabel = named(`${kind} file`);
    return one;
  });
  const svg = h("svg"), tip = h(".tip"), pointer = h("path.cursor");
  const hover = (at) => show((hovered = at));
  const plot = h(".plot", {
    role: "slider", tabIndex: 0, onkeydown: move, onmousemove: (event) => hover(event.offsetX), onmouseleave: () => hover(),
  }, svg, tip);
  const el = h("figure", { hidden: true }, h(".tools", {}, select, log, h("label.dim", {}, "smooth", smooth), h("span.gap"), h("span.files", {}, ...files)), plot);
  log.ariaLabel = named("Logarithmic scale");

  // Where a value is on the y axis before it is scaled to pixels; null if nowhere.
  const raised = (y) => (!logged || y === null ? y : y > 0 ? Math.log10(y) : null);

  function draw() {
    const all = Object.values(run.series), timed = run.timed ?? [];
    const found = [...new Set(all.map((line) => line.metric))].filter((name) => name !== EPOCH), own = found.filter((name) => !timed.includes(name));
    // What the tasks use is offered beside their metrics.
    const names = own.length ? [...own, ...timed.filter((name) => found.includes(name))] : [];
    // Training and validation in one chart.
    const pairs = Object.fromEntries(names.filter((name) => names.includes(`val_${name}`)).map((name) => [`${name} and val_${name}`, [name, `val_${name}`]]));
    const both = Object.keys(pairs), offered = [...own, ...both, ...names.slice(own.length)];
    if (!chosen && preferred === SPEED && both.length) metric = pairs["loss and val_loss"] ? "loss and val_loss" : both[0];
    if (metric !== SPEED && names.length && !offered.includes(metric)) metric = names.find((name) => name.includes("loss")) ?? names[0];
    const pick = (...wanted) => all.filter((line) => wanted.includes(line.metric)).sort((a, b) => a.attempt - b.attempt || a.index - b.index);
    lines = names.length ? pick(...(pairs[metric] ?? [metric])) : [];
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
    axis = run.axis(lines[0].index, metric) ?? "step";
    xs = [...new Set(points.map(([x]) => x))].sort((a, b) => a - b);
    let [x0, x1] = range(xs);
    if (x0 === x1) [x0, x1] = [x0 - 1, x1 + 1];
    let [y0, y1] = range(points.flatMap(([, ...ys]) => ys.map(raised)));
    const pad = 0.08 * (y1 - y0 || Math.abs(y1) || 1);
    y0 = !logged && y0 >= 0 && (metric === SPEED || y0 < pad) ? 0 : y0 - pad;
    y1 += pad;
    X = (x) => LEFT + ((x - x0) / (x1 - x0)) * (width - LEFT - RIGHT);
    Y = (y) => TOP + ((y1 - y) / (y1 - y0)) * (BOTTOM - TOP);
    const marks = timed.includes(metric) ? [] : pick(EPOCH).findLast((line) => line.attempt === last)?.points ?? [];
    const every = Math.ceil(marks.length / 8), heights = rulers(y0, y1), numbers = labels(heights);
    const attempts = lines.filter((line, i) => i && line.attempt > lines[i - 1].attempt);
    svg.replaceChildren(
      ...heights.flatMap((y, i) => [h("path.rule", { d: `M${LEFT} ${Y(raised(y))}H${width}` }), write(LEFT - 6, Y(raised(y)) + 3, numbers[i], "end")]),
      ...ticks(x0, x1, axis === "seconds" ? 0 : 1).map((x) => write(Math.min(X(x), width - 3.6 * number(x).length), BOTTOM + 15, number(x), "middle")),
      write((LEFT + width - RIGHT) / 2, BOTTOM + 31, axis, "middle"),
      write(-(TOP + BOTTOM) / 2, 10, metric.length > TITLE ? `${metric.slice(0, TITLE / 2 - 1)}…${metric.slice(-TITLE / 2)}` : metric, "middle", { transform: "rotate(-90)" }),
      ...begun(width, [
        ...attempts.map(({ attempt, points: [[x]] }) => ["attempt", x, attempt]),
        ...marks.filter(([x], i) => x >= x0 && i % every === 0).map(([x, y]) => ["epoch", x, y]),
      ]),
      ...lines.flatMap(band),
      ...lines.flatMap(curves),
      pointer,
    );
    plot.ariaLabel = `${metric}: ${words(width).join(", ")}`;
    plot.ariaValueMin = x0;
    plot.ariaValueMax = x1;
    show();
  }

  // The chart as it is seen, or the points of all metrics.
  async function keep(kind) {
    if (kind === "CSV") {
      const points = Object.values(run.series).filter((line) => line.metric !== EPOCH).flatMap((line) =>
        line.points.map(([x, y, low = y, high = y]) => [run.name([line.index]), line.attempt, line.metric, run.axis(line.index, line.metric) ?? "step", x, y, low, high].map((one) => (one === null ? null : String(one)))));
      return save("metrics.csv", csv([["line", "attempt", "metric", "axis", "x", "value", "low", "high"], ...points]));
    }
    const picture = pictured(svg, [...new Set(lines.map((line) => line.index))].map((index) => [index, run.name([index])]));
    save(`${metric}.${kind.toLowerCase()}`, kind === "SVG" ? picture.text : await rasterized(picture));
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

  // Between the lowest and the highest of several workers' values.
  function band({ index, points }) {
    const wide = points.filter(([, , low, high]) => low !== high && raised(low) !== null);
    if (!wide.length) return [];
    const edge = (at) => wide.map((point) => `${X(point[0]).toFixed(1)} ${Y(raised(point[at])).toFixed(1)}`);
    const d = `M${[...edge(2), ...edge(3).reverse()].join("L")}Z`;
    return [h("path", { d, style: `fill: ${colour(index)}; stroke: none`, opacity: 0.2 })];
  }

  function curves({ index, attempt, metric, points }) {
    const aside = attempt < lines.at(-1).attempt || (run.dims && run.task >= 0 && index !== run.task);
    const weight = +smooth.value, strength = aside ? 0.35 : 1;
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
      const [x, y, low, high] = points.reduce((best, point) => (away(point) <= away(best) ? point : best));
      const spread = low !== high ? ` (${short(low)} to ${short(high)})` : "";
      const value = `${attempt > 1 ? ` · attempt ${attempt}` : ""} · ${axis} ${x}: ${several ? `${metric} ` : ""}${short(y)}${spread}`;
      found.set(value, [...(found.get(value) ?? []), index]);
    }
    const told = [...found].map(([value, tasks]) => run.name(tasks) + value), more = told.length - MOST_TOLD;
    return more > 0 ? [...told.slice(more), `… and ${more} more`] : told;
  }

  const clamped = (at) => Math.max(0, Math.min(at, xs.length - 1));

  // Tell the values below the mouse, or where the keys have moved the cursor: at first, at the end.
  function show() {
    const x = xs[clamped(cursor)], at = hovered ?? X(x);
    set(tip, words(at).join("\n"));
    tip.style.left = "0"; // its width is measured where it has all the room
    tip.style.left = `${Math.max(0, Math.min(at + 12, plot.clientWidth - tip.offsetWidth))}px`;
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

// Keys typed in an element are not for the notebook, where "d d" deletes a cell; saving the notebook
// and running a cell still work. Returns what ends it.
function keepKeys(el, elsewhere) {
  function keys({ target, ctrlKey, metaKey, altKey, shiftKey, key }) {
    const theirs = ctrlKey || metaKey || altKey || (shiftKey && key === "Enter");
    if (!theirs && !el.contains(target)) elsewhere?.();
    // Jupyter's listener runs before ours and looks at this attribute.
    el.toggleAttribute("data-lm-suppress-shortcuts", !theirs);
    el.onkeydown = (event) => theirs || event.stopPropagation();
  }
  window.addEventListener("keydown", keys, true);
  return () => window.removeEventListener("keydown", keys, true);
}
