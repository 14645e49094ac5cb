// Several runs: a table that sorts and filters, and their curves over one another.
const PAINTS = ["accent", "build_error", "timeout", "waiting", "wrong", "gold", "run_error", "level", "suspect", "ink"];
function rowOf(facts) {
  const head = facts.headline, best = rivals(facts)[0], failed = facts.trials.filter((one) => !PASSED.has(outcome(one)) && outcome(one) !== "waiting").length;
  return { facts, name: facts.name, where: facts.directory, target: facts.target, device: facts.device.name, state: facts.state, by: facts.models.length ? facts.models.join(", ") : facts.provider, sure: head.sure, speedup: head.sure === "none" ? 1 : head.speedup, ends: head.sure === "none" ? null : head.speedup_interval, compile: best ? best.speedup : null, reached: head.sure === "none" ? null : head.reached, trials: facts.trials.length - 1, failed, s: facts.spent.charged_s, usd: facts.spent.usd };
}
function compareTable(rows) {
  return sortable([
    { name: "run", of: (row) => row.name, show: (row) => [el("b", null, row.name), el("span", { class: "title faint small", title: row.where }, row.where)] },
    { name: "target", small: true, of: (row) => row.target, show: (row) => row.target }, { name: "device", small: true, of: (row) => row.device, show: (row) => row.device }, { name: "by", small: true, of: (row) => row.by, show: (row) => row.by },
    { name: "speed-up", number: true, of: (row) => row.speedup, show: (row) => [el("b", null, fmt.times(row.speedup)), el("span", { class: "faint hide-small" }, ` ${fmt.interval(row.ends)}`)] },
    { name: "how sure", of: (row) => row.sure, show: (row) => ({ confirmed: "confirmed", first: "first judgement", none: "no improvement" })[row.sure] },
    { name: "over compile", number: true, of: (row) => row.compile, show: (row) => fmt.times(row.compile) }, { name: "of the limit", number: true, small: true, of: (row) => row.reached, show: (row) => fmt.percent(row.reached) },
    { name: "trials", number: true, small: true, of: (row) => row.trials, show: (row) => fmt.count(row.trials) }, { name: "failed", number: true, small: true, of: (row) => row.failed, show: (row) => fmt.count(row.failed) }, { name: "time", number: true, small: true, of: (row) => row.s, show: (row) => fmt.s(row.s) }, { name: "cost", number: true, of: (row) => row.usd, show: (row) => (row.usd ? fmt.usd(row.usd) : dash) },
  ], rows, { first: "speed-up" });
}
function overlay(runs, box, way) {
  const curves = runs.map((facts) => curveOf(facts, way)), xs = [...new Set([0, ...curves.flat().map((one) => one.x)])].sort((a, b) => a - b);
  const lines = curves.map((curve) => { let at = 0, best = 1; return xs.map((x) => { while (at < curve.length && curve[at].x <= x) { best = curve[at].best; at += 1; } return curve.length && x <= curve.at(-1).x ? best : null; }); });
  const high = Math.max(1.2, ...lines.flat().filter(Boolean)) * 1.12;
  return plot(box, { scales: { x: { time: false }, y: { distr: 3, log: 10, range: () => [0.9, high] } }, axes: [axis(OVER[way].label, way === "trials" ? WHOLE : {}), axis("best so far over eager", { size: 46, splits: () => ticksOf(0.9, high), values: (u, all) => all.map((one) => `${one}\u00d7`), filter: (u, all) => all })], series: [{}, ...runs.map((facts, index) => ({ label: facts.name, stroke: colour(PAINTS[index % PAINTS.length]), width: 2.2, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } }))] }, [xs, ...lines],
    key(runs.map((facts, index) => [PAINTS[index % PAINTS.length], runs.filter((one) => one.name === facts.name).length > 1 ? `${facts.name} in ${facts.directory.split("/").at(-1)}` : facts.name])));
}
// The best kernels of one problem on one device, side by side; times of different devices are not compared.
function sides(rows) {
  const places = new Set(rows.map((one) => `${one.name}|${one.target}|${one.device}`));
  if (places.size > 1 || rows.length < 2 || rows.length > 6) return null;
  const most = Math.max(...rows.map((one) => one.facts.headline.time_us));
  return card("One problem, side by side", { note: "The time of each run's best kernel, of one device; they were not timed beside one another." }, bars(rows.map((one, index) => ({ name: one.where, value: one.facts.headline.time_us, words: fmt.us(one.facts.headline.time_us), paint: colour(PAINTS[index % PAINTS.length]), why: `${fmt.times(one.speedup)} ${fmt.interval(one.ends)} by ${one.by}: ${one.facts.headline.title}` })), most));
}
function beginCompare(runs) {
  const rows = runs.map(rowOf), table = compareTable(rows), box = el("div", { class: "plot" }), ways = waysOf(runs), held = el("span");
  let end = null, way = "trials";
  const draw = (next) => { way = next; if (end) end(); held.replaceChildren(tabs("over", ways, way, draw)); end = overlay(runs, box, way); };
  const search = el("input", { type: "search", placeholder: "find a run ( / )", "aria-label": "find a run", oninput: () => { const words = search.value.toLowerCase(); table.set(rows.filter((row) => `${row.name} ${row.where} ${row.target} ${row.device} ${row.by} ${row.state} ${row.sure}`.toLowerCase().includes(words))); } });
  byId("top").replaceChildren(el("h1", null, fmt.many(runs.length, "run")), el("span", { class: "grow" }), themeButton());
  const beside = el("div");
  byId("main").replaceChildren(...[beside, card("Runs", { kind: "long", tools: search }, el("div", { class: "wide" }, table.box)), card("Speed over the run", { tools: held }, box), el("footer", null, runs[0].made_by)].filter(Boolean));
  const paint = () => { const one = sides(rows); beside.replaceChildren(...(one ? [one] : [])); beside.hidden = !one; draw(way); };
  paint();
  addEventListener("themed", paint);
  searchKey();
}
