// Elements are made here, and text becomes text: nothing of a run is ever read as markup.
const SVG = "http://www.w3.org/2000/svg";

function put(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, one] of Object.entries(value)) node.style.setProperty(key, one);
    else node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) node.append(child instanceof Node ? child : String(child));
  }
  return node;
}
const el = (name, attributes, ...children) => put(document.createElement(name), attributes, children);
const svg = (name, attributes, ...children) => put(document.createElementNS(SVG, name), attributes, children);
const byId = (name) => document.getElementById(name);

function card(title, extra, ...children) {
  const { kind = "", note = "", tools = null, id = null } = extra || {};
  const head = el("div", { class: "head" }, el("h2", null, title), el("span", { class: "grow" }), tools, note && el("p", null, note));
  return el("section", { class: `card ${kind}`, id, "aria-label": title }, head, ...children);
}
function tabs(label, names, chosen, choose) {
  const all = names.map((name) => el("button", { class: "ghost", type: "button", "aria-pressed": String(name === chosen), onclick: () => choose(name) }, name));
  return el("div", { class: "tabs", role: "group", "aria-label": label }, all);
}
function tell(words) { byId("said").textContent = words; }

// Draws a part when it comes near the view, or is printed, and from then on whenever the page is drawn again.
function later(state, name, box, draw) {
  const now = () => { watch.disconnect(); removeEventListener("beforeprint", now); state.pending.delete(name); state.drawn.add(name); draw(); };
  const watch = new IntersectionObserver((seen) => { if (seen.some((one) => one.isIntersecting)) now(); }, { rootMargin: "500px" });
  state.undo.push(() => { watch.disconnect(); removeEventListener("beforeprint", now); });
  if (state.drawn.has(name)) { draw(); return; }
  state.pending.set(name, now);
  watch.observe(box);
  addEventListener("beforeprint", now);
}

async function unpacked(name) {
  const packed = byId(name).textContent.trim();
  if (!packed) return null;
  if (!("DecompressionStream" in window)) throw new Error("This browser cannot unpack the run: use Chrome 80, Firefox 113, Safari 16.4 or newer.");
  const letters = atob(packed), bytes = new Uint8Array(letters.length);
  for (let at = 0; at < bytes.length; at += 1) bytes[at] = letters.charCodeAt(at);
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}

async function copy(words, button) {
  const before = button.textContent;
  try { await navigator.clipboard.writeText(words); } catch {
    const area = el("textarea", { class: "unseen" }); area.value = words; document.body.append(area); area.select();
    document.execCommand("copy"); area.remove();
  }
  button.textContent = "copied"; tell("copied");
  setTimeout(() => { button.textContent = before; }, 1200);
}

function tip(event, lines) {
  const box = byId("tip");
  if (!lines) { box.hidden = true; return; }
  box.replaceChildren(el("b", null, lines[0]), ...lines.slice(1).map((line) => el("div", null, el("span", null, line))));
  box.hidden = false;
  const { width, height } = box.getBoundingClientRect();
  const x = event.clientX + 14 + width > innerWidth ? event.clientX - width - 12 : event.clientX + 14;
  const y = event.clientY + 16 + height > innerHeight ? event.clientY - height - 10 : event.clientY + 16;
  box.style.left = `${Math.max(4, x)}px`; box.style.top = `${Math.max(4, y)}px`;
}
