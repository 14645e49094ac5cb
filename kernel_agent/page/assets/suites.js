// Suites: a table that sorts and filters, what all of it comes to, and several suites side by side.
const ENDS = { improved: ["faster", "improved"], no_improvement: ["level", "no improvement"], failed: ["wrong", "failed"], original_delivered: ["level", "original delivered"], not_covered: ["rejected", "not covered"], running: ["waiting", "running"], waiting: ["unwritten", "waiting"] };
const ended = (row) => { const [paint, words] = ENDS[row.status] || ["level", row.status]; return el("span", { class: "badge", title: row.reason }, el("span", { class: `dot f-${paint}`, style: { "border-radius": "50%" } }), words); };
const nothingAt = (value) => value === null || value === undefined;
// A number with the interval below it.
const withEnds = (words, ends, more) => (words === dash ? dash : [el("b", null, words), ends && el("span", { class: "ends" }, ends), more && el("span", { class: "ends" }, more)]);
const percents = (ends) => (ends ? `[${ends.map((one) => fmt.percent(one).replace(" %", "")).join(", ")}] %` : "");
const costOf = (row) => (row.usd ? fmt.usd(row.usd) : row.tokens ? `${fmt.count(row.tokens)} tokens` : nothingAt(row.usd) ? dash : "$0");
const modeOf = (row) => (row.compile_mode && row.compile_mode !== "compile" ? row.compile_mode.replace("max-autotune-no-cudagraphs", "max-autotune") : "");

function problemCell(row, link) {
  const to = link(row), words = [row.reason, row.why_not_held && `did not hold: ${row.why_not_held}`, ...(row.notes || [])].filter(Boolean).join(" \u00b7 ");
  return [to ? el("a", { href: to, class: "title", title: row.problem }, row.problem) : el("span", { class: "title", title: row.problem }, row.problem), words && el("span", { class: "title faint small", title: words }, words)];
}
function problemColumns(rows, link) {
  const some = (of) => rows.some((row) => !nothingAt(of(row)) && of(row) !== "");
  const ratio = (name, key, words, ends, more = {}) => ({ name, number: true, of: (row) => row[key], show: (row) => withEnds(words(row[key]), ends(row[`${key}_interval`])), ...more });
  const time = (name, key, more) => ({ name, number: true, small: true, of: (row) => row[key], show: (row) => (more && more(row) ? [fmt.us(row[key]), el("span", { class: "ends" }, more(row))] : fmt.us(row[key])) });
  return [
    { name: "problem", of: (row) => row.problem, show: (row) => problemCell(row, link) },
    { name: "outcome", of: (row) => row.status, show: ended },
    some((row) => row.authorship) && { name: "kernel by", small: true, of: (row) => row.authorship, show: (row) => row.authorship || dash },
    ratio("over eager", "speedup", fmt.times, fmt.interval), ratio("over compile", "versus_compile", fmt.times, fmt.interval), ratio("of the limit", "reached", fmt.percent, percents, { small: true }),
    time("kernel", "kernel_us"), time("eager", "eager_us"), time("compile", "compile_us", modeOf), time("limit", "limit_us"),
    { name: "judged", number: true, small: true, of: (row) => row.evaluations, show: (row) => fmt.count(row.evaluations) },
    { name: "cost", number: true, small: true, of: (row) => row.usd || row.tokens, show: costOf },
    { name: "time", number: true, small: true, of: (row) => row.minutes, show: (row) => [fmt.s(row.minutes * 60), row.granted_minutes && el("span", { class: "ends" }, `of ${fmt.s(row.granted_minutes * 60)}`)] },
    some((row) => row.held) && { name: "held", small: true, of: (row) => row.held, show: (row) => (nothingAt(row.held) ? dash : row.held ? "yes" : "no") },
  ].filter(Boolean);
}
// Buttons for each value that a row has, and words; `apply` gets what fits. `picked` outlives a page drawn anew.
function filters(rows, picked, kinds, words, apply) {
  const fits = (row) => kinds.every((kind) => !picked.hidden.has(`${kind.name} ${kind.of(row)}`)) && (!picked.words || words(row).toLowerCase().includes(picked.words));
  const set = () => { for (const one of box.querySelectorAll(".pick")) one.setAttribute("aria-pressed", String(!picked.hidden.has(one.dataset.key))); apply(rows.filter(fits)); };
  const groups = kinds.map((kind) => {
    const counts = new Map();
    for (const row of rows) counts.set(kind.of(row), (counts.get(kind.of(row)) || 0) + 1);
    if (counts.size < 2) return null;
    return [...counts].sort().map(([value, count]) => { const key = `${kind.name} ${value}`; return el("button", { class: "pick round", type: "button", "data-key": key, onclick: () => { if (!picked.hidden.delete(key)) picked.hidden.add(key); set(); } }, kind.dot && el("span", { class: `dot f-${kind.dot(value)}` }), kind.words(value), el("span", { class: "faint num" }, count)); });
  });
  const search = el("input", { type: "search", placeholder: "find a problem ( / )", "aria-label": "find a problem", value: picked.words, oninput: () => { picked.words = search.value.toLowerCase(); set(); } });
  const all = el("button", { class: "ghost", type: "button", onclick: () => { picked.hidden.clear(); picked.words = ""; search.value = ""; set(); } }, "all");
  const box = el("div", { class: "tools", role: "group", "aria-label": "Filters" }, groups, all, search);
  return { box, set };
}
const BY_OUTCOME = { name: "outcome", of: (row) => row.status, words: (value) => (ENDS[value] || ["", value])[1], dot: (value) => (ENDS[value] || ["level"])[0] };
const BY_AUTHOR = { name: "author", of: (row) => row.authorship || "no kernel", words: (value) => value };
const BY_LEVEL = { name: "level", of: (row) => row.level, words: (value) => value || "no folder" };

