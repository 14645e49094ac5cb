// One trial, whole: what was to be done, what came of it, and the code.
async function openDetail(state, id) {
  const trial = state.byId.get(id), box = byId("detail");
  const texts = await state.textsOf(id);
  if (state.open !== id) return;
  const order = state.facts.trials.map((one) => one.id), at = order.indexOf(id);
  const step = (by, words, sign) => el("button", { class: "ghost", type: "button", "aria-label": words, disabled: order[at + by] === undefined, onclick: () => state.choose(order[at + by]) }, sign);
  const bar = el("div", { class: "bar" }, badge(outcome(trial)), el("span", { class: "faint small mono" }, trial.kind === "original" ? "" : `${short(id)} \u00b7 round ${trial.round}`), el("span", { class: "grow" }),
    step(-1, "the trial before", "\u2190"), step(1, "the next trial", "\u2192"), el("button", { class: "ghost", type: "button", "aria-label": "close", onclick: () => state.choose(null) }, "\u2715"));
  box.replaceChildren(bar, el("div", { class: "body" }, el("p", { class: "title" }, trial.title), lineagePath(state, trial), numbers(state, trial), promise(state, trial), ideaParts(state, trial, texts), code(state, trial, texts), passagesOf(trial, texts)));
  box.hidden = false; box.scrollTop = 0;
}
function lineagePath(state, trial) {
  const path = [];
  for (let at = trial; at; at = state.byId.get(at.parent)) path.unshift(at);
  if (path.length < 2) return null;
  if (path.length > 7) path.splice(1, path.length - 6, null);
  const rows = path.map((one, index) => one === null ? [el("span", { class: "faint" }, "\u203a \u2026")] : [index > 0 && el("span", { class: "faint" }, "\u203a"), el("button", { type: "button", title: one.title, "aria-current": one === trial ? "true" : null, onclick: () => state.choose(one.id) }, one.kind === "original" ? "original" : `${one.speedup ? fmt.times(one.speedup) : short(one.id)} ${one.title}`)]);
  return el("nav", { class: "path", "aria-label": "lineage" }, rows);
}
function figure(name, value, note) { return el("div", null, el("dt", null, name), el("dd", null, value, note && el("small", null, note))); }
function numbers(state, trial) {
  const rows = [], again = trial.again;
  if (trial.speedup && trial.kind !== "original") rows.push(figure("over eager", fmt.times(trial.speedup), fmt.interval(trial.speedup_interval)));
  if (again) rows.push(figure("judged again", again.speedup ? fmt.times(again.speedup) : STATUS[again.status] || again.status, trial.stands ? `${fmt.interval(again.speedup_interval)}, stands` : "does not stand"));
  if (again && again.versus_compile) rows.push(figure("over torch.compile", fmt.times(again.versus_compile), "in the second judgement"));
  if (trial.time_us) rows.push(figure("a call", fmt.us(trial.time_us), trial.time_us_interval && `[${trial.time_us_interval.map(fmt.us).join(", ")}]`));
  if (trial.error_units !== null && trial.error_units !== undefined) rows.push(figure("error", digits(trial.error_units), `of ${digits(trial.allowed_units)} units allowed`));
  if (trial.authorship) rows.push(figure("whose work", trial.authorship));
  if (trial.profile && trial.profile.bound !== "unknown") rows.push(figure("bound by", trial.profile.bound, `read off ${trial.profile.rung}`));
  if (Object.keys(trial.tuned).length) rows.push(figure("swept", el("span", { class: "mono", style: { "font-size": "14px", "font-weight": "500", "overflow-wrap": "anywhere" } }, Object.entries(trial.tuned).map(([name, value]) => `${name} = ${value}`).join(", "))));
  const took = trial.judging_s && ["queue_s", "prepare_s", "build_s", "held_s"].filter((name) => trial.judging_s[name] > 0).map((name) => `${{ queue_s: "waited", prepare_s: "prepared", build_s: "built", held_s: "measured" }[name]} ${fmt.s(trial.judging_s[name])}`).join(", ");
  return [rows.length > 0 && el("dl", { class: "figures" }, rows), took && el("p", { class: "faint small" }, took)];
}
// What the idea promised over its parent, and what it brought.
function promise(state, trial) {
  const idea = state.ideas.get(trial.idea);
  if (!idea || !idea.predicted || trial.step > 0) return null;
  const came = trial.gain, most = Math.max(idea.predicted, came || 0, 1);
  const row = (name, kind, value) => el("div", { class: kind }, el("span", { class: "soft" }, name), el("i", { style: { width: `${((value || 0) / most) * 100}%` } }), el("span", { class: "num" }, value ? fmt.times(value) : STATUS[outcome(trial)]));
  return el("section", { class: "promise", "aria-label": "Prediction against outcome" }, el("h3", null, "Prediction against outcome, over its parent"), row("promised", "", idea.predicted), row("came", came && came >= idea.predicted * 0.9 ? "came" : "short", came));
}
function ideaParts(state, trial, texts) {
  const idea = texts.ideas[trial.idea];
  if (!idea) return null;
  const parts = [["Bottleneck", idea.bottleneck], ["Transformation", idea.transformation], ["Reasoning", idea.reasoning], ["Predicted gain", idea.predicted_gain], ["Risk", idea.risk]].filter(([, words]) => words);
  const genes = Object.entries(idea.genes);
  if (!parts.length && !genes.length) return null;
  return el("section", { class: "parts", "aria-label": "Idea" },
    parts.map(([name, words]) => el("div", null, el("h3", null, name), el("p", null, words))),
    genes.length > 0 && el("div", null, el("h3", null, "Template's genes"), el("p", { class: "mono genes" }, genes.map(([name, value]) => el("span", null, `${name} = ${value}`)))));
}
// Prose that a page breaks at its own width, with a paragraph on one line; code, lists and tables stay as they are.
function flowed(text) {
  const rows = [];
  let fenced = false, open = false;
  for (const line of text.split("\n")) {
    const fence = line.startsWith("```"), prose = !fenced && !fence && /^[^\s|#>]/.test(line) && !/^([-*]|\d+\.) /.test(line);
    if (prose && open) rows[rows.length - 1] += ` ${line}`; else rows.push(line);
    if (fence) fenced = !fenced;
    open = !fenced && !fence && line.length > 60 && !/^[|#>]|^ {4}/.test(line);
  }
  return rows.join("\n");
}
// What the library gave for the idea, with where it stands.
function passagesOf(trial, texts) {
  const idea = texts.ideas[trial.idea];
  if (!idea || !idea.passages.length) return null;
  const read = idea.passages.map((id) => texts.passages[id]).filter(Boolean), gone = idea.passages.length - read.length;
  return el("section", { "aria-label": "Passages" }, el("h3", { style: { "margin-bottom": "6px" } }, "Read for it"), read.map((passage) => el("details", null, el("summary", null, passage.title, passage.heading && el("span", { class: "soft" }, ` \u00b7 ${passage.heading}`), el("span", { class: "faint mono" }, ` ${passage.source}`)), el("pre", null, flowed(passage.text)))), gone > 0 && el("p", { class: "faint small" }, `${fmt.many(gone, "passage")} of pages that have changed since, or of another machine's library`));
}
function code(state, trial, texts) {
  const parent = state.byId.get(trial.parent), source = texts.sources[trial.source] ?? "", before = parent && texts.sources[parent.source];
  const profile = texts.profiles[trial.source], log = texts.logs[trial.source], again = texts.again[trial.source];
  const views = {};
  if (before !== undefined && parent && parent.kind !== "original") views.Diff = () => diffTable(before, source);
  views.Source = () => sourceTable(source, profile && profile.hot_spots);
  if (before !== undefined && parent && parent.kind === "original") views.Diff = () => diffTable(before, source);
  if (log) views.Log = () => el("pre", null, log);
  if (again) views["Second log"] = () => el("pre", null, again);
  if (profile) views.Profile = () => digest(profile);
  const names = Object.keys(views), failed = trial.status !== "passed" && log, pane = el("div", { class: "code", tabindex: "0" });
  const section = el("section", { "aria-label": "Code" });
  const show = (name) => {
    pane.replaceChildren(views[name]());
    pane.scrollTop = 0;
    const button = el("button", { class: "ghost", type: "button", onclick: () => copy(source, button) }, "copy source");
    section.replaceChildren(el("div", { class: "tools" }, tabs("Code", names, name, show), el("span", { style: { flex: "1" } }), button), pane);
  };
  show(names.includes(state.view) ? state.view : failed ? "Log" : names[0]);
  return section;
}
function digest(profile) {
  const rows = [["Wrong", profile.findings], ["Warps wait", profile.stalls], ["Hot lines", profile.hot_lines], ["Rules of Nsight Compute", profile.rules], ["Launches", profile.launches], ["Numbers", profile.metrics]].filter(([, all]) => all && all.length);
  return el("pre", null, `${profile.bound === "unknown" ? "" : `bound by ${profile.bound}: `}${profile.why}\n`, rows.map(([name, all]) => `\n${name}\n${all.map((one) => `  ${one}`).join("\n")}\n`), profile.report ? `\nwhole report: read_report ${profile.report}, of the measuring server\n` : "");
}
