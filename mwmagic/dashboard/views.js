// Views of what an output holds, without a kernel. It follows `chart.js`, `runs.js` and `sweep.js` in
// one function; `LOOKS` is its style sheet.

const VIEWS = { table: (facts) => newTable(facts).nodes, comparison: newComparison, sweep: (facts) => newSweep(facts).nodes };

for (const el of document.querySelectorAll(".mwmagic-view:not(.mwmagic-done)")) {
  const [plain, facts] = el.children, kind = facts.className.replace("mwmagic-", "");
  el.classList.add("mwmagic-done");
  const view = h("section", { className: "mw" }, h("style", {}, LOOKS), ...VIEWS[kind](JSON.parse(facts.textContent)));
  keepKeys(view);
  el.prepend(view);
  plain.hidden = true;
}
