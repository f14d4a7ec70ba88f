// Puts the views of a widget into a notebook's outputs. It follows what has `newView`, in one module.

// An element that loses the focus because it is removed from the page gets it back, unless
// something else has it: the notebook would receive the keys, and they could delete a cell.
// Returns what gives it back.
function keepFocus(el) {
  let focused;
  function leave() {
    if (el.isConnected && !el.contains(document.activeElement)) focused = null;
  }
  el.addEventListener("focusin", ({ target }) => (focused = target));
  el.addEventListener("focusout", () => setTimeout(leave));
  return () => {
    if (document.activeElement === document.body) focused?.focus({ preventScroll: true });
  };
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
