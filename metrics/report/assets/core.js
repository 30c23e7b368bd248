// DOM, numbers and texts. Nothing here or elsewhere turns text into markup: `textContent` and attributes only.

const SVG = "http://www.w3.org/2000/svg";
const data = JSON.parse(document.getElementById("data").textContent);

/** An element; `attributes` may hold `class`, `on` (event -> handler), `style` (property -> value). */
function el(tag, attributes, ...children) {
  return build(document.createElement(tag), attributes, children);
}

function svg(tag, attributes, ...children) {
  return build(document.createElementNS(SVG, tag), attributes, children);
}

function build(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, handler] of Object.entries(value)) node.addEventListener(event, handler);
    else if (name === "style") for (const [property, v] of Object.entries(value)) node.style.setProperty(property, v);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(9)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : visible(String(child)));
  }
  return node;
}

const HIDDEN = /[\u0080-\u009f\u00ad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff]/g;
const CONTROL = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f]/g;
const LONE = /[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

/** The text with everything shown that a browser would hide or obey: control, direction and broken characters. */
function visible(text) {
  return text
    .replace(CONTROL, (c) => (c === "\u007f" ? "\u2421" : String.fromCharCode(0x2400 + c.charCodeAt(0))))
    .replace(HIDDEN, (c) => "\u27e8U+" + c.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0") + "\u27e9")
    .replace(LONE, "\ufffd");
}

/** Any JSON value as text for a reader. */
function asText(value) {
  if (value === null || value === undefined) return "";
  return typeof value === "string" ? value : JSON.stringify(value, null, 1);
}

function short(value, limit) {
  const text = asText(value)
    .slice(0, 4 * limit)
    .replace(/\s+/g, " ")
    .trim();
  return text.length > limit ? text.slice(0, limit - 1) + "…" : text;
}

const CLIP = 2400;

/** A text as it is, in a box; a long one is cut until the reader asks for all of it. */
function block(value, className) {
  const text = asText(value);
  const box = el("div", { class: "text " + (className || ""), dir: "auto" });
  if (text.length <= CLIP + 400) {
    box.append(visible(text));
    return box;
  }
  box.append(visible(text.slice(0, CLIP)));
  const more = el(
    "button",
    {
      class: "more",
      type: "button",
      on: {
        click: () => {
          more.remove();
          box.append(visible(text.slice(CLIP)));
        },
      },
    },
    `… show all ${count(text.length)} characters`,
  );
  return el("div", { class: "clipped" }, box, more);
}

const count = (n) => (isNumber(n) ? Math.round(n).toLocaleString("en-US") : "n/a");
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
const percent = (share, digits = 1) => (isNumber(share) ? (100 * share).toFixed(digits) + "%" : "n/a");
const range = (edges) => (edges ? `[${(100 * edges[0]).toFixed(1)}, ${(100 * edges[1]).toFixed(1)}]` : "");
const points = (pp) => (isNumber(pp) ? (pp >= 0 ? "+" : "−") + Math.abs(pp).toFixed(1) : "n/a");
const plural = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;

/** Dollars; an unknown price is `n/a`, never 0. */
function money(usd) {
  if (!isNumber(usd)) return "n/a";
  return usd === 0 ? "$0" : "$" + usd.toFixed(usd >= 100 ? 0 : usd >= 1 ? 2 : 4);
}

function seconds(s) {
  if (!isNumber(s)) return "n/a";
  if (s < 0.0995) return Math.round(1000 * s) + " ms";
  if (s < 60) return s.toFixed(s < 10 ? 2 : 1) + " s";
  const whole = Math.round(s);
  const [h, m, rest] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  return h ? `${h} h ${String(m).padStart(2, "0")} min` : `${m} min ${String(rest).padStart(2, "0")} s`;
}

/** Large counts short: 12.3k, 4.9M. */
function compact(n) {
  if (!isNumber(n)) return "n/a";
  const [unit, size] = n >= 1e9 ? ["G", 1e9] : n >= 1e6 ? ["M", 1e6] : n >= 1e4 ? ["k", 1e3] : ["", 1];
  return unit ? (n / size).toFixed(n / size >= 100 ? 0 : 1) + unit : count(n);
}

/** Wilson's 95% interval of a share. */
function wilson(right, n) {
  if (!n) return null;
  const z = 1.959964;
  const p = right / n;
  const centre = p + (z * z) / (2 * n);
  const spread = z * Math.sqrt((p * (1 - p)) / n + (z * z) / (4 * n * n));
  const scale = 1 + (z * z) / n;
  return [right === 0 ? 0 : (centre - spread) / scale, right === n ? 1 : (centre + spread) / scale];
}

function section(title, note, ...children) {
  return el("section", { class: "part" }, el("h2", null, title), note && el("p", { class: "note" }, note), children);
}

function facts(pairs) {
  return el(
    "dl",
    { class: "facts" },
    pairs
      .filter(([, value]) => value !== null && value !== undefined && value !== "")
      .map(([label, value]) =>
        el(
          "div",
          null,
          el("dt", null, label),
          el("dd", { dir: "auto" }, value instanceof Node ? value : asText(value)),
        ),
      ),
  );
}

function banner(kind, ...children) {
  return el("p", { class: "banner " + kind, role: "note" }, children);
}

/** Title line of a page with the switch between light and dark. */
function masthead(kicker, title, sub) {
  const names = { "light dark": "auto", light: "light", dark: "dark" };
  const order = Object.keys(names);
  let now = 0;
  const button = el("button", { class: "theme", type: "button", "aria-label": "colours: auto" }, "auto");
  button.addEventListener("click", () => {
    now = (now + 1) % order.length;
    document.documentElement.style.setProperty("color-scheme", order[now]);
    button.textContent = names[order[now]];
    button.setAttribute("aria-label", "colours: " + names[order[now]]);
  });
  return el(
    "header",
    { class: "masthead" },
    el("div", { class: "kicker" }, el("span", null, kicker), button),
    el("h1", { dir: "auto" }, title),
    sub && el("p", { class: "sub", dir: "auto" }, sub),
  );
}

/** The text of a packed blob, null when the page has none of that name. */
async function unpack(id) {
  const holder = document.getElementById(id);
  if (!holder) return null;
  const bytes = Uint8Array.from(atob(holder.textContent.trim()), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).text();
}