function suiteHeader(suite) {
  const device = suite.devices.join(", ");
  byId("top").replaceChildren(el("h1", null, suite.name), el("span", { class: "chip" }, el("span", { class: `dot ${suite.state}` }), suite.state), suite.targets.length > 0 && el("span", { class: "chip" }, el("b", null, suite.targets.join(", ")), device), el("span", { class: "grow" }), el("span", { class: "small faint hide-small", title: suite.directory }, suite.source), themeButton());
}
function suiteProgress(suite) {
  const { progress } = suite, words = [`${fmt.count(progress.ended)} of ${fmt.many(progress.problems, "problem")} played`, progress.failed && `${fmt.count(progress.failed)} failed`, progress.under_way && `${fmt.count(progress.under_way)} under way`, progress.waiting && `${fmt.count(progress.waiting)} waiting`].filter(Boolean).join(", ");
  const search = budgetBar("problems played", progress.share, progress.left_s ? `~${fmt.about(progress.left_s)} left` : fmt.percent(progress.share), false);
  return card(suite.state === "running" ? "Under way" : suite.state === "stopped" ? "Stopped" : "Played", { note: words }, el("div", { class: "bars" }, search, budgetBars(suite.spent)));
}
function suiteHero(suite) {
  const { sums } = suite, share = (count) => (sums.problems ? fmt.percent(count / sums.problems) : dash), mean = sums.eager.over_all;
  const rows = [
    figure("kernels that are right", `${fmt.count(sums.correct)} of ${fmt.count(sums.problems)}`, share(sums.correct)),
    figure("faster than eager", fmt.percent(sums.eager.fast["1"]), "of all problems, fast_1"), figure("twice as fast", fmt.percent(sums.eager.fast["2"]), "fast_2"),
    figure("over torch.compile", fmt.times(sums.versus_compile.over_all), `mean, ${fmt.percent(sums.versus_compile.fast["1"])} faster`),
    sums.confirmed > 0 && figure("held", `${fmt.count(sums.held)} of ${fmt.count(sums.confirmed)}`, "judged once more"),
    figure("cost", sums.usd ? fmt.usd(sums.usd) : fmt.s(suite.spent.charged_s), [fmt.many(sums.evaluations, "verdict"), sums.usd ? fmt.s(suite.spent.charged_s) : "", sums.tokens ? `${fmt.count(sums.tokens)} tokens` : ""].filter(Boolean).join(", ")),
  ].filter(Boolean);
  const big = el("div", { class: "big" }, el("strong", { class: mean ? "" : "none" }, mean ? fmt.times(mean) : dash), el("span", null, el("b", null, "over eager PyTorch"), "geometric mean over all problems; an original counts 1"));
  return el("section", { class: "card", "aria-label": "Result" }, big, el("dl", { class: "figures" }, rows));
}
function gridTable(grid) {
  return el("div", { class: "wide" }, el("table", null, el("thead", null, el("tr", null, grid.head.map((name, at) => el("th", { class: at ? "num" : "", scope: "col" }, name)))), el("tbody", null, grid.lines.map((row) => el("tr", null, row.map((cell, at) => el("td", { class: at ? "num" : "" }, cell)))))));
}
const pickedNow = () => ({ hidden: new Set(), words: "", sort: {} });
function drawSuite(suite, link, picked) {
  const table = sortable(problemColumns(suite.rows, link), suite.rows, { first: "problem", down: false, count: 300, kept: picked.sort });
  const filter = filters(suite.rows, picked, [BY_OUTCOME, BY_AUTHOR, BY_LEVEL], (row) => `${row.problem} ${row.status} ${row.authorship || ""} ${row.reason || ""} ${(row.notes || []).join(" ")}`, table.set);
  suiteHeader(suite);
  byId("main").replaceChildren(...[suite.state !== "finished" && suiteProgress(suite), suiteHero(suite), card("Problems", { kind: "long", id: "problems", note: "Ratios are paired, of the second judgement, with 95 % intervals. A name leads to the problem's run." }, filter.box, el("div", { class: "wide problems" }, table.box)),
    card("What it comes to", { kind: "long" }, el("div", { class: "grids" }, suite.grids.map(gridTable)), el("ul", { class: "notes", style: { "margin-top": "16px" } }, suite.notes.map((one) => el("li", null, one)), suite.devices.length > 1 && el("li", null, "Times of different devices are not compared."))), commandsCard(suite), el("footer", null, `${suite.made_by} \u00b7 ${suite.directory}`)].filter(Boolean));
  filter.set();
}
// Several suites: what changed from the first to each other, and a table by problem.
const METRICS = {
  "over eager": { of: (row) => row.speedup, show: (row) => withEnds(fmt.times(row.speedup), fmt.interval(row.speedup_interval)) }, "over compile": { of: (row) => row.versus_compile, show: (row) => withEnds(fmt.times(row.versus_compile), fmt.interval(row.versus_compile_interval)) },
  "of the limit": { of: (row) => row.reached, show: (row) => withEnds(fmt.percent(row.reached), percents(row.reached_interval)) }, "kernel time": { of: (row) => row.kernel_us, show: (row) => fmt.us(row.kernel_us) },
  judged: { of: (row) => row.evaluations, show: (row) => fmt.count(row.evaluations) }, cost: { of: (row) => row.usd || row.tokens, show: costOf }, time: { of: (row) => row.minutes * 60, show: (row) => fmt.s(row.minutes * 60) },
};
const letter = (index) => String.fromCharCode(65 + (index % 26));
function suitesTable(suites) {
  return sortable([
    { name: "suite", of: (one) => one.at, show: (one) => [el("b", null, `${letter(one.at)}  ${one.name}`), el("span", { class: "title faint small", title: one.directory }, one.directory)] },
    { name: "device", small: true, of: (one) => one.devices.join(), show: (one) => one.devices.join(", ") || dash }, { name: "by", small: true, of: (one) => one.provider, show: (one) => one.provider },
    { name: "right", number: true, of: (one) => one.sums.correct, show: (one) => `${fmt.count(one.sums.correct)} of ${fmt.count(one.sums.problems)}` },
    { name: "fast_1", number: true, of: (one) => one.sums.eager.fast["1"], show: (one) => fmt.percent(one.sums.eager.fast["1"]) }, { name: "fast_2", number: true, small: true, of: (one) => one.sums.eager.fast["2"], show: (one) => fmt.percent(one.sums.eager.fast["2"]) },
    { name: "mean over eager", number: true, of: (one) => one.sums.eager.over_all, show: (one) => fmt.times(one.sums.eager.over_all) }, { name: "mean over compile", number: true, small: true, of: (one) => one.sums.versus_compile.over_all, show: (one) => fmt.times(one.sums.versus_compile.over_all) },
    { name: "judged", number: true, small: true, of: (one) => one.sums.evaluations, show: (one) => fmt.count(one.sums.evaluations) }, { name: "cost", number: true, small: true, of: (one) => one.sums.usd || one.sums.tokens, show: (one) => costOf(one.sums) }, { name: "time", number: true, small: true, of: (one) => one.spent.charged_s, show: (one) => fmt.s(one.spent.charged_s) },
  ], suites.map((one, at) => ({ ...one, at })), { first: "suite", down: false });
}
// The share of problems with a kernel at least so many times as fast as eager PyTorch, over that factor.
function shares(suites, box) {
  const speeds = suites.map((suite) => suite.rows.filter((row) => row.correct && row.speedup).map((row) => row.speedup)), high = Math.max(2, ...speeds.flat()) * 1.1, xs = [];
  for (let at = 0; at <= 240; at += 1) xs.push(0.5 * (high / 0.5) ** (at / 240));
  const lines = suites.map((suite, index) => xs.map((x) => (speeds[index].filter((one) => one >= x).length / Math.max(1, suite.rows.length)) * 100));
  return plot(box, { scales: { x: { time: false, distr: 3, log: 10, range: () => [0.5, high] }, y: { range: () => [0, 101] } }, axes: [axis("times as fast as eager PyTorch, or more", { splits: () => ticksOf(0.5, high), values: (u, all) => all.map((one) => `${one}\u00d7`), filter: (u, all) => all }), axis("share of the problems", { size: 46, values: (u, all) => all.map((one) => `${one} %`) })], series: [{}, ...suites.map((suite, index) => ({ stroke: colour(PAINTS[index % PAINTS.length]), width: 2.2, points: { show: false } }))] }, [xs, ...lines],
    key(suites.map((suite, index) => [PAINTS[index % PAINTS.length], `${letter(index)}  ${suite.name}`])));
}
function byProblem(suites, against) {
  const names = [...new Set(suites.flatMap((suite) => suite.rows.map((row) => row.problem)))], of = suites.map((suite) => new Map(suite.rows.map((row) => [row.problem, row])));
  return names.map((problem) => ({ problem, rows: of.map((one) => one.get(problem) || null), changes: against.map((one) => one.changes[problem] || null) }));
}
function changeColumns(suites, against, metric) {
  const { of, show } = METRICS[metric], cell = (row) => (row ? (row.correct || !["over eager", "over compile", "of the limit", "kernel time"].includes(metric) ? show(row) : ended(row)) : dash);
  const where = (row, at) => row.rows[at] && row.rows[at].page;
  return [
    { name: "problem", of: (row) => row.problem, show: (row) => el("span", { class: "title", title: row.problem }, row.problem) },
    ...suites.map((suite, at) => ({ name: letter(at), number: true, of: (row) => (row.rows[at] ? of(row.rows[at]) : null), show: (row) => (where(row, at) ? el("a", { href: where(row, at), class: "plainly" }, cell(row.rows[at])) : cell(row.rows[at])) })),
    ...against.flatMap((one, index) => [
      { name: `${letter(index + 1)} over A`, number: true, of: (row) => row.changes[index] && row.changes[index].ratio, show: (row) => fmt.times(row.changes[index] ? row.changes[index].ratio : null) },
      { name: suites.length > 2 ? `A to ${letter(index + 1)}` : "change", of: (row) => row.changes[index] && row.changes[index].change, show: (row) => changeBadge(row.changes[index]) },
    ]),
  ];
}
const CHANGES = { gained: "faster", faster: "faster", lost: "wrong", slower: "build_error", "within noise": "level", "no kernel in either": "slower", "other device": "suspect" };
function changeBadge(one) { return one ? el("span", { class: "badge" }, el("span", { class: `dot f-${CHANGES[one.change]}`, style: { "border-radius": "50%" } }), one.change) : el("span", { class: "faint" }, "in one alone"); }

