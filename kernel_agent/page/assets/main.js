// A run's page: its state, its sections, and what keeps them in step.
function stateOf(facts, textsOf) {
  const state = { facts, textsOf, byId: new Map(), ideas: new Map(), open: null, view: null, hidden: new Set(), words: "", way: "trials", undo: [], drawn: new Set(), pending: new Map(), table: null };
  state.take = (next) => {
    state.facts = next;
    state.byId = new Map(next.trials.map((one) => [one.id, one]));
    state.ideas = new Map(next.ideas.map((one) => [one.id, one]));
  };
  state.take(facts);
  state.fits = (trial) => !state.hidden.has(outcome(trial)) && (!state.words || `${trial.title} ${trial.id} ${trial.kind} ${STATUS[outcome(trial)]}`.toLowerCase().includes(state.words));
  state.choose = (id, kept) => {
    const before = state.open;
    state.open = state.byId.has(id) ? id : null;
    history.replaceState(null, "", state.open ? `#${state.open}` : location.pathname + location.search);
    if (state.open) state.nodeOf(state.open);
    for (const node of document.querySelectorAll(".tree .node")) node.classList.toggle("open", node.dataset.id === state.open);
    if (state.open) openDetail(state, state.open).then(() => { if (!kept) byId("detail").querySelector("[aria-label=close]").focus({ preventScroll: true }); }).catch((fault) => tell(fault.message));
    else { byId("detail").hidden = true; const node = before && document.querySelector(`.tree [data-id="${CSS.escape(before)}"]`); if (node) node.focus({ preventScroll: true }); }
  };
  state.filter = () => { state.dim(); if (state.table) state.table.set(state.facts.trials.filter(state.fits)); for (const one of document.querySelectorAll(".pick")) one.setAttribute("aria-pressed", String(!state.hidden.has(one.dataset.kind))); };
  state.only = (kind) => { state.hidden = new Set(Object.keys(STATUS).filter((one) => one !== kind && one !== "original")); state.filter(); state.pending.get("trials")?.(); byId("trials").scrollIntoView(); };
  return state;
}
function picks(state) {
  const counts = new Map();
  for (const trial of state.facts.trials) counts.set(outcome(trial), (counts.get(outcome(trial)) || 0) + 1);
  const buttons = Object.keys(STATUS).filter((kind) => kind !== "original" && counts.get(kind)).map((kind) => el("button", { class: `pick ${PASSED.has(kind) || kind === "waiting" ? "round" : ""}`, type: "button", "data-kind": kind, "aria-pressed": String(!state.hidden.has(kind)), onclick: () => { if (state.hidden.has(kind)) state.hidden.delete(kind); else state.hidden.add(kind); state.filter(); } }, el("span", { class: `dot f-${kind}` }), STATUS[kind], el("span", { class: "faint num" }, counts.get(kind))));
  const search = el("input", { type: "search", placeholder: "find a trial ( / )", "aria-label": "find a trial", value: state.words, oninput: () => { state.words = search.value.toLowerCase(); state.filter(); } });
  const all = el("button", { class: "ghost", type: "button", onclick: () => { state.hidden.clear(); state.words = ""; search.value = ""; state.filter(); } }, "all");
  return el("div", { class: "tools", role: "group", "aria-label": "Filters" }, buttons, buttons.length > 1 && all, search);
}
function sheetCard(facts) {
  const rows = facts.sheet.map((one) => el("li", null, el("span", { class: `mark ${one.holds === true ? "yes" : one.holds === false ? "no" : ""}`, "aria-label": one.holds === true ? "verified" : one.holds === false ? "not verified" : "note" }, one.holds === true ? "\u2713" : one.holds === false ? "\u2013" : "i"), el("span", null, one.text)));
  const tried = facts.tried_alone.map((one) => el("tr", null, el("td", null, one.name.replaceAll("_", " ")), el("td", null, one.ok === true ? "yes" : one.ok === false ? "no" : "not tried"), el("td", { class: "soft" }, one.why)));
  const judge = Object.entries(facts.headline.facts).map(([name, value]) => el("tr", null, el("td", null, name), el("td", { class: "soft" }, value)));
  return card("Verified, and not verified", { kind: "half" }, rows.length ? el("ul", { class: "sheet" }, rows) : el("p", { class: "soft" }, "There is no confirmed kernel, so there is nothing to verify."),
    tried.length > 0 && el("details", { style: { "margin-top": "12px" } }, el("summary", null, "The file by itself"), el("table", null, el("tbody", null, tried))), judge.length > 0 && el("details", null, el("summary", null, "The judge's facts"), el("table", null, el("tbody", null, judge))));
}
function commandRows(commands) {
  return commands.map((one) => { const button = el("button", { class: "ghost", type: "button", onclick: () => copy(one.command, button) }, "copy"); return el("div", { class: "command" }, el("span", null, one.what), el("code", { tabindex: "0" }, one.command), button); });
}
function repeatCard(facts) {
  return card("To repeat it", { kind: "half" }, commandRows(facts.commands), el("h3", { style: { margin: "14px 0 6px" } }, "How it was measured"), el("ul", { class: "notes" }, facts.measured.map((row) => el("li", null, row)), facts.device.features.length > 0 && el("li", null, facts.device.features.join("; "))));
}
function drawRun(state) {
  for (const one of state.undo.splice(0)) one();
  const { facts } = state, tree = el("div", { class: "tree" }), curve = el("div", { class: "plot" }), roof = el("div", { class: "plot" }), spread = el("div", { class: "spread" }), table = el("div", { class: "wide trials" });
  const ways = waysOf([facts]), wayTabs = el("span");
  if (!ways.includes(state.way)) state.way = "trials";
  const deep = Math.max(0, ...facts.trials.map((one) => one.round)), swept = facts.trials.filter((one) => one.kind === "swept").length;
  header(facts);
  byId("main").replaceChildren(...[
    facts.state !== "finished" && progressCard(facts), hero(facts),
    card("The search", { note: `${fmt.many(facts.ideas.length, "idea")}, ${fmt.many(facts.trials.length - 1, "trial")} in ${fmt.many(deep, "round")}. Height is speed by the first judgement, lines lead from parent to child, the bold line to the best${swept ? "; small points are swept variants" : ""}. A click opens a trial.`, id: "search" }, picks(state), tree),
    card("The best, with their intervals", { kind: "two", note: "Speed-up over eager PyTorch; the grey band is a tie, a ring is the second judgement." }, forest(state)), card("Tolerance", { kind: "third", note: "How far each kernel is off from float64, on secret inputs." }, spread),
    card("Speed over the run", { kind: "half", tools: wayTabs }, curve), card("Roofline", { kind: "half" }, roof),
    card("Where the time went", { kind: "half", note: "Added up over what went on at the same time." }, stageBars(facts)), card("What failed", { kind: "half" }, failureBars(state)),
    card("All trials", { kind: "long", id: "trials" }, table), sheetCard(facts), repeatCard(facts), el("footer", null, `${facts.made_by} \u00b7 ${facts.directory}`),
  ].filter(Boolean));
  drawTree(state, tree);
  const drawErrors = () => spread.replaceChildren(errors(state, spread));
  later(state, "errors", spread, drawErrors);
  later(state, "curve", curve, () => {
    let end = () => {};
    const draw = (way) => { state.way = way; end(); wayTabs.replaceChildren(tabs("over", ways, way, draw)); end = progressPlot(state, curve, way); };
    draw(state.way);
    state.undo.push(() => end());
  });
  later(state, "roof", roof, () => state.undo.push(roofline(state, roof)));
  state.table = null;
  later(state, "trials", table, () => { state.table = trialTable(state); table.replaceChildren(state.table.box); });
  let wide = innerWidth;
  const resized = () => { if (innerWidth !== wide) { wide = innerWidth; drawTree(state, tree); if (state.drawn.has("errors")) drawErrors(); } };
  addEventListener("resize", resized);
  state.undo.push(() => removeEventListener("resize", resized));
}
function keys(state) {
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = /^(INPUT|TEXTAREA)$/.test(document.activeElement.tagName);
    if (event.key === "Escape" && state.open) state.choose(null);
    else if (event.key === "Escape" && typing) document.activeElement.blur();
    else if (event.key === "/" && !typing) { event.preventDefault(); document.querySelector("input[type=search]")?.focus(); }
    else if ((event.key === "j" || event.key === "k") && !typing && state.open) { const order = state.facts.trials.map((one) => one.id), next = order[order.indexOf(state.open) + (event.key === "j" ? 1 : -1)]; if (next) state.choose(next); }
  });
  addEventListener("hashchange", () => state.choose(location.hash.slice(1) || null));
}
async function begin() {
  const dark = matchMedia("(prefers-color-scheme: dark)"), root = document.documentElement;
  root.dataset.theme = dark.matches ? "dark" : "light";
  dark.addEventListener("change", () => { root.dataset.theme = dark.matches ? "dark" : "light"; dispatchEvent(new Event("themed")); });
  // Paper is light.
  let before = null;
  addEventListener("beforeprint", () => { before = root.dataset.theme; if (before === "dark") { root.dataset.theme = "light"; dispatchEvent(new Event("themed")); } });
  addEventListener("afterprint", () => { if (before === "dark") { root.dataset.theme = before; dispatchEvent(new Event("themed")); } before = null; });
  const mode = root.dataset.mode;
  try {
    if (mode === "live") await beginLive();
    else if (mode === "compare") beginCompare(await unpacked("facts"));
    else if (mode === "suites") beginSuites(await unpacked("facts"));
    else {
      let texts = null;
      const facts = await unpacked("facts"), state = stateOf(facts, async () => (texts ??= await unpacked("texts")));
      drawRun(state); keys(state);
      addEventListener("themed", () => drawRun(state));
      if (location.hash) state.choose(location.hash.slice(1));
    }
    await new Promise((painted) => { requestAnimationFrame(() => setTimeout(painted)); });
    root.dataset.took = String(Math.round(performance.now()));  // since the page was asked for
    root.dataset.drawn = "yes";
  } catch (fault) { byId("main").replaceChildren(el("p", { class: "loading" }, fault.message)); throw fault; }
}
begin();
