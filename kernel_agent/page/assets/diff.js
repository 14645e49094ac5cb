// Lines of two texts as [sign, line, number before, number after], by the shortest edit script of the differing middle.
function diffLines(before, after) {
  const a = before.split("\n"), b = after.split("\n");
  let start = 0, end = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end += 1;
  const x = a.slice(start, a.length - end), y = b.slice(start, b.length - end), rows = [];
  for (let i = 0; i < start; i += 1) rows.push([" ", a[i], i + 1, i + 1]);
  for (const [sign, i, j] of x.length * y.length > 4e6 ? replaced(x, y) : edits(x, y)) {
    rows.push([sign, sign === "+" ? y[j] : x[i], sign === "+" ? null : start + i + 1, sign === "-" ? null : start + j + 1]);
  }
  for (let i = a.length - end, j = b.length - end; i < a.length; i += 1, j += 1) rows.push([" ", a[i], i + 1, j + 1]);
  return rows;
}
const replaced = (x, y) => [...x.map((_, i) => ["-", i, 0]), ...y.map((_, j) => ["+", 0, j])];
function edits(x, y) {
  const width = y.length + 1, common = new Uint32Array((x.length + 1) * width);
  for (let i = x.length - 1; i >= 0; i -= 1) {
    for (let j = y.length - 1; j >= 0; j -= 1) {
      const at = i * width + j;
      common[at] = x[i] === y[j] ? common[at + width + 1] + 1 : Math.max(common[at + width], common[at + 1]);
    }
  }
  const rows = [];
  let i = 0, j = 0;
  while (i < x.length || j < y.length) {
    if (i < x.length && j < y.length && x[i] === y[j]) { rows.push([" ", i, j]); i += 1; j += 1; }
    else if (j >= y.length || (i < x.length && common[(i + 1) * width + j] >= common[i * width + j + 1])) { rows.push(["-", i, j]); i += 1; }
    else { rows.push(["+", i, j]); j += 1; }
  }
  return rows;
}
const WORDS = new Set(("alignas auto bool break case char class const constexpr continue def del do double elif else enum except extern false False finally float for from goto if import in inline int int64_t is lambda long namespace None not or and pass raise return self short signed sizeof static struct switch template this throw true True try typedef typename uint32_t uint64_t uint8_t union unsigned using virtual void volatile while with yield " +
  "__global__ __device__ __host__ __shared__ __restrict__ __forceinline__ __launch_bounds__ half float2 float4 dim3 size_t").split(" "));
const TOKEN = /(\/\/.*|#(?!include|pragma|define|if|else|endif).*|\/\*.*?\*\/)|("(?:\\.|[^"\\])*"?|'(?:\\.|[^'\\])*'?)|(#\w+|\b[A-Za-z_]\w*\b)|(\b\d[\w.]*)/g;
// A line of Python or C++ as spans; what is no token stays plain text.
function coloured(line) {
  if (line.length > 600) return [line];
  const parts = [];
  let last = 0;
  for (const found of line.matchAll(TOKEN)) {
    const kind = found[1] ? "c" : found[2] ? "s" : found[4] ? "d" : WORDS.has(found[3]) || found[3].startsWith("#") ? "k" : "";
    if (!kind) continue;
    parts.push(line.slice(last, found.index), el("span", { class: kind }, found[0]));
    last = found.index + found[0].length;
  }
  parts.push(line.slice(last));
  return parts;
}
const AROUND = 4;
function diffTable(before, after) {
  const rows = diffLines(before, after), body = el("tbody"), near = new Uint8Array(rows.length);
  rows.forEach((row, at) => { if (row[0] !== " ") near.fill(1, Math.max(0, at - AROUND), at + AROUND + 1); });
  const line = ([sign, text, a, b]) => el("tr", { class: sign === "+" ? "add" : sign === "-" ? "cut" : "" }, el("td", { class: "n" }, a ?? ""), el("td", { class: "n" }, b ?? ""), el("td", null, sign === " " ? "  " : `${sign} `, sign === " " ? coloured(text) : text));
  for (let at = 0; at < rows.length;) {
    if (near[at]) { body.append(line(rows[at])); at += 1; continue; }
    let end = at;
    while (end < rows.length && !near[end]) end += 1;
    const hidden = rows.slice(at, end), fold = el("tr", { class: "fold" });
    fold.append(el("td", { colspan: 3 }, el("button", { type: "button", onclick: () => fold.replaceWith(...hidden.map(line)) }, `${fmt.many(hidden.length, "equal line")}`)));
    body.append(fold);
    at = end;
  }
  return el("table", { class: "diff" }, body);
}
function sourceTable(source, spots) {
  const heat = new Map((spots || []).map((spot) => [spot.line, spot])), most = Math.max(1, ...[...heat.values()].map((one) => one.share_pct));
  const rows = source.split("\n").map((text, index) => {
    const spot = heat.get(index + 1), tint = spot && { background: `rgba(var(--hot), ${(0.1 + 0.4 * (spot.share_pct / most)).toFixed(2)})` };
    return el("tr", { style: tint, title: spot && spot.waits ? `warps wait: ${spot.waits}` : null }, heat.size > 0 && el("td", { class: "heat" }, spot ? `${digits(spot.share_pct, 2)} %` : ""), el("td", { class: "n" }, index + 1), el("td", null, coloured(text)));
  });
  return el("table", { class: "source" }, el("tbody", null, rows));
}
