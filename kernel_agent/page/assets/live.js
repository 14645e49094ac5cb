// A page that follows runs: events bring new facts, texts are asked for one by one.
const token = () => new URLSearchParams(location.search).get("token") || "";
const address = (path, more) => `${path}?${new URLSearchParams({ token: token(), ...more })}`;
const run = () => new URLSearchParams(location.search).get("run");

async function beginLive() { if (run() === null) await beginList(); else await beginOne(); }

async function beginOne() {
  const cache = new Map(), root = document.documentElement;
  const textsOf = async (id) => {
    const trial = state.byId.get(id), name = `${id} ${trial.status} ${Boolean(trial.again)} ${Boolean(trial.profile)}`;
    if (!cache.has(name)) { const answer = await fetch(address("texts", { run: run(), trial: id })); if (!answer.ok) throw new Error(await answer.text()); cache.set(name, await answer.json()); }
    return cache.get(name);
  };
  let state = null, next = null, due = 0;
  const stop = stopButton();
  byId("act").replaceChildren(el("a", { class: "ghost", href: address("", {}) }, "all runs"), stop);
  const draw = () => { if (state) { drawRun(state); stop.hidden = state.facts.state !== "running"; } };
  const first = (facts) => { state = stateOf(facts, textsOf); draw(); keys(state); if (location.hash) state.choose(location.hash.slice(1)); };
  const again = (facts) => {
    const active = document.activeElement, typed = active && active.type === "search", focus = active && active.dataset ? active.dataset.id : null;
    const before = state.open && JSON.stringify(state.byId.get(state.open));
    state.take(facts); draw();
    if (typed) document.querySelector("input[type=search]").focus();
    else if (focus) document.querySelector(`.tree [data-id="${CSS.escape(focus)}"]`)?.focus({ preventScroll: true });
    if (state.open && JSON.stringify(state.byId.get(state.open)) !== before) state.choose(state.open, true);
  };
  addEventListener("themed", draw);
  const events = new EventSource(address("events", { run: run() }));
  events.addEventListener("facts", (event) => {
    next = JSON.parse(event.data);
    if (!due) due = setTimeout(take, 0);
  });
  // Draws what came last, and then rests: long for a run that takes long to draw.
  function take() {
    const began = performance.now(), facts = next;
    next = null;
    if (facts) { (state ? again : first)(facts); root.dataset.updates = String(Number(root.dataset.updates || 0) + 1); }
    due = facts ? setTimeout(take, Math.max(800, 4 * (performance.now() - began))) : 0;
  }
  events.addEventListener("fault", (event) => { tell(JSON.parse(event.data)); if (!state) byId("main").replaceChildren(el("p", { class: "loading" }, JSON.parse(event.data))); });
  lost(events);
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
    if (button.dataset.sure !== "yes") { button.dataset.sure = "yes"; button.textContent = "stop: sure?"; setTimeout(() => { button.dataset.sure = ""; button.textContent = "stop"; }, 4000); return; }
    const answer = await fetch(address("stop", { run: run() }), { method: "POST", headers: { "X-Token": token() } }), said = await answer.text();
    button.textContent = answer.ok ? "stopping" : "cannot stop"; button.title = said; tell(said);
  } }, "stop");
  return button;
}
async function beginList() {
  const draw = (runs) => {
    byId("top").replaceChildren(el("h1", null, "Runs"), el("span", { class: "chip" }, fmt.count(runs.length)), el("span", { class: "grow" }), themeButton());
    const rows = runs.map((one) => el("article", { class: "card run", "data-run": one.run }, el("div", null, el("a", { href: address("", { run: one.run }) }, one.name || one.run), el("div", { class: "faint small" }, one.run)),
      el("div", null, el("span", { class: "badge small" }, el("span", { class: `dot ${one.state}`, style: { "border-radius": "50%" } }), one.fault || `${one.state}${one.progress ? `, round ${one.progress.round} of ${one.progress.rounds}, ${fmt.many(one.progress.judged, "verdict")}` : ""}${one.progress && one.progress.left_s ? `, about ${fmt.s(one.progress.left_s)} left` : ""}`), one.progress && el("div", { class: "budget", style: { "margin-top": "6px" } }, el("i", { style: { width: `${one.progress.share * 100}%` } }))),
      el("div", { class: "num" }, one.headline ? el("b", null, one.headline.sure === "none" ? "1.00\u00d7" : fmt.times(one.headline.speedup)) : dash)));
    byId("main").replaceChildren(el("div", { class: "runs" }, rows.length ? rows : el("p", { class: "soft" }, "There is no run here yet; one that begins shows by itself.")));
    document.documentElement.dataset.updates = String(Number(document.documentElement.dataset.updates || 0) + 1);
  };
  const events = new EventSource(address("events", {}));
  let last = [];
  events.addEventListener("runs", (event) => { last = JSON.parse(event.data); draw(last); });
  lost(events);
  addEventListener("themed", () => draw(last));
}
