// Curves and the roofline, by uPlot; bars and intervals, by hand.
function plot(box, options, data, legend) {
  const wide = () => Math.max(240, box.clientWidth);
  const chart = new uPlot({ width: wide(), height: 262, cursor: { drag: { x: false, y: false } }, legend: { show: false }, padding: [12, 22, 0, 0], ...options }, data, box);
  const watch = new ResizeObserver(() => { if (box.isConnected) chart.setSize({ width: wide(), height: 262 }); });
  watch.observe(box);
  if (legend) box.append(legend);
  return () => { watch.disconnect(); chart.destroy(); box.replaceChildren(); };
}
const face = () => getComputedStyle(document.body).fontFamily;
const axis = (label, more) => ({ label, size: 30, labelSize: 18, labelGap: 0, gap: 4, labelFont: `12px ${face()}`, font: `11.5px ${face()}`, stroke: colour("soft"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line"), width: 1, size: 4 }, ...more });
// uPlot's own never end where a scale does not begin at a power of ten.
function logSplits(u, index, low, high) {
  const all = [];
  for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power += 1) for (let head = 1; head < 10; head += 1) all.push(Number(`${head}e${power}`));
  return all.filter((one) => one >= low && one <= high);
}
const logTicks = (u, splits) => splits.map((one) => { const head = one / 10 ** Math.floor(Math.log10(one) + 1e-9); return Math.abs(head - 1) < 1e-6 || Math.abs(head - 2) < 1e-6 || Math.abs(head - 5) < 1e-6 ? `${digits(one)}` : ""; });
function key(rows) { return el("div", { class: "tools small soft", style: { "margin-top": "6px" } }, rows.map(([kind, words]) => el("span", { class: "badge" }, el("span", { class: "dot", style: { background: colour(kind), "border-radius": "50%" } }), words))); }

const OVER = { trials: { label: "trials judged", of: (trial, order) => order }, minutes: { label: "minutes", of: (trial) => trial.judged_s / 60 }, dollars: { label: "dollars", of: (trial) => trial.spent_usd }, tokens: { label: "tokens", of: (trial) => trial.spent_tokens } };
const WHOLE = { incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000] };
function judgedOf(facts) {
  return facts.trials.filter((one) => one.kind !== "original" && one.status !== "waiting" && one.judged_s !== null && one.judged_s !== undefined).sort((a, b) => a.judged_s - b.judged_s);
}
function waysOf(runs) {
  const all = runs.flatMap(judgedOf), ways = ["trials", "minutes"];
  if (all.some((one) => one.spent_usd > 0)) ways.push("dollars");
  else if (all.some((one) => one.spent_tokens > 0)) ways.push("tokens");
  return ways;
}
function curveOf(facts, way) {
  let best = 1;
  return judgedOf(facts).map((trial, index) => { if (trial.status === "passed") best = Math.max(best, trial.speedup); return { x: OVER[way].of(trial, index + 1) ?? 0, best, own: trial.status === "passed" ? trial.speedup : null, trial }; });
}
function progressPlot(state, box, way) {
  const rows = curveOf(state.facts, way);
  if (!rows.length) { box.replaceChildren(el("p", { class: "soft small" }, "Nothing is judged yet.")); return () => {}; }
  const xs = rows.map((one) => one.x), ys = rows.map((one) => one.best), own = rows.map((one) => one.own);
  const low = Math.min(1, ...own.filter(Boolean)) * 0.9, high = Math.max(...ys) * 1.1, paint = colour("accent");
  const fails = (u) => { u.ctx.save(); u.ctx.fillStyle = colour("wrong"); u.ctx.globalAlpha = 0.7; for (const row of rows) if (row.own === null) { const x = u.valToPos(row.x, "x", true); u.ctx.fillRect(x - devicePixelRatio, u.bbox.top + u.bbox.height - 7 * devicePixelRatio, 2 * devicePixelRatio, 7 * devicePixelRatio); } u.ctx.restore(); };
  return plot(box, {
    scales: { x: { time: false, range: (u, min, max) => [Math.min(0, min), Math.max(max, 1) * 1.02] }, y: { distr: 3, log: 10, range: () => [low, high] } },
    axes: [axis(OVER[way].label, way === "trials" ? WHOLE : {}), axis("speed-up over eager", { size: 46, splits: () => ticksOf(low, high), values: (u, all) => all.map((one) => `${one}\u00d7`), filter: (u, all) => all })],
    series: [{}, { stroke: colour("level"), paths: () => null, points: { show: true, size: rows.length > 400 ? 3.5 : 6, fill: `${colour("level")}${rows.length > 400 ? "66" : "cc"}`, stroke: "transparent", width: 0 } }, { stroke: paint, width: 2.2, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } }],
    hooks: { draw: [fails] },
  }, [xs, own, ys], key([["accent", "best so far, by first judgements"], ["level", "each kernel that passed"], ["wrong", "did not pass"]]));
}
// Operations and bytes are those that the problem needs, so every candidate stands at one intensity.
function roofline(state, box) {
  const { facts } = state, { work } = facts, flops = work.flops || 0, slope = work.moved_bytes / work.moving_us / 1e3;
  if (!flops || !work.moving_us || !work.moved_bytes) { box.replaceChildren(el("p", { class: "soft small" }, "No operations were counted for this problem, or no bandwidth was measured.")); return () => {}; }
  const at = flops / work.moved_bytes, rate = (us) => flops / us / 1e3, peak = work.moving_us && work.limit_us > work.moving_us * 1.01 ? rate(work.limit_us) : null;
  const left = at / 30, right = peak ? Math.max(at * 12, (peak / slope) * 6) : at * 30, roof = (x) => Math.min(x * slope, peak ?? Infinity);
  const xs = []; for (let i = 0; i <= 120; i += 1) xs.push(left * (right / left) ** (i / 120));
  const passed = facts.trials.filter((one) => one.status === "passed" && one.time_us && one.kind !== "original"), base = (rivals(facts).length ? facts.headline.versus : facts.baselines).map((one) => ({ y: rate(one.time_us), words: brief(one.title) }));
  const all = [...passed.map((one) => rate(one.time_us)), ...base.map((one) => one.y), roof(at)], low = Math.min(...all) / 2.5, high = Math.max(...all, peak ?? 0) * 3;
  const draw = (u) => {
    const c = u.ctx, d = devicePixelRatio, x = u.valToPos(at, "x", true), y = (value) => u.valToPos(value, "y", true);
    const dot = (value, r, fill, shift = 0) => { c.beginPath(); c.arc(x + shift, y(value), r * d, 0, 7); c.fillStyle = fill; c.fill(); };
    const words = (value, text, fill, side, bold) => { c.font = `${bold ? 600 : 400} ${12 * d}px ${face()}`; c.fillStyle = fill; c.textAlign = side > 0 ? "left" : "right"; c.textBaseline = "middle"; c.fillText(text, x + side * 12 * d, value); };
    c.save();
    c.setLineDash([3 * d, 3 * d]); c.strokeStyle = colour("gold"); c.beginPath(); c.moveTo(x, y(roof(at))); c.lineTo(x, u.bbox.top + u.bbox.height); c.stroke(); c.setLineDash([]);
    c.globalAlpha = passed.length > 80 ? 0.35 : 0.65;
    for (const one of passed) dot(rate(one.time_us), 3.5, colour(outcome(one) === "faster" ? "faster" : "level"));
    c.globalAlpha = 1;
    for (const one of base) { c.strokeStyle = colour("ink"); c.lineWidth = 1.5 * d; c.strokeRect(x - 4 * d, y(one.y) - 4 * d, 8 * d, 8 * d); }
    const labels = base.map((one) => ({ ...one, fill: colour("soft") }));
    if (facts.headline.sure !== "none") { const own = rate(facts.headline.time_us); dot(own, 6, colour("accent")); labels.push({ y: own, words: `this kernel, ${fmt.percent(facts.headline.reached)} of the limit`, fill: colour("ink"), bold: true }); }
    let before = Infinity;
    for (const one of labels.sort((a, b) => a.y - b.y)) { before = Math.min(y(one.y), before - 15 * d); words(before, one.words, one.fill, 1, one.bold); }
    words(y(roof(at)), `limit ${digits(roof(at))} GFLOP/s`, colour("gold"), -1, true);
    c.restore();
  };
  const log = (label, more) => axis(label, { splits: logSplits, values: logTicks, filter: (u, all) => all, ...more });
  return plot(box, { scales: { x: { time: false, distr: 3, log: 10, range: () => [left, right] }, y: { distr: 3, log: 10, range: () => [low, high] } }, axes: [log("operations a byte (FLOP/B)"), log("GFLOP/s", { size: 54 })], series: [{}, { stroke: colour("gold"), width: 2.2, points: { show: false } }], cursor: { show: false }, hooks: { draw: [draw] } }, [xs, xs.map(roof)],
    el("p", { class: "small soft" }, `${fmt.work(flops)} and ${fmt.bytes(work.moved_bytes)} are counted for one call; the slope is the ${slope >= 1000 ? `${digits(slope / 1000)} TB/s` : `${digits(slope)} GB/s`} of reading and writing them, as measured on this device.`));
}
// Each of the best with its interval against eager PyTorch; the ring is its second judgement.
function forest(state) {
  const { facts } = state, rows = facts.ranking.map((id) => state.byId.get(id)).filter((one) => one.kind !== "original").slice(0, 10);
  if (!rows.length) return el("p", { class: "soft small" }, "No kernel has passed.");
  const ends = rows.flatMap((one) => [...(one.speedup_interval || []), ...((one.again && one.again.speedup_interval) || [])]), low = Math.min(1 - facts.work.noise * 2, ...ends) * 0.96, high = Math.max(1.1, ...ends) * 1.03;
  const at = (speed) => ((Math.log(speed) - Math.log(low)) / (Math.log(high) - Math.log(low))) * 100, left = (speed) => ({ left: `${at(speed)}%` }), noise = facts.work.noise;
  const scale = el("div", { class: "axis", "aria-hidden": "true" }, el("span", { class: "span" }, ticksOf(low, high).map((one) => el("em", { style: left(one) }, `${one}\u00d7`))));
  return el("div", { class: "forest" }, rows.map((one, index) => el("button", { type: "button", class: one.id === facts.headline.trial ? "won" : "", "data-id": one.id, onclick: () => state.choose(one.id) },
    el("span", { class: "faint num" }, index + 1), el("span", { class: "what", title: one.title }, one.title),
    el("span", { class: "span", style: { "--c": colour(outcome(one)) } }, el("i", { class: "tie", style: { left: `${at(1 - noise)}%`, width: `${at(1 + noise) - at(1 - noise)}%` } }), el("i", { style: left(1) }),
      one.speedup_interval && el("i", { class: "range", style: { left: `${at(one.speedup_interval[0])}%`, width: `${at(one.speedup_interval[1]) - at(one.speedup_interval[0])}%` } }), el("i", { class: "mid", style: left(one.speedup) }), one.again && one.again.speedup && el("i", { class: "again", title: "judged again", style: left(one.again.speedup) })),
    el("span", { class: "num" }, fmt.times(one.speedup), el("span", { class: "faint" }, ` ${fmt.interval(one.speedup_interval)}`)))), scale);
}
// How far each kernel is off, in units of rounding; what is right of the line is wrong.
function errors(state, box) {
  const rows = state.facts.trials.filter((one) => one.error_units > 0 && one.kind !== "original");
  if (!rows.length) return el("p", { class: "soft small" }, "No error was measured yet.");
  const wide = Math.max(260, box.clientWidth || 520), tall = 176, pad = 14, allowed = rows[0].allowed_units, low = Math.min(0.1, ...rows.map((one) => one.error_units)), high = Math.max(allowed * 20, ...rows.map((one) => Math.min(one.error_units, 1e12))) * 1.5;
  const x = (units) => pad + ((Math.log10(Math.min(units, high)) - Math.log10(low)) / (Math.log10(high) - Math.log10(low))) * (wide - 2 * pad), base = tall - 40, heap = new Map();
  const powers = []; for (let at = Math.ceil(Math.log10(low)); at <= Math.log10(high); at += 1) powers.push(10 ** at);
  const keep = powers.filter((one, index) => index % Math.ceil(powers.length / 7) === 0), size = rows.length > 300 ? 2 : rows.length > 80 ? 3 : 5;
  const spotOf = (one) => Math.round(x(one.error_units) / (size * 2 + 1)), deep = rows.reduce((all, one) => all.set(spotOf(one), (all.get(spotOf(one)) || 0) + 1), new Map());
  const kinds = new Map(), spots = [...rows].sort((a, b) => a.error_units - b.error_units).map((trial) => {
    const spot = spotOf(trial), high = heap.get(spot) || 0, step = Math.min(size * 2 + 1, (base - 40) / deep.get(spot)), kind = outcome(trial);
    heap.set(spot, high + 1);
    const one = { trial, x: spot * (size * 2 + 1), y: base - size - 2 - high * step };
    kinds.set(kind, `${kinds.get(kind) || ""}M${one.x} ${one.y.toFixed(1)}h0`);
    return one;
  });
  // Lines without a length and with round ends: all dots of an outcome are one element.
  const dots = [...kinds].map(([kind, d]) => svg("path", { d, fill: "none", stroke: colour(kind), "stroke-width": size * 2, "stroke-linecap": "round" }));
  const picture = svg("svg", { width: wide, height: tall, role: "img", "aria-label": `Errors of ${rows.length} kernels, ${digits(allowed)} units are allowed` },
    svg("rect", { x: x(allowed), y: 16, width: Math.max(0, wide - pad - x(allowed)), height: base - 16, fill: colour("cut") }), svg("line", { x1: pad, x2: wide - pad, y1: base, y2: base, stroke: colour("faint") }),
    svg("line", { x1: x(allowed), x2: x(allowed), y1: 16, y2: base, stroke: colour("wrong"), "stroke-width": 1.5 }), svg("text", { x: Math.min(x(allowed) + 6, wide - 104), y: 29 }, `wrong beyond ${digits(allowed)}`),
    keep.map((one, index) => svg("text", { x: x(one), y: base + 16, "text-anchor": index ? "middle" : "start" }, one >= 1e5 ? `1e${Math.round(Math.log10(one))}` : digits(one))), svg("text", { x: wide / 2, y: base + 34, "text-anchor": "middle" }, "error against float64, in units of rounding"), dots);
  const under = (event) => {
    const at = picture.getBoundingClientRect(), far = (one) => Math.hypot(one.x - event.clientX + at.left, one.y - event.clientY + at.top), near = spots.reduce((a, b) => (far(b) < far(a) ? b : a));
    return far(near) <= size + 4 ? near.trial : null;
  };
  picture.addEventListener("click", (event) => { const one = under(event); if (one) state.choose(one.id); });
  picture.addEventListener("mousemove", (event) => { const one = under(event); picture.style.cursor = one ? "pointer" : ""; tip(event, one && [one.title, `${digits(one.error_units)} of ${digits(one.allowed_units)} units, ${STATUS[outcome(one)]}`]); });
  picture.addEventListener("mouseleave", () => tip(null, null));
  return picture;
}
function bars(rows, most) {
  return el("div", { class: "bars" }, rows.map((row) => el(row.act ? "button" : "div", row.act ? { type: "button", onclick: row.act } : null, el("span", null, row.name), el("div", { class: "track" }, el("i", { style: { width: `${most ? (row.value / most) * 100 : 0}%`, background: row.paint || colour(row.kind || "level") } })), el("span", { class: "num" }, row.words), row.why && el("span", { class: "why", title: row.why }, row.why))));
}
function stageBars(facts) {
  const rows = facts.stages.filter((one) => one.s > 0), paints = { model: "timeout", build: "build_error", prepare: "waiting", device: "accent", wait: "slower" };
  if (!rows.length) return el("p", { class: "soft small" }, "Nothing was measured yet.");
  return bars(rows.map((one) => ({ name: one.title, value: one.s, words: fmt.s(one.s), paint: colour(paints[one.name]) })), Math.max(...rows.map((one) => one.s)));
}
function failureBars(state) {
  const { facts } = state, counts = new Map();
  for (const trial of facts.trials) { const kind = outcome(trial); if (!PASSED.has(kind) && kind !== "waiting") counts.set(kind, [...(counts.get(kind) || []), trial]); }
  const rows = [...counts].map(([kind, all]) => ({ kind, name: STATUS[kind], value: all.length, words: fmt.count(all.length), why: all[0].why, act: () => state.only(kind) }));
  if (facts.unwritten.length) rows.push({ kind: "unwritten", name: STATUS.unwritten, value: facts.unwritten.length, words: fmt.count(facts.unwritten.length), why: facts.unwritten[0].reason });
  rows.sort((a, b) => b.value - a.value);
  return rows.length ? bars(rows, rows[0].value) : el("p", { class: "soft small" }, "Everything that was judged passed.");
}
