// The trials of a sweep: a table, their curves in one chart, and the board of the chosen one.
// It follows `chart.js` and `runs.js`.

// How many trials are shown at first, the best of them.
const FIRST_TRIALS = 20;

// `act` asks the kernel for the board of a trial, or for none; a saved notebook has no kernel.
function newSweep(facts, act) {
  const run = { task: -1, header: { over: true }, dims: true };
  const title = h("strong"), gone = h("span.dim"), overlay = newOverlay(run);
  const name = h("strong"), body = h(".board");
  const chosen = h("section", { hidden: true, ariaLabel: "The chosen trial" },
    h(".tools", {}, name, h("span.gap"), button("Close", () => choose(null), "Close the trial's board")), body);
  const table = newTable(facts, { label: "Trials", most: FIRST_TRIALS, choose: (trial) => choose(trial === picked ? null : trial) });
  let picked = null, shown;

  run.name = (looks) => looks.map((look) => `trial ${facts.trials[facts.looks.indexOf(look)]}`).join(", ");

  function choose(trial) {
    pick(trial);
    act?.(trial);
  }

  function pick(trial) {
    if (picked !== trial) body.replaceChildren();
    picked = trial;
    shown = undefined;
    mark();
    table.pick(trial);
    overlay.redraw();
  }

  // What is chosen may move in the table, and its curve may come and go.
  function mark() {
    const row = facts.trials.indexOf(picked);
    run.task = row < 0 ? -1 : facts.looks[row] ?? -1;
    chosen.hidden = picked === null;
    const number = facts.runs[row];
    set(name, row < 0 ? `trial ${picked}` : `trial ${picked}${number ? `, run ${number}` : " was not launched yet"}`);
    if (!act && number && !shown) set(body, `%mw_show ${number} shows its board`);
  }

  function update(part) {
    facts = { ...facts, ...part };
    set(title, facts.title);
    mark();
    table.update(facts);
    overlay.update(facts);
  }

  // The board of a trial is HTML of the kernel's, in which everything is escaped.
  function open({ trial = null, html = "" }) {
    if (trial !== picked) pick(trial);
    if (html !== shown) body.innerHTML = shown = html;
  }

  function end() {
    set(gone, "kernel gone; as last seen");
    act = undefined;
    mark();
  }

  const [tools, pane, lines] = table.nodes;
  update({});
  return {
    nodes: [h(".tools", {}, title, gone, h("span.gap"), overlay.by), overlay.plots, tools, pane, lines, chosen],
    update, open, end, arrange: table.arrange,
  };
}

// The view of a sweep that is going: what its model has. `hosting.js` follows it in one module.
function newView(model) {
  const facts = () => ({ ...model.get("table"), ...model.get("curves") });
  const view = newSweep(facts(), (trial) => model.send({ kind: "choose", trial }));
  const el = h("section", { className: "mw", ariaLabel: "Sweep" }, ...view.nodes);
  const refocus = keepFocus(el), release = keepKeys(el);
  const update = () => view.update(facts()), open = () => view.open(model.get("detail"));
  const watched = [["change:table", update], ["change:curves", update], ["change:detail", open]];
  for (const [name, react] of watched) model.on(name, react);

  // Jupyter removes the view for a moment when it renders the output again.
  function arrange() {
    if (!el.clientHeight) return;
    view.arrange();
    el.closest(".jp-OutputArea")?.style.setProperty(`--${model.get("label")}`, `${el.offsetHeight}px`);
  }

  function remove() {
    for (const [name, react] of watched) model.off(name, react);
    release();
    el.remove();
  }

  open();
  new ResizeObserver(arrange).observe(el);
  return { el, hear() {}, end: view.end, arrange, refocus, remove };
}