function drawSuites(found, picked) {
  const { suites, against_first: against } = found, rows = byProblem(suites, against), held = el("span"), inside = el("div", { class: "wide problems" }), box = el("div", { class: "plot" });
  const kind = { name: "change", of: (row) => (row.changes[0] ? row.changes[0].change : "in one alone"), words: (value) => value, dot: (value) => CHANGES[value] || "unwritten" };
  let table = null;
  const filter = filters(rows, picked, [kind], (row) => `${row.problem} ${row.changes.map((one) => one && one.change).join(" ")} ${row.rows.map((one) => one && one.status).join(" ")}`, (fit) => table.set(fit));
  const draw = (metric) => { picked.metric = metric; held.replaceChildren(tabs("what is compared", Object.keys(METRICS), metric, draw)); table = sortable(changeColumns(suites, against, metric), rows, { first: "problem", down: false, count: 300, kept: picked.sort }); inside.replaceChildren(table.box); filter.set(); };
  byId("top").replaceChildren(el("h1", null, `${suites.length} suites`), el("span", { class: "grow" }), themeButton());
  const accounts = against.map((one, index) => [el("h3", { style: { margin: "10px 0 4px" } }, `From A to ${letter(index + 1)}  ${suites[index + 1].name}`), el("ul", { class: "notes" }, one.account.map((words) => el("li", null, words.replace(/^B over A/, `${letter(index + 1)} over A`))))]);
  byId("main").replaceChildren(card("Suites", { kind: "long" }, el("div", { class: "wide" }, suitesTable(suites).box)), card("How fast, of how many", { kind: "half" }, box), card("What changed", { kind: "half" }, accounts, el("ul", { class: "notes", style: { "margin-top": "12px" } }, suites[0].notes.map((one) => el("li", null, one)))),
    card("Problems, side by side", { kind: "long", id: "problems", tools: held }, filter.box, inside), el("footer", null, suites[0].made_by));
  draw(picked.metric || "over eager");
  return shares(suites, box);
}
function commandsCard(suite) { return card("To go on", { kind: "long" }, commandRows(suite.commands)); }

function beginSuites(found) {
  const picked = pickedNow();
  let end = () => {};
  const draw = () => { end(); end = found.suites.length > 1 ? drawSuites(found, picked) : (drawSuite(found.suites[0], (row) => row.page, picked), () => {}); };
  draw();
  addEventListener("themed", draw);
  searchKey();
}
function searchKey() {
  addEventListener("keydown", (event) => { const box = document.querySelector("input[type=search]"); if (event.key === "/" && box && document.activeElement !== box) { event.preventDefault(); box.focus(); } else if (event.key === "Escape" && document.activeElement === box) box.blur(); });
}
