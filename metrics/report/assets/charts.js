// Small charts in inline SVG. Widths are fixed units that the style sheet scales; colours are classes.

/** Units of a wide chart: one per pixel, and never so few that its labels collide (it then scrolls). */
const roomy = () => Math.max(520, Math.min(1032, document.documentElement.clientWidth - 32));

const SCALE_STEPS = [0, 0.25, 0.5, 0.75, 1];

/** Scores between 0 and 1 on one line: interval, point, and marks for other numbers above it. */
function strip(score, interval, marks) {
  const width = Math.max(300, Math.min(640, document.documentElement.clientWidth - 32));
  const left = 6;
  const x = (share) => left + share * (width - 2 * left);
  const shown = marks.filter((mark) => isNumber(mark.value)).sort((a, b) => a.value - b.value);
  const levels = levelsOf(
    shown.map((mark) => x(mark.value)),
    112,
  );
  const y = 26 + 16 * Math.max(0, ...levels.map((level) => level + 1));
  const chart = svg("svg", { viewBox: `0 0 ${width} ${y + 36}`, class: "strip", role: "img" });
  chart.append(svg("title", null, `score ${percent(score)} ${range(interval)}`));
  if (interval) {
    const length = Math.max(2, x(interval[1]) - x(interval[0]));
    chart.append(svg("rect", { x: x(interval[0]), y: y - 8, width: length, height: 16, rx: 3, class: "band" }));
  }
  chart.append(svg("line", { x1: x(0), x2: x(1), y1: y, y2: y, class: "axis" }));
  for (const step of SCALE_STEPS) {
    chart.append(svg("line", { x1: x(step), x2: x(step), y1: y - 3, y2: y + 3, class: "axis" }));
    const anchor = step === 0 ? "start" : step === 1 ? "end" : "middle";
    chart.append(
      svg(
        "text",
        { x: x(step), y: y + 24, "text-anchor": anchor, class: "tick" },
        step === 1 ? "100%" : `${100 * step}`,
      ),
    );
  }
  shown.forEach((mark, i) => {
    const top = y - 16 - 16 * levels[i];
    const anchor = mark.value > 0.85 ? "end" : mark.value < 0.15 ? "start" : "middle";
    chart.append(
      svg("line", { x1: x(mark.value), x2: x(mark.value), y1: top + 2, y2: y + 5, class: "mark" }),
      svg(
        "text",
        { x: x(mark.value), y: top - 3, "text-anchor": anchor, class: "label" },
        `${mark.label} ${percent(mark.value)}`,
      ),
    );
  });
  if (isNumber(score)) chart.append(svg("circle", { cx: x(score), cy: y, r: 6.5, class: "dot" }));
  return chart;
}

/** A level for each label of a sorted row, so that neighbours closer than `gap` stand above each other. */
function levelsOf(places, gap) {
  const ends = [];
  return places.map((place) => {
    let level = ends.findIndex((end) => place - end >= gap);
    if (level < 0) level = ends.length;
    ends[level] = place;
    return level;
  });
}

const FEW = 10;

/** One row per group: name, point with interval, score, n. `pick(name)` is called on a click. */
function dots(entries, pick) {
  const box = el("div", { class: "dots" });
  if (entries.length <= FEW + 2) {
    box.append(...rowsOf(entries));
    return box;
  }
  const largest = [...entries].sort((a, b) => b.n - a.n);
  const rest = largest.slice(FEW);
  const more = el(
    "button",
    { type: "button", class: "more", on: { click: () => more.replaceWith(...rowsOf(rest)) } },
    `… ${count(rest.length)} smaller ones`,
  );
  box.append(...rowsOf(largest.slice(0, FEW)), more);
  return box;

  function rowsOf(some) {
    return some.map((entry) => {
      const chart = svg("svg", {
        viewBox: "0 0 200 20",
        preserveAspectRatio: "none",
        class: "dotline",
        "aria-hidden": true,
      });
      for (const step of SCALE_STEPS) {
        chart.append(svg("line", { x1: 200 * step, x2: 200 * step, y1: 0, y2: 20, class: "grid" }));
      }
      if (entry.interval) {
        const [low, high] = entry.interval;
        chart.append(
          svg("rect", { x: 200 * low, width: Math.max(1, 200 * (high - low)), y: 7, height: 6, class: "band" }),
        );
      }
      if (isNumber(entry.strict)) {
        chart.append(svg("line", { x1: 200 * entry.strict, x2: 200 * entry.strict, y1: 4, y2: 16, class: "mark" }));
      }
      const point = Math.min(199, Math.max(1, 200 * entry.score));
      chart.append(svg("line", { x1: point, x2: point, y1: 3, y2: 17, class: "needle" }));
      const hint = `${entry.name}: ${percent(entry.score)} ${range(entry.interval)} of ${entry.n}`;
      return el(
        pick ? "button" : "div",
        { class: "dotrow", type: pick && "button", title: hint, on: pick && { click: () => pick(entry.name) } },
        el("span", { class: "name", dir: "auto" }, short(entry.name, 40)),
        chart,
        el("span", { class: "value" }, percent(entry.score)),
        el("span", { class: "n" }, `n ${count(entry.n)}`),
      );
    });
  }
}

