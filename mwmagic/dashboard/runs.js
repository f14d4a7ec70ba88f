// The table of recorded runs, and the comparison of some. It follows `chart.js`.

// Numbers before texts, and what lacks a value last in either direction.
function order(a, b, sign) {
  if (a === null || b === null) return (a === null) - (b === null);
  if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
  return sign * (typeof a === "number" ? a - b : a.localeCompare(b));
}

// A metric's course as a line as high as a word.
function spark(values) {
  const [low, high] = range(values), y = (value) => 16 - (14 * (value - low)) / (high - low || 1);
  const x = (i) => 2 + (86 * i) / Math.max(values.length - 1, 1);
  const d = values.map((value, i) => `${i ? "L" : "M"}${x(i).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  const svg = h("svg.spark", { viewBox: "0 0 90 18", "aria-hidden": true }, stroke(0, d));
  return values.length ? svg : "";
}

// A table that sorts, filters and chooses its columns. With `choose` each row is chosen by its
// `trials`, and only the first `most` rows are drawn until the reader wants all.
function newTable(facts, { label = "Runs", most = Infinity, choose } = {}) {
  let columns = [], chosen = [], headers = [], by = null, sign = 1, whole = false, picked = null, seen = 0;
  const find = h("input", { type: "search", placeholder: "Filter", ariaLabel: `Filter the ${label.toLowerCase()}`, oninput: draw });
  const told = h("output.dim"), rows = h("tbody"), head = h("tr"), boxes = h(".chosen"), lines = h("");
  const all = button("", () => draw((whole = !whole)));
  const numeric = ({ name, keys }) => name !== "began" && keys.some((key) => typeof key === "number");
  const pane = h(".runs", { tabIndex: 0, role: "region", ariaLabel: label, onscroll: () => (seen = pane.scrollTop) }, h("table", {}, h("thead", {}, head), rows));
  const more = h("details", {}, h("summary", {}, "Columns"), boxes);

  // Other columns take over what the reader chose of those with their names.
  function deal() {
    const known = Object.fromEntries(columns.map(({ name, shown }, i) => [name, chosen[i] === shown ? undefined : chosen[i]]));
    const sorted = columns[by]?.name;
    columns = facts.columns;
    chosen = columns.map(({ name, shown }) => known[name] ?? shown);
    by = sorted === undefined ? null : columns.findIndex(({ name }) => name === sorted);
    boxes.replaceChildren(...columns.map(({ name }, i) => {
      const box = h("input", { type: "checkbox", checked: chosen[i], onchange: () => draw((chosen[i] = box.checked)) });
      return h("label", {}, box, name);
    }));
    headers = columns.map((column, i) => {
      const { name, curves } = column;
      const inner = curves ? h("span.sort", {}, name) : h("button.sort", { type: "button", onclick: () => sort(i) }, name);
      return h(i && numeric(column) ? "th.number" : "th", { scope: "col" }, inner);
    });
  }

  function update(next) {
    const shape = (some) => JSON.stringify(some.map(({ name, shown }) => [name, shown]));
    facts = next;
    if (shape(columns) === shape(facts.columns)) columns = facts.columns;
    else deal();
    lines.hidden = !facts.notes.length;
    lines.replaceChildren(...facts.notes.map((note) => h(".words", {}, note)));
    draw();
  }

  // The smallest first, then the largest, then as the table was.
  function sort(i) {
    if (by !== i) [by, sign] = [i, 1];
    else if (sign > 0) sign = -1;
    else by = null;
    draw();
  }

  function cell(column, row, i) {
    const { texts, curves, best } = column, text = texts[row];
    if (curves) return h("td", { title: text }, spark(curves[row]));
    const node = h(i ? "td" : "th", { title: text.length > 30 ? text : "" }, i || !choose ? text : chooser(row, text));
    if (!i) Object.assign(node, { scope: "row" }).dataset.tone = facts.tones[row];
    else if (numeric(column)) node.classList.add("mw-number");
    if (row === best) node.classList.add("mw-best");
    return node;
  }

  function chooser(row, text) {
    const one = h("button.name", { type: "button", ariaPressed: facts.trials[row] === picked }, text), look = facts.looks[row];
    if (look !== null) one.append(" ", swatch(look));
    return one;
  }

  function line(row, shown) {
    const node = h("tr", { row }, ...shown.map(([column, i]) => cell(column, row, i)));
    if (choose) node.onclick = () => choose(facts.trials[row]);
    if (choose) node.dataset.trial = facts.trials[row];
    if (choose && facts.trials[row] === picked) node.classList.add("mw-picked");
    return node;
  }

  function draw() {
    const words = find.value.toLowerCase().split(/\s+/).filter(Boolean), count = facts.tones.length;
    const shown = columns.map((column, i) => [column, i]).filter(([, i]) => chosen[i]);
    const text = (row) => shown.map(([{ name, texts }]) => `${texts[row]} ${name}=${texts[row]}`).join(" ").toLowerCase();
    const left = Array.from({ length: count }, (_, row) => row).filter((row) => words.every((word) => text(row).includes(word)));
    if (by !== null) left.sort((a, b) => order(columns[by].keys[a], columns[by].keys[b], sign));
    headers.forEach((node, i) => (node.ariaSort = by !== i ? "none" : sign > 0 ? "ascending" : "descending"));
    const focused = document.activeElement, trial = rows.contains(focused) && focused.closest("tr").dataset.trial;
    head.replaceChildren(...shown.map(([, i]) => headers[i]));
    if (head.contains(focused)) focused.focus();
    rows.replaceChildren(...left.slice(0, whole ? count : most).map((row) => line(row, shown)));
    if (trial) rows.querySelector(`[data-trial="${trial}"] button`)?.focus({ preventScroll: true });
    all.hidden = left.length <= most;
    set(all, whole ? `Show the first ${most}` : `Show all ${left.length}`);
    set(told, words.length ? `${left.length} of ${count}` : "");
  }

  const pick = (trial) => draw((picked = trial));
  const arrange = () => (pane.scrollTop = seen);
  update(facts);
  return { nodes: [h(".tools", {}, find, told, h("span.gap"), all, more), pane, lines], update, pick, arrange };
}

// The curves of several runs in charts, by what the reader chooses, without those of `run.hidden`.
function newOverlay(run) {
  const by = h("select", { ariaLabel: "What the charts count", onchange: redraw }), plots = h(".charts");
  let curves = [], charts = [];
  run.axis = () => by.value;

  // A point is [step, epoch, seconds, value] and, if workers differ, their lowest and highest.
  function update({ axes, metrics, curves: found }) {
    curves = found;
    if (curves.length) offer(by, axes, axes.includes(by.value) ? by.value : axes[0]);
    if (!charts.length && curves.length) {
      const shown = metrics.length ? metrics : [...new Set(curves.map(([, metric]) => metric))];
      charts = shown.slice(0, 2).map((metric, i) => newChart(run, metric, ["first", "second"][i]));
      plots.append(...charts.map(({ el }) => el));
    }
    redraw();
  }

  function redraw() {
    const at = { step: 0, epoch: 1, seconds: 2 }[by.value];
    run.series = curves.filter(([index]) => !run.hidden?.has(index)).map(([index, metric, points]) => ({
      index, metric, attempt: 1, points: points.map((point) => [point[at], ...point.slice(3)]),
    }));
    for (const chart of charts) chart.draw();
  }

  new ResizeObserver(redraw).observe(plots);
  return { by: h("label.dim", {}, "by", by), plots, update, redraw };
}

// Runs side by side: charts with a line for each, and tables in which differences come first.
function newComparison({ title, runs, tables, alike, code, ...found }) {
  const run = { task: -1, header: { over: true }, hidden: new Set() };
  run.name = (indices) => indices.map((i) => runs[i]).join(", ");
  const overlay = newOverlay(run);
  const keys = runs.map((name, i) => {
    const one = button("", () => toggle(i), `Show or hide ${name}`);
    one.append(swatch(i), ` ${name}`);
    one.classList.add("mw-key");
    one.ariaPressed = true;
    return one;
  });

  function toggle(i) {
    if (!run.hidden.delete(i)) run.hidden.add(i);
    keys[i].ariaPressed = !run.hidden.has(i);
    overlay.redraw();
  }

  const row = (kind) => (texts) => h("tr", {}, ...texts.map((text, i) => h(i ? kind : "th", { scope: i ? "col" : "row" }, text)));
  const sections = tables.map(([name, rows]) => h("tbody", {},
    h("tr", {}, h("th.section", { colSpan: runs.length + 1, scope: "colgroup" }, name)), ...rows.map(row("td"))));
  const table = h("table", {}, h("thead", {}, row("th")(["", ...runs])), ...sections);
  const drawn = found.curves.length ? [h(".tools", {}, ...keys, h("span.gap"), overlay.by), overlay.plots] : [];
  const changed = code.map((line) => h("span.code", { className: { "-": "mw-less", "+": "mw-more" }[line[0]] ?? "" }, `${line}\n`));
  overlay.update(found);
  return [
    h(".words", {}, h("strong", {}, title)),
    ...drawn,
    h(".runs", { tabIndex: 0, role: "region", ariaLabel: "Parameters and results" }, table),
    ...(alike ? [h(".words.dim", {}, `the same in all: ${alike}`)] : []),
    ...(code.length ? [h("pre.diff", { tabIndex: 0, ariaLabel: "How the code differs" }, ...changed)] : []),
  ];
}
