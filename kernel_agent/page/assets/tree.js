// The tree: rounds are columns, the height is the speed-up (logarithmic), lines are lineage, colours are outcomes.
const EDGE = { left: 46, right: 16, top: 30, gap: 26 };

const FINE = [0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 2, 2.5, 3, 3.5, 4];
function ticksOf(low, high) {
  const all = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 1.5, 2, 3, 4, 5, 7, 10, 15, 20, 30, 50, 70, 100, 200, 500, 1000, 2000, 5000].filter((one) => one >= low && one <= high);
  if (all.length < 3) return FINE.filter((one) => one >= low && one <= high).filter((one, index, every) => one === 1 || every.length < 6 || index % 2 === every.indexOf(1) % 2);
  const step = Math.ceil(all.length / 8);
  return all.filter((one, index) => one === 1 || index % step === 0);
}
function linesOf(facts, best, width) {
  const eager = facts.baselines.find((one) => one.name === "eager").time_us;
  const fast = facts.baselines.filter((one) => one.compiled).sort((a, b) => a.time_us - b.time_us)[0];
  const found = [];
  if (fast) found.push({ at: eager / fast.time_us, kind: "rival", words: `${width < 600 ? "compile" : brief(fast.title)} ${fmt.times(eager / fast.time_us)}` });
  if (facts.work.limit_us) found.push({ at: eager / facts.work.limit_us, kind: "bound", words: `limit ${fmt.times(eager / facts.work.limit_us)}` });
  return found.map((line) => ({ ...line, shown: line.at <= Math.max(best, 1) * 3 && line.at >= 0.05 }));
}
function columnsOf(trials, width) {
  const rounds = [...new Set(trials.map((one) => one.round))].sort((a, b) => a - b);
  const crowd = new Map(rounds.map((round) => [round, trials.filter((one) => one.round === round).length]));
  const weight = (round) => (crowd.get(round) === 1 && round === 0 ? 0.42 : 1);
  const total = rounds.reduce((sum, round) => sum + weight(round), 0);
  const room = Math.max(width - EDGE.left - EDGE.right, total * 62);
  let x = EDGE.left;
  return new Map(rounds.map((round) => {
    const wide = (room * weight(round)) / total, column = { round, x, wide, middle: x + wide / 2, count: crowd.get(round) };
    x += wide;
    return [round, column];
  }));
}
const radius = (trial, many, won) => {
  const base = many > 900 ? 3.2 : many > 250 ? 4.2 : many > 60 ? 5.4 : 7;
  return won ? base + 2.5 : trial.kind === "swept" ? base * 0.62 : base;
};
// Points of one column side by side, so that none hides another; those in the middle first.
function swarm(points, column) {
  const rows = [], reach = column.wide / 2 - 6;
  let full = 0;
  for (const point of points) {
    const row = Math.round(point.y / 8) + 2, step = Math.max(2, point.r * 0.8), taken = [];
    for (const one of [row - 2, row - 1, row, row + 1, row + 2].flatMap((at) => rows[at] || [])) {
      const apart = one.r + point.r + 1.5, off = one.y - point.y, half = Math.sqrt(apart * apart - off * off);
      if (half > 0) taken.push([one.x - half - column.middle, one.x + half - column.middle]);
    }
    const free = (shift) => !taken.some(([from, to]) => shift > from && shift < to);
    let shift = 0, turn = 0;
    while (!free(shift) && Math.abs(shift) < reach) { turn += 1; shift = (turn % 2 ? 1 : -1) * Math.ceil(turn / 2) * step; }
    if (Math.abs(shift) >= reach) { full = (full + 0.618) % 1; shift = (2 * full - 1) * reach; }  // no place is free: spread evenly
    point.x = column.middle + shift;
    (rows[row] ||= []).push(point);
  }
}
function layout(facts, width) {
  const trials = facts.trials, many = trials.length, columns = columnsOf(trials, width);
  const speeds = trials.filter((one) => PASSED.has(outcome(one))).map((one) => one.speedup).filter((one) => one > 0);
  const best = Math.max(1, ...speeds), lines = linesOf(facts, best, width), drawn = lines.filter((one) => one.shown).map((one) => one.at);
  const high = Math.max(best, ...drawn, 1.15) * 1.12, low = Math.max(Math.min(1, ...speeds), best / 300) * 0.88;
  const tall = many > 250 ? 430 : many > 30 ? 370 : 290;
  const y = (speed) => EDGE.top + tall * (1 - (Math.log(Math.max(speed, low)) - Math.log(low)) / (Math.log(high) - Math.log(low)));
  const lane = EDGE.top + tall + EDGE.gap, cell = many > 900 ? 7 : many > 250 ? 9 : 14, points = new Map();
  let rowsMost = 0;
  for (const column of columns.values()) {
    const here = trials.filter((one) => one.round === column.round);
    const passed = here.filter((one) => PASSED.has(outcome(one))).map((trial) => ({ trial, y: y(trial.speedup), r: radius(trial, many, trial.id === facts.headline.trial && facts.headline.sure !== "none") }));
    passed.sort((a, b) => b.r - a.r || b.trial.speedup - a.trial.speedup);
    swarm(passed, column);
    const failed = here.filter((one) => !PASSED.has(outcome(one))).sort((a, b) => (outcome(a) < outcome(b) ? -1 : outcome(a) > outcome(b) ? 1 : 0));
    const across = Math.max(1, Math.floor((column.wide - 18) / cell)), rows = Math.ceil(failed.length / across);
    rowsMost = Math.max(rowsMost, rows);
    failed.forEach((trial, index) => {
      const last = Math.floor(index / across) === rows - 1 ? failed.length - across * (rows - 1) : across;
      const left = column.middle - (last * cell) / 2;
      passed.push({ trial, x: left + (index % across) * cell + cell / 2, y: lane + 10 + Math.floor(index / across) * cell + cell / 2, r: cell * 0.36, failed: true });
    });
    for (const point of passed) points.set(point.trial.id, point);
  }
  const end = [...columns.values()].at(-1), deep = rowsMost ? rowsMost * cell + 20 : 0;
  return { points, columns, lines, y, low, high, lane, deep, wide: end.x + end.wide + EDGE.right, tall: rowsMost ? lane + deep + 6 : EDGE.top + tall + 16, bottom: EDGE.top + tall, many };
}
function curve(from, to) {
  if (Math.abs(from.x - to.x) < 30) return `M${from.x.toFixed(1)} ${from.y.toFixed(1)}L${to.x.toFixed(1)} ${to.y.toFixed(1)}`;
  const half = (from.x + to.x) / 2;
  return `M${from.x.toFixed(1)} ${from.y.toFixed(1)}C${half.toFixed(1)} ${from.y.toFixed(1)} ${half.toFixed(1)} ${to.y.toFixed(1)} ${to.x.toFixed(1)} ${to.y.toFixed(1)}`;
}
// The nearest ancestor that passed: a draft that failed and was repaired is no place to draw a line through.
function before(state, trial) {
  let at = state.byId.get(trial.parent);
  while (at && !PASSED.has(outcome(at))) at = state.byId.get(at.parent);
  return at;
}
function pathTo(state, id, points) {
  let drawn = "";
  for (let at = state.byId.get(id), from; at && (from = before(state, at)); at = from) drawn += curve(points.get(from.id), points.get(at.id));
  return drawn;
}
function grid(plan, facts) {
  const right = plan.wide - EDGE.right, parts = [];
  [...plan.columns.values()].forEach((column, index) => {
    if (index % 2) parts.push(svg("rect", { class: "band", x: column.x, y: EDGE.top - 8, width: column.wide, height: plan.bottom - EDGE.top + 8 }));
    const words = column.round === 0 ? (column.count > 1 ? "seeds" : "original") : column.wide < 70 ? String(column.round) : `round ${column.round}`;
    parts.push(svg("text", { x: column.middle, y: 15, "text-anchor": "middle" }, words));
  });
  for (const tick of ticksOf(plan.low, plan.high)) {
    parts.push(svg("line", { class: tick === 1 ? "one" : "axis", x1: EDGE.left, x2: right, y1: plan.y(tick), y2: plan.y(tick) }));
    parts.push(svg("text", { x: EDGE.left - 8, y: plan.y(tick) + 4, "text-anchor": "end" }, `${tick}\u00d7`));
  }
  let last = -99;
  for (const line of plan.lines) {
    if (line.shown) {
      const y = plan.y(line.at), under = Math.abs(y - last) < 14;
      last = y;
      parts.push(svg("line", { class: line.kind, x1: EDGE.left, x2: right, y1: y, y2: y }));
      parts.push(svg("text", { class: `${line.kind} name`, x: right - 2, y: y + (under ? 14 : -5), "text-anchor": "end" }, line.words));
    } else if (line.at > plan.high) parts.push(svg("text", { class: `${line.kind} name`, x: EDGE.left + 6, y: EDGE.top + 6 }, `\u2191 ${line.words}`));
  }
  if (plan.deep) {
    parts.push(svg("rect", { class: "lane", x: EDGE.left, y: plan.lane, width: right - EDGE.left, height: plan.deep, rx: 8 }));
    parts.push(svg("text", { x: EDGE.left, y: plan.lane - 6 }, facts.trials.some((one) => outcome(one) === "waiting") ? "did not pass, or waits for its verdict" : "did not pass"));
  }
  return parts;
}
function shape(point, facts, chosen) {
  const { trial } = point, kind = outcome(trial), won = trial.id === facts.headline.trial && facts.headline.sure !== "none";
  const label = `${trial.title}, ${STATUS[kind]}${trial.speedup ? ` ${fmt.times(trial.speedup)}` : ""}, round ${trial.round}`;
  const common = { class: `node f-${kind}${kind === "waiting" ? " waiting" : ""}${won ? " winner" : ""}${trial.id === chosen ? " open" : ""}`, "data-id": trial.id, tabindex: "-1", role: "button", "aria-label": label };
  if (!point.failed && trial.kind === "original") {
    return svg("rect", { ...common, x: point.x - point.r, y: point.y - point.r, width: point.r * 2, height: point.r * 2, transform: `rotate(45 ${point.x} ${point.y})`, rx: 1.5 });
  }
  if (point.failed && kind !== "waiting") return svg("rect", { ...common, x: point.x - point.r, y: point.y - point.r, width: point.r * 2, height: point.r * 2, rx: 1.5 });
  return svg("circle", { ...common, cx: point.x.toFixed(1), cy: point.y.toFixed(1), r: point.r });
}
// Names beside the points, where there is room: in small runs of all, else of the winner alone.
function names(plan, facts) {
  const parts = [], taken = [];
  const passed = [...plan.points.values()].filter((one) => !one.failed && one.trial.kind !== "original");
  passed.sort((a, b) => b.trial.speedup - a.trial.speedup);
  for (const point of passed) {
    const won = point.trial.id === facts.headline.trial && facts.headline.sure !== "none", column = plan.columns.get(point.trial.round);
    if (!won && (passed.length > 26 || point.trial.kind === "swept" || column.wide < 190)) continue;
    const labelled = plan.lines.some((line) => line.shown && Math.abs(plan.y(line.at) - 5 - point.y) < 15) && column.x + column.wide > plan.wide - 220;
    const room = column.x + column.wide - point.x - point.r - 14 - (labelled ? 205 : 0), words = won ? fmt.times(point.trial.speedup) : "";
    const fits = Math.floor(room / 6.1) - words.length - 1;
    const beside = plan.many < 60 && fits > 12 ? (point.trial.title.length > fits ? `${point.trial.title.slice(0, fits - 1)}\u2026` : point.trial.title) : "";
    const blocked = (one) => Math.abs(one.y - point.y) < 13 && one.column === column;
    if (!won && (!beside || taken.some(blocked) || passed.some((one) => one !== point && Math.abs(one.y - point.y) < 9 && one.x > point.x))) continue;
    taken.push({ y: point.y, column });
    if (won && !beside && point.y - point.r > EDGE.top + 8) { parts.push(svg("text", { x: point.x, y: point.y - point.r - 9, class: "tag", "text-anchor": "middle" }, words)); continue; }
    const left = won && !beside && room < 44;
    const text = svg("text", { x: left ? point.x - point.r - 8 : point.x + point.r + 7, y: point.y + 4, class: won ? "tag" : "name", "text-anchor": left ? "end" : "start" }, [words, beside].filter(Boolean).join("  "));
    parts.push(text);
  }
  return parts;
}
// More trials than this are drawn an element for each kind: lines without a length, whose round or square ends are the points.
const CROWD = 400;
function crowd(points, state) {
  const box = svg("g", null);
  const draw = (apart) => {
    const kinds = new Map();
    for (const point of points.values()) {
      if (apart.has(point.trial.id)) continue;
      const kind = outcome(point.trial), dim = !state.fits(point.trial), square = point.failed && kind !== "waiting", name = `${dim} ${kind} ${square} ${point.r}`;
      if (!kinds.has(name)) kinds.set(name, { kind, dim, square, r: point.r, d: "" });
      kinds.get(name).d += `M${point.x.toFixed(1)} ${point.y.toFixed(1)}h0`;
    }
    box.replaceChildren(...[...kinds.values()].sort((a, b) => b.dim - a.dim).map((one) => svg("path", { class: `points${one.dim ? " dim" : ""}`, d: one.d, style: { stroke: `var(--${one.kind})` }, "stroke-width": one.r * 2, "stroke-linecap": one.square ? "square" : "round" })));
  };
  return { box, draw };
}
function nearest(points, picture, event) {
  const at = picture.getBoundingClientRect(), x = event.clientX - at.left, y = event.clientY - at.top;
  let found = null, least = Infinity;
  for (const point of points.values()) { const far = Math.hypot(point.x - x, point.y - y) - point.r; if (far < least) { least = far; found = point; } }
  return least <= 3 ? found.trial.id : undefined;
}
function drawTree(state, box) {
  const facts = state.facts, plan = layout(facts, box.clientWidth || 1100), { points } = plan, many = plan.many > CROWD;
  let good = "", bad = "";
  for (const point of points.values()) {
    const from = before(state, point.trial);
    if (from) { if (!point.failed) good += curve(points.get(from.id), point); else if (plan.many <= 250) bad += curve(points.get(from.id), point); }
  }
  const over = svg("path", { class: "edge over" }), best = svg("path", { class: "edge best", d: facts.headline.sure === "none" ? "" : pathTo(state, facts.headline.trial, points) });
  const apart = new Map(), nodes = svg("g", null), all = many ? crowd(points, state) : null;
  const add = (id) => { const node = shape(points.get(id), facts, state.open); apart.set(id, node); nodes.append(node); return node; };
  state.nodeOf = (id) => apart.get(id) || (points.has(id) ? add(id) : null);
  (many ? new Set([facts.trials[0].id, facts.headline.trial, state.open].filter((id) => points.has(id))) : [...points.keys()]).forEach(add);
  const winner = facts.headline.sure === "none" ? null : points.get(facts.headline.trial);
  const halo = winner && svg("circle", { class: "halo", cx: winner.x, cy: winner.y, r: winner.r + 3.5 });
  const picture = svg("svg", { width: plan.wide, height: plan.tall, viewBox: `0 0 ${plan.wide} ${plan.tall}`, role: "group", "aria-label": "The tree of the search. Arrow keys move: left to the parent, right to a child, up and down by speed. Enter opens." },
    grid(plan, facts), svg("path", { class: "edge failed", d: bad }), svg("path", { class: `edge${plan.many > 250 ? " faint" : ""}`, d: good }), best, over, all && all.box, nodes, halo, names(plan, facts));
  const drawOver = (id) => over.setAttribute("d", id ? pathTo(state, id, points) : "");
  const idOf = (event) => (event.target.dataset && event.target.dataset.id) || (many && event.type !== "focusin" ? nearest(points, picture, event) : undefined);
  picture.addEventListener("click", (event) => { tip(null, null); if (idOf(event)) state.choose(idOf(event)); });
  picture.addEventListener("mousemove", (event) => { const id = idOf(event); if (many) picture.style.cursor = id ? "pointer" : ""; tip(event, id && hint(state.byId.get(id))); drawOver(id || state.open); });
  picture.addEventListener("mouseleave", () => { tip(null, null); drawOver(state.open); });
  picture.addEventListener("focusin", (event) => drawOver(idOf(event)));
  picture.addEventListener("keydown", (event) => move(event, state));
  box.replaceChildren(picture);
  const first = apart.get(state.open) || apart.get(facts.headline.trial) || nodes.firstChild;
  if (first) first.setAttribute("tabindex", "0");
  drawOver(state.open);
  state.dim = () => { for (const [id, node] of apart) node.classList.toggle("dim", !state.fits(state.byId.get(id))); if (all) all.draw(apart); };
  if (all || state.hidden.size || state.words) state.dim();
}
function hint(trial) {
  const rows = [trial.title, [STATUS[outcome(trial)], trial.speedup && trial.kind !== "original" ? `${fmt.times(trial.speedup)} ${fmt.interval(trial.speedup_interval)}` : ""].filter(Boolean).join(" \u00b7 ")];
  if (trial.time_us) rows.push(fmt.us(trial.time_us));
  if (trial.why) rows.push(trial.why);
  if (trial.kind === "swept" || trial.kind === "repaired" || trial.kind === "seed") rows.push({ swept: "swept: other values of its tunables", repaired: "a repair", seed: "a seed of the templates" }[trial.kind]);
  return rows;
}
function move(event, state) {
  const id = event.target.dataset.id, trial = state.byId.get(id);
  if (!trial) return;
  if (event.key === "Enter" || event.key === " ") { event.preventDefault(); state.choose(id); return; }
  const column = state.facts.trials.filter((one) => one.round === trial.round).sort((a, b) => (b.speedup || 0) - (a.speedup || 0)), at = column.indexOf(trial);
  const child = () => state.facts.trials.filter((one) => one.parent === id).sort((a, b) => (b.speedup || 0) - (a.speedup || 0))[0];
  const next = { ArrowLeft: () => state.byId.get(trial.parent), ArrowRight: child, ArrowUp: () => column[at - 1], ArrowDown: () => column[at + 1] }[event.key];
  const to = next && next();
  if (next) event.preventDefault();
  if (!to) return;
  const node = state.nodeOf(to.id);
  event.target.setAttribute("tabindex", "-1"); node.setAttribute("tabindex", "0"); node.focus();
  if (state.open) state.choose(to.id, true);
}