/** Parts of a whole as one bar with a legend; `pick(key)` is called on a click on a part. */
function parts(entries, pick) {
  const shown = entries.filter((entry) => entry.n > 0);
  const total = shown.reduce((sum, entry) => sum + entry.n, 0) || 1;
  return el(
    "div",
    { class: "parts" },
    el(
      "div",
      { class: "bar", "aria-hidden": true },
      shown.map((entry) =>
        el("span", { class: "c-" + entry.key, style: { "flex-grow": entry.n }, title: `${entry.label} ${entry.n}` }),
      ),
    ),
    el(
      "div",
      { class: "legend" },
      shown.map((entry) =>
        el(
          pick ? "button" : "span",
          { type: pick && "button", on: pick && { click: () => pick(entry.key) }, title: entry.hint },
          el("i", { class: "c-" + entry.key }),
          el("b", null, count(entry.n)),
          ` ${entry.label} `,
          el("span", { class: "n" }, percent(entry.n / total, 0)),
        ),
      ),
    ),
  );
}

/** A share of a maximum as a thin bar in a table cell. */
function meter(value, maximum) {
  const width = maximum > 0 && isNumber(value) ? (100 * value) / maximum : 0;
  return el("span", { class: "meter", "aria-hidden": true }, el("i", { style: { width: `${width}%` } }));
}

/**
 * Lines and points over one x axis. `series`: `{label, className, step, points: [[x, y, hint?]], dots, area}`;
 * `marks`: `{x, y, low, high, label, className}` beside the end of the axis; `format(y)` labels the y axis.
 */
function plot({ series, marks = [], x: xLabel, xMax, yMax, format, height = 260, label }) {
  const width = roomy();
  const side = marks.length ? 30 + 62 * marks.length : 14;
  const box = { left: 50, right: width - side, top: 14, bottom: height - 38 };
  const steps = ticks(yMax > 0 ? yMax : 1);
  const step = steps[1] - steps[0];
  const top = steps[steps.length - 1] >= yMax ? steps[steps.length - 1] : steps[steps.length - 1] + step;
  const px = (value) => box.left + (xMax > 0 ? value / xMax : 0) * (box.right - box.left);
  const py = (value) => box.bottom - (value / top) * (box.bottom - box.top);
  const chart = svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "plot", role: "img" });
  chart.append(svg("title", null, label));
  for (let value = 0; value <= top * 1.0001; value += step) {
    chart.append(svg("line", { x1: box.left, x2: width - 8, y1: py(value), y2: py(value), class: "grid" }));
    chart.append(
      svg("text", { x: box.left - 8, y: py(value) + 4, "text-anchor": "end", class: "tick" }, format(value)),
    );
  }
  for (const value of ticks(xMax)) {
    chart.append(svg("line", { x1: px(value), x2: px(value), y1: box.bottom, y2: box.bottom + 4, class: "axis" }));
    chart.append(
      svg("text", { x: px(value), y: box.bottom + 17, "text-anchor": "middle", class: "tick" }, compact(value)),
    );
  }
  chart.append(
    svg("text", { x: (box.left + box.right) / 2, y: height - 4, "text-anchor": "middle", class: "tick" }, xLabel),
  );
  for (const line of series) {
    const spots = line.points.filter((point) => isNumber(point[1]));
    if (!line.only && spots.length) {
      const path = spots
        .map(([a, b], i) => {
          if (i === 0) return `M${px(a)} ${py(b)}`;
          return line.step ? `H${px(a)}V${py(b)}` : `L${px(a)} ${py(b)}`;
        })
        .join("");
      chart.append(svg("path", { d: path, class: "line " + line.className }));
    }
    if (line.only || line.dots) {
      for (const [a, b, hint] of spots) {
        const dot = svg("circle", { cx: px(a), cy: py(b), r: line.only ? 3.2 : 4, class: "spot " + line.className });
        if (hint) dot.append(svg("title", null, hint));
        chart.append(dot);
      }
    }
  }
  marks.forEach((mark, index) => {
    const at = box.right + 44 + 62 * index;
    if (index === 0) {
      chart.append(
        svg("line", { x1: box.right + 12, x2: box.right + 12, y1: box.top, y2: box.bottom, class: "grid strong" }),
      );
    }
    for (const side of mark.sides) {
      if (!isNumber(side.y)) continue;
      const shift = at + side.shift;
      const hint = svg("title", null, `${mark.label}, ${side.label}: ${percent(side.y)} ${range(side.interval)}`);
      const group = svg("g", { class: side.className }, hint);
      if (side.interval) {
        group.append(
          svg("line", { x1: shift, x2: shift, y1: py(side.interval[0]), y2: py(side.interval[1]), class: "whisker" }),
        );
      }
      group.append(svg("circle", { cx: shift, cy: py(side.y), r: 4.5, class: "spot" }));
      chart.append(group);
    }
    chart.append(svg("text", { x: at, y: box.bottom + 17, "text-anchor": "middle", class: "tick" }, mark.label));
  });
  return el("div", { class: "plotbox" }, chart);
}

function ticks(maximum) {
  if (!(maximum > 0)) return [0];
  const rough = maximum / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= rough) || rough;
  const found = [];
  for (let value = 0; value <= maximum * 1.0001; value += step) found.push(value);
  return found;
}

function key(entries) {
  return el(
    "div",
    { class: "legend" },
    entries.map(([className, text]) => el("span", null, el("i", { class: "k " + className }), text)),
  );
}
