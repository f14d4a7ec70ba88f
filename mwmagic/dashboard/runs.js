// The table of recorded runs, and the comparison of some: views of what their output holds.
// It follows `chart.js` in one function; `LOOKS` is its style sheet.

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

function newTable({ columns, tones, notes }) {
  const count = tones.length, chosen = columns.map((column) => column.shown);
  let by = null, sign = 1;
  const find = h("input", { type: "search", placeholder: "Filter", ariaLabel: "Filter the runs", oninput: draw });
  const told = h("output.dim"), rows = h("tbody"), head = h("tr");
  const boxes = columns.map(({ name, shown }, i) => {
    const box = h("input", { type: "checkbox", checked: shown, onchange: () => draw((chosen[i] = box.checked)) });
    return h("label", {}, box, name);
  });
  const numeric = ({ name, keys }) => name !== "began" && keys.some((key) => typeof key === "number");
  const headers = columns.map((column, i) => {
    const { name, curves } = column;
    const inner = curves ? h("span.sort", {}, name) : h("button.sort", { type: "button", onclick: () => sort(i) }, name);
    return h(i && numeric(column) ? "th.number" : "th", { scope: "col" }, inner);
  });
  const pane = h(".runs", { tabIndex: 0, role: "region", ariaLabel: "Runs" }, h("table", {}, h("thead", {}, head), rows));
  const more = h("details", {}, h("summary", {}, "Columns"), h(".chosen", {}, ...boxes));

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
    const node = h(i ? "td" : "th", { title: text.length > 30 ? text : "" }, text);
    if (!i) Object.assign(node, { scope: "row" }).dataset.tone = tones[row];
    else if (numeric(column)) node.classList.add("mw-number");
    if (row === best) node.classList.add("mw-best");
    return node;
  }

  function draw() {
    const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    const shown = columns.map((column, i) => [column, i]).filter(([, i]) => chosen[i]);
    const text = (row) => shown.map(([{ name, texts }]) => `${texts[row]} ${name}=${texts[row]}`).join(" ").toLowerCase();
    const left = Array.from({ length: count }, (_, row) => row).filter((row) => words.every((word) => text(row).includes(word)));
    if (by !== null) left.sort((a, b) => order(columns[by].keys[a], columns[by].keys[b], sign));
    headers.forEach((node, i) => (node.ariaSort = by !== i ? "none" : sign > 0 ? "ascending" : "descending"));
    const focused = document.activeElement;
    head.replaceChildren(...shown.map(([, i]) => headers[i]));
    if (head.contains(focused)) focused.focus();
    rows.replaceChildren(...left.map((row) => h("tr", {}, ...shown.map(([column, i]) => cell(column, row, i)))));
    set(told, words.length ? `${left.length} of ${count}` : "");
  }

  draw();
  const lines = notes.map((note) => h(".words", {}, note));
  return [h(".tools", {}, find, told, h("span.gap"), more), pane, ...lines];
}

// Runs side by side: charts with a line for each, and tables in which differences come first.
function newComparison({ title, runs, tables, alike, code, metrics, axes, curves }) {
  const hidden = new Set(), run = { task: -1, header: { over: true } };
  run.axis = () => by.value;
  run.name = (indices) => indices.map((i) => runs[i]).join(", ");
  const by = h("select", { ariaLabel: "What the charts count", onchange: redraw }, ...axes.map((axis) => new Option(axis)));
  const shown = metrics.length ? metrics : [...new Set(curves.map(([, metric]) => metric))];
  const charts = shown.slice(0, 2).map((metric, i) => newChart(run, metric, ["first", "second"][i]));
  const keys = runs.map((name, i) => {
    const one = button("", () => toggle(i), `Show or hide ${name}`);
    one.append(swatch(i), ` ${name}`);
    one.classList.add("mw-key");
    one.ariaPressed = true;
    return one;
  });

  function toggle(i) {
    if (!hidden.delete(i)) hidden.add(i);
    keys[i].ariaPressed = !hidden.has(i);
    redraw();
  }

  // A point is [step, epoch, seconds, value] and, if workers differ, their lowest and highest.
  function redraw() {
    const at = { step: 0, epoch: 1, seconds: 2 }[by.value];
    run.series = curves.filter(([index]) => !hidden.has(index)).map(([index, metric, points]) => ({
      index, metric, attempt: 1, points: points.map((point) => [point[at], ...point.slice(3)]),
    }));
    for (const chart of charts) chart.draw();
  }

  const row = (kind) => (texts) => h("tr", {}, ...texts.map((text, i) => h(i ? kind : "th", { scope: i ? "col" : "row" }, text)));
  const sections = tables.map(([name, rows]) => h("tbody", {},
    h("tr", {}, h("th.section", { colSpan: runs.length + 1, scope: "colgroup" }, name)), ...rows.map(row("td"))));
  const table = h("table", {}, h("thead", {}, row("th")(["", ...runs])), ...sections);
  const drawn = curves.length ? [h(".tools", {}, ...keys, h("span.gap"), h("label.dim", {}, "by", by)), h(".charts", {}, ...charts.map(({ el }) => el))] : [];
  const changed = code.map((line) => h("span.code", { className: { "-": "mw-less", "+": "mw-more" }[line[0]] ?? "" }, `${line}\n`));
  new ResizeObserver(redraw).observe(drawn.at(-1) ?? table);
  return [
    h(".words", {}, h("strong", {}, title)),
    ...drawn,
    h(".runs", { tabIndex: 0, role: "region", ariaLabel: "Parameters and results" }, table),
    ...(alike ? [h(".words.dim", {}, `the same in all: ${alike}`)] : []),
    ...(code.length ? [h("pre.diff", { tabIndex: 0, ariaLabel: "How the code differs" }, ...changed)] : []),
  ];
}

const VIEWS = { table: newTable, comparison: newComparison };

for (const el of document.querySelectorAll(".mwmagic-view:not(.mwmagic-done)")) {
  const [plain, facts] = el.children, kind = facts.className.replace("mwmagic-", "");
  el.classList.add("mwmagic-done");
  const view = h("section", { className: "mw" }, h("style", {}, LOOKS), ...VIEWS[kind](JSON.parse(facts.textContent)));
  keepKeys(view);
  el.prepend(view);
  plain.hidden = true;
}
