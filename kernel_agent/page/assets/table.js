const NATURAL = new Intl.Collator("en", { numeric: true });
// A table that sorts by its heads; beyond some rows it grows on demand.
function sortable(columns, rows, { first, down = true, go = null, count = 60, kept = {} }) {
  const known = columns.some((one) => one.name === kept.by);
  let by = known ? kept.by : first, falling = known ? kept.falling : down, shown = count;
  const body = el("tbody"), head = el("tr"), more = el("button", { class: "ghost more", type: "button", onclick: () => { shown += 400; draw(); } }), box = el("div", null, el("table", null, el("thead", null, head), body), more);
  let all = rows;
  const value = (row) => columns.find((one) => one.name === by).of(row);
  const order = (a, b) => { const [x, y] = [value(a), value(b)]; if (x === y) return 0; if (x === null || x === undefined) return 1; if (y === null || y === undefined) return -1; return (typeof x === "string" ? NATURAL.compare(x, y) : x - y) * (falling ? -1 : 1); };
  function draw() {
    head.replaceChildren(...columns.map((one) => el("th", { class: `${one.number ? "num" : ""} ${one.small ? "hide-small" : ""}`, scope: "col", "aria-sort": one.name === by ? (falling ? "descending" : "ascending") : "none" }, el("button", { type: "button", onclick: () => { falling = one.name === by ? !falling : Boolean(one.number); by = one.name; Object.assign(kept, { by, falling }); draw(); } }, one.name))));
    body.replaceChildren(...[...all].sort(order).slice(0, shown).map((row) => el("tr", { class: go ? "go" : "", onclick: go && (() => go(row)) }, columns.map((one) => el("td", { class: `${one.number ? "num" : ""} ${one.small ? "hide-small" : ""}` }, one.show(row, go))))));
    more.hidden = all.length <= shown;
    more.textContent = `${fmt.count(all.length - shown)} more`;
  }
  draw();
  return { box, set: (next) => { all = next; draw(); } };
}
function trialTable(state) {
  const named = (row) => el("a", { href: `#${row.id}`, class: "title", title: row.title, onclick: (event) => { event.preventDefault(); event.stopPropagation(); state.choose(row.id); } }, row.title);
  return sortable([
    { name: "trial", of: (row) => row.title, show: named },
    { name: "outcome", of: (row) => STATUS[outcome(row)], show: (row) => badge(outcome(row)) },
    { name: "speed-up", number: true, of: (row) => (row.status === "passed" ? row.speedup : null), show: (row) => (row.status === "passed" ? [fmt.times(row.speedup), el("span", { class: "faint hide-small" }, row.kind === "original" ? "" : ` ${fmt.interval(row.speedup_interval)}`)] : dash) },
    { name: "over parent", number: true, small: true, of: (row) => row.gain, show: (row) => fmt.times(row.gain) },
    { name: "time", number: true, small: true, of: (row) => row.time_us, show: (row) => fmt.us(row.time_us) },
    { name: "error", number: true, small: true, of: (row) => row.error_units, show: (row) => (row.error_units === null || row.error_units === undefined ? dash : digits(row.error_units)) },
    { name: "round", number: true, small: true, of: (row) => row.round, show: (row) => row.round },
    { name: "kind", small: true, of: (row) => row.kind, show: (row) => row.kind },
  ], state.facts.trials.filter(state.fits), { first: "speed-up", go: (row) => state.choose(row.id) });
}
