// A page that follows runs: events bring new facts, texts are asked for one by one.
const token = () => new URLSearchParams(location.search).get("token") || "";
const address = (path, more) => `${path}?${new URLSearchParams({ token: token(), ...more })}`;
const run = () => new URLSearchParams(location.search).get("run");

const asked = () => Object.fromEntries(["run", "suite"].map((name) => [name, new URLSearchParams(location.search).get(name)]).filter(([, value]) => value !== null));

async function beginLive() {
  if (run() !== null) beginOne();
  else if ("suite" in asked()) beginSuite();
  else beginList();
}

function beginOne() {
  const cache = new Map();
  const textsOf = async (id) => {
    const trial = state.byId.get(id), name = `${id} ${trial.status} ${Boolean(trial.again)} ${Boolean(trial.profile)}`;
    if (!cache.has(name)) { const answer = await fetch(address("texts", { run: run(), trial: id })); if (!answer.ok) throw new Error(await answer.text()); cache.set(name, await answer.json()); }
    return cache.get(name);
  };
  let state = null;
  const stop = stopButton();
  const up = el("span"), draw = () => {
    if (!state) return;
    drawRun(state); stop.hidden = state.facts.state !== "running";
    if (state.facts.suite !== null) { stop.dataset.what = "stop the suite"; if (stop.dataset.sure !== "yes") stop.textContent = "stop the suite"; up.replaceChildren(el("a", { class: "ghost", href: address("", { suite: state.facts.suite }) }, "its suite")); }
  };
  byId("act").replaceChildren(el("a", { class: "ghost", href: address("", {}) }, "all runs"), up, stop);
  const first = (facts) => { state = stateOf(facts, textsOf); draw(); keys(state); if (location.hash) state.choose(location.hash.slice(1)); };
  const again = (facts) => {
    const active = document.activeElement, focus = active && active.dataset ? active.dataset.id : null;
    const before = state.open && JSON.stringify(state.byId.get(state.open));
    state.take(facts); typing(draw);
    if (focus) state.nodeOf(focus)?.focus({ preventScroll: true });
    if (state.open && JSON.stringify(state.byId.get(state.open)) !== before) state.choose(state.open, true);
  };
  addEventListener("themed", draw);
  follow("facts", { run: run() }, (facts) => (state ? again : first)(facts));
}
// Draws what came last, and then rests: long for what takes long to draw.
function follow(name, query, draw) {
  const events = new EventSource(address("events", query)), root = document.documentElement;
  let next = null, due = 0, drawn = false;
  events.addEventListener(name, (event) => { next = JSON.parse(event.data); if (!due) due = setTimeout(take, 0); });
  function take() {
    const began = performance.now(), value = next;
    next = null;
    if (value) { draw(value); drawn = true; root.dataset.updates = String(Number(root.dataset.updates || 0) + 1); }
    due = value ? setTimeout(take, Math.max(800, 4 * (performance.now() - began))) : 0;
  }
  events.addEventListener("fault", (event) => { tell(JSON.parse(event.data)); if (!drawn) byId("main").replaceChildren(el("p", { class: "loading" }, JSON.parse(event.data))); });
  lost(events);
}
// Keeps the box that is typed in, and what is written there, over a page drawn anew.
function typing(draw) {
  const box = document.activeElement, was = box && box.type === "search" ? [box.selectionStart, box.selectionEnd] : null;
  draw();
  const now = was && document.querySelector("input[type=search]");
  if (now) { now.focus({ preventScroll: true }); now.setSelectionRange(...was); }
}
function beginSuite() {
  const stop = stopButton(), picked = pickedNow();
  let suite = null;
  byId("act").replaceChildren(el("a", { class: "ghost", href: address("", {}) }, "all runs"), stop);
  const draw = () => { if (suite) { typing(() => drawSuite(suite, (row) => row.run && address("", { run: row.run }), picked)); stop.hidden = suite.state !== "running"; } };
  addEventListener("themed", draw);
  searchKey();
  follow("suite", asked(), (next) => { suite = next; draw(); });
}
// Says so where the server is gone; the browser asks again by itself.
function lost(events) {
  const bar = el("p", { class: "lost", role: "status", hidden: true }, "The server of this page is gone; the page goes on by itself when it is back.");
  document.body.prepend(bar);
  events.onerror = () => { bar.hidden = false; };
  events.onopen = () => { bar.hidden = true; };
}
// It stands apart from what is drawn anew, so that no update takes it from under a finger.
function stopButton() {
  const button = el("button", { class: "ghost danger", type: "button", id: "stop", hidden: true, onclick: async () => {
    if (button.dataset.sure !== "yes") { button.dataset.sure = "yes"; button.textContent = "stop: sure?"; setTimeout(() => { button.dataset.sure = ""; button.textContent = button.dataset.what || "stop"; }, 4000); return; }
    const answer = await fetch(address("stop", asked()), { method: "POST", headers: { "X-Token": token() } }), said = await answer.text();
    button.textContent = answer.ok ? "stopping" : "cannot stop"; button.title = said; tell(said);
  } }, "stop");
  return button;
}
// One card of the list: what it is, how far it is, and what it has come to.
function listed(kind, id, one, title, words, bars, figures, more) {
  const state = el("span", { class: "badge small" }, el("span", { class: `dot ${one.state}`, style: { "border-radius": "50%" } }), one.fault || words);
  return el("article", { class: "card run", [`data-${kind}`]: id }, el("div", { class: "what" }, el("a", { href: address("", { [kind]: id }) }, title), id !== title && id !== "." && el("div", { class: "faint small" }, id)), el("div", { class: "far" }, state, bars.length > 0 && el("div", { class: "bars small" }, bars)), el("div", { class: "num came" }, figures), more);
}
const bestOf = (one) => (one.headline ? [el("b", null, one.headline.sure === "none" ? "1.00\u00d7" : fmt.times(one.headline.speedup)), el("span", { class: "ends" }, one.headline.sure === "none" ? "" : fmt.interval(one.headline.speedup_interval))] : dash);
function listedRun(one) {
  const { progress } = one, going = one.state !== "finished";
  return listed("run", one.run, one, one.name || one.run, progress ? `${one.state}, ${fmt.many(progress.judged, "verdict")}` : one.state, progress && going ? [roundBar(progress), ...budgetBars(one.spent)] : [], bestOf(one));
}
function listedSuite(one) {
  if (one.fault) return listed("suite", one.suite, one, one.suite, "", [], dash);
  const { progress, sums } = one, words = `${one.state}, ${fmt.count(progress.ended)} of ${fmt.many(progress.problems, "problem")} played`;
  const bars = one.state === "finished" ? [] : [budgetBar("problems played", progress.share, progress.left_s ? `~${fmt.about(progress.left_s)} left` : fmt.percent(progress.share), false), ...budgetBars(one.spent)];
  const under = one.runs.map((run) => el("li", null, el("a", { href: address("", { run: run.run }) }, run.run.split("/problems/").at(-1).replace(/^problems\//, "")), el("div", { class: "bars small" }, run.fault ? el("span", null, run.fault) : run.progress && [roundBar(run.progress), ...budgetBars(run.spent)]), el("span", { class: "num" }, bestOf(run))));
  return listed("suite", one.suite, one, one.name, words, bars, [el("b", null, fmt.times(sums.eager.over_all)), el("span", { class: "ends" }, `mean, ${fmt.count(sums.correct)} right`)], under.length > 0 && el("ul", { class: "under", "aria-label": "Runs under way" }, under));
}
function beginList() {
  let last = { suites: [], runs: [] };
  const draw = () => {
    const { suites, runs } = last, part = (title, cards) => cards.length > 0 && el("section", { class: "runs", "aria-label": title }, suites.length > 0 && el("h2", null, title), cards);
    byId("top").replaceChildren(el("h1", null, suites.length ? "Suites and runs" : "Runs"), el("span", { class: "chip" }, fmt.count(suites.length + runs.length)), el("span", { class: "grow" }), themeButton());
    byId("main").replaceChildren(...[part("Suites", suites.map(listedSuite)), part(suites.length ? "Runs beside them" : "Runs", runs.map(listedRun)), !suites.length && !runs.length && el("p", { class: "soft" }, "There is no run here yet; one that begins shows by itself.")].filter(Boolean));
  };
  addEventListener("themed", draw);
  follow("list", {}, (next) => { last = next; draw(); });
}
