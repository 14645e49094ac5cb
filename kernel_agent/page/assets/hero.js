// What was found, in ten seconds: the number, how sure it is, and the times side by side.
function rivals(facts) { return facts.headline.versus.filter((one) => one.compiled).sort((a, b) => a.time_us - b.time_us); }

function header(facts) {
  const words = { running: "running", finished: "finished", stopped: "stopped" }[facts.state];
  const device = facts.device.name + (facts.device.threads ? `, ${fmt.many(facts.device.threads, "thread")}` : "");
  byId("top").replaceChildren(el("h1", null, facts.name), el("span", { class: "chip" }, el("span", { class: `dot ${facts.state}` }), words), el("span", { class: "chip" }, el("b", null, facts.target), device),
    el("span", { class: "grow" }), el("span", { class: "small faint num hide-small", title: facts.directory }, fmt.date(facts.began)), themeButton());
}
function themeButton() {
  const root = document.documentElement;
  return el("button", { class: "ghost", type: "button", id: "theme", "aria-label": "light or dark", onclick: () => { root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark"; dispatchEvent(new Event("themed")); } });
}
function verdictOf(facts) {
  const head = facts.headline, judged = head.again.find((one) => one.trial === head.trial), going = facts.state === "running";
  if (head.sure === "confirmed") return ["yes", "\u2713", "Confirmed: judged a second time with new secret inputs in fresh processes, as the file that is delivered."];
  if (head.sure === "first") {
    if (judged && !judged.stands) return ["no", "!", `Faster at first, but its second judgement did not hold (${judged.status === "passed" ? judged.why || "not surely faster" : STATUS[judged.status] || judged.status}); the original is delivered.`];
    if (facts.state === "finished") return ["no", "!", "By its first judgement alone; nothing was surely faster than the original, which is delivered."];
    return ["no", "!", `By its first judgement${going ? "; the best is judged a second time at the end." : ": the run was stopped before the second one."}`];
  }
  if (facts.kept) return ["", "\u2013", `The original is delivered: ${facts.kept.reason}`];
  const judgedAny = facts.trials.length > 1;
  return ["", "\u2013", going ? "Nothing has passed faster than the original so far." : judgedAny && facts.state === "stopped" ? "Nothing was faster than the original when the run was stopped." : judgedAny ? "Nothing was faster than the original, which is delivered." : "Nothing was judged."];
}
function hero(facts) {
  const head = facts.headline, [kind, sign, words] = verdictOf(facts), rival = rivals(facts)[0];
  const none = head.sure === "none";
  const big = el("div", { class: "big" }, el("strong", { class: none ? "none" : "" }, none ? "1.00\u00d7" : fmt.times(head.speedup)), el("span", null, el("b", null, "against eager PyTorch"), none ? "no faster kernel" : el("span", { class: "num" }, fmt.interval(head.speedup_interval), " at 95 %")));
  const left = el("div", null, big, el("p", { class: "said" }, el("span", { class: `mark ${kind}`, "aria-hidden": "true" }, sign), words), !none && el("p", { class: "small soft", style: { "margin-top": "6px" } }, head.title), facts.kept && el("ul", { class: "small soft" }, facts.kept.parts.map((part) => el("li", null, part))), figures(facts, rival));
  return el("section", { class: "card hero", "aria-label": "Result" }, left, ladder(facts));
}
function figures(facts, rival) {
  const head = facts.headline, none = head.sure === "none", rows = [], spent = facts.spent;
  const mode = (one) => brief(one.title).replace("torch.compile", "").trim();
  if (rival && !none) rows.push(figure("over torch.compile", fmt.times(rival.speedup), [fmt.interval(rival.speedup_interval), rival.verdict === "inconclusive" ? "not told apart" : "", mode(rival)].filter(Boolean).join(", ")));
  else if (!none) { const fast = facts.baselines.filter((one) => one.compiled).sort((a, b) => a.time_us - b.time_us)[0]; if (fast) rows.push(figure("over torch.compile", fmt.times(fast.time_us / head.time_us), [mode(fast), "not timed side by side"].filter(Boolean).join(", "))); }
  if (head.reached) rows.push(figure("of the limit", fmt.percent(head.reached), facts.work.limit_rate || `limit ${fmt.us(facts.work.limit_us)}`));
  if (head.error_units !== null && head.error_units !== undefined) rows.push(figure("error", digits(head.error_units), `of ${digits(head.allowed_units)} units allowed`));
  const judged = facts.trials.filter((one) => one.kind !== "original").length;
  rows.push(figure("cost", spent.usd ? fmt.usd(spent.usd) : fmt.s(spent.charged_s), [fmt.many(judged, "trial"), spent.usd ? fmt.s(spent.charged_s) : "", spent.tokens ? `${fmt.count(spent.tokens)} tokens` : ""].filter(Boolean).join(", ")));
  return el("dl", { class: "figures" }, rows);
}
// The times of one call, the longest bar the slowest; the intervals are theirs.
function ladder(facts) {
  const head = facts.headline, none = head.sure === "none", beside = rivals(facts).length > 0, known = new Map((beside ? [] : facts.baselines).map((one) => [one.title, { ...one, kind: one.compiled ? "aside" : "" }]));
  for (const one of head.versus) known.set(one.title, { ...one, kind: "" });
  const rows = [...known.values()].map((one) => ({ name: one.title, us: one.time_us, ends: one.time_us_interval, kind: one.kind })).sort((a, b) => b.us - a.us);
  if (!none) rows.push({ name: "this kernel", us: head.time_us, ends: head.time_us_interval, kind: "own" });
  if (facts.work.limit_us) rows.push({ name: "the limit", us: facts.work.limit_us, kind: "limit" });
  const most = Math.max(...rows.map((one) => Math.max(one.us, one.ends ? Math.min(one.ends[1], one.us * 1.4) : 0))), at = (us) => `${Math.min(100, (us / most) * 100)}%`;
  const drawn = rows.map((row) => el("div", { class: `rung ${row.kind}` }, el("span", { title: row.name }, brief(row.name)), el("div", { class: "track" }, el("div", { class: "bar", style: { width: at(row.us) } }), row.ends && el("div", { class: "whisker", style: { left: at(row.ends[0]), width: `calc(${at(row.ends[1])} - ${at(row.ends[0])})` } })), el("span", { class: "num" }, fmt.us(row.us))));
  const aside = rows.some((one) => one.kind === "aside") ? " Hollow bars were timed before the search, not beside it." : "";
  return el("div", { class: "ladder", role: "group", "aria-label": "Time of one call" }, el("h3", null, "Time of one call, with its 95 % interval"), drawn,
    el("p", null, `Eager PyTorch and the kernel take turns on the same secret inputs, and the speed-up is paired.${aside}${facts.work.limit_us ? ` The limit is ${fmt.bytes(facts.work.moved_bytes)}${facts.work.flops ? ` and ${fmt.work(facts.work.flops)}` : ""} at measured rates.` : ""}`));
}
function budgetBar(name, share, words, warns = true) {
  return el("div", { class: "budgeted" }, el("span", null, name), el("div", { class: `budget${warns && share > 0.9 ? " near" : ""}`, role: "progressbar", "aria-valuenow": Math.round(share * 100), "aria-valuemin": 0, "aria-valuemax": 100, "aria-label": name }, el("i", { style: { width: `${Math.min(100, share * 100)}%` } })), el("span", { class: "num" }, words));
}
// What is used of each limit.
function budgetBars(spent) {
  const { limits } = spent;
  return [
    limits.minutes && budgetBar(`of ${digits(limits.minutes)} minutes`, spent.charged_s / 60 / limits.minutes, fmt.s(spent.charged_s)),
    limits.usd && budgetBar(`of ${fmt.usd(limits.usd)}`, (spent.usd || 0) / limits.usd, fmt.usd(spent.usd)),
    limits.tokens && budgetBar(`of ${fmt.count(limits.tokens)} tokens`, spent.tokens / limits.tokens, fmt.count(spent.tokens)),
  ].filter(Boolean);
}
const roundBar = (progress) => budgetBar(progress.round ? `round ${progress.round} of ${progress.rounds}` : "before the first round", progress.share, progress.left_s ? `~${fmt.about(progress.left_s)} left` : fmt.percent(progress.share), false);
function progressCard(facts) {
  const { progress } = facts;
  const flight = [progress.unwritten.length && `${fmt.many(progress.unwritten.length, "idea")} being written`, progress.waiting.length && `${fmt.many(progress.waiting.length, "kernel")} waiting for a verdict`, `${fmt.count(progress.judged)} judged`].filter(Boolean).join(", ");
  return card(facts.state === "running" ? "Under way" : "Stopped", { note: facts.state === "running" ? flight : `${flight}. The command below goes on with it.` }, el("div", { class: "bars" }, roundBar(progress), budgetBars(facts.spent)));
}
