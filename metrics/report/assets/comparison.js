// Several jobs, or several runs, on one page.

function comparisonPage(all) {
  const jobs = all.kind === "jobs";
  const engine = all.entries.some((entry) => entry.embedded);
  document
    .getElementById("app")
    .append(
      el(
        "main",
        null,
        masthead("Comparison", all.title, [...new Set(all.entries.map((entry) => entry.model))].map(asText).join(", ")),
        engine &&
          banner(
            "warn",
            el("b", null, "Embedded model. "),
            "Some of these used the embedded rule-based engine, not a language model: their scores say nothing about one.",
          ),
        jobs &&
          all.sets > 1 &&
          banner("warn", "The jobs are over different datasets, splits or scores: their scores are not comparable."),
        all.versus_note && banner("warn", all.versus_note),
        jobs ? jobScores(all.entries) : runScores(all.entries),
        jobs ? jobCurves(all.entries) : null,
        section(jobs ? "Jobs" : "Runs", null, (jobs ? jobTable(all.entries) : runTable(all)).node),
      ),
    );
}

/** One row per entry: a name, and points with intervals on a line from 0 to 1. */
function forest(rows) {
  return el(
    "div",
    { class: "forest" },
    rows.map((row) => {
      const chart = svg("svg", {
        viewBox: "0 0 400 30",
        preserveAspectRatio: "none",
        class: "dotline",
        "aria-hidden": true,
      });
      for (const step of SCALE_STEPS)
        chart.append(svg("line", { x1: 400 * step, x2: 400 * step, y1: 0, y2: 30, class: "grid" }));
      row.sides.forEach((side, i) => {
        if (!isNumber(side.score)) return;
        const y = row.sides.length > 1 ? 10 + 10 * i : 15;
        const group = svg("g", { class: side.className });
        if (side.interval)
          group.append(
            svg("line", { x1: 400 * side.interval[0], x2: 400 * side.interval[1], y1: y, y2: y, class: "span" }),
          );
        const x = Math.min(399, Math.max(1, 400 * side.score));
        group.append(svg("line", { x1: x, x2: x, y1: y - 5, y2: y + 5, class: "point" }));
        chart.append(group);
      });
      return el(
        "div",
        { class: "forestrow" },
        el("div", { class: "name" }, row.name, row.sub && el("small", null, row.sub)),
        chart,
        el("div", { class: "value" }, row.value, el("small", null, row.under)),
      );
    }),
    el(
      "div",
      { class: "forestrow foot", "aria-hidden": true },
      el("span"),
      el(
        "div",
        { class: "scale" },
        ["0", "25", "50", "75", "100%"].map((text) => el("span", null, text)),
      ),
      el("span"),
    ),
  );
}

const spread = (edges) => (edges ? `[${points(edges[0])}, ${points(edges[1])}]` : "");

function jobScores(entries) {
  const rows = entries.map((entry) => ({
    name: `${entry.method}, seed ${entry.seed}`,
    sub: [entry.program, entry.dataset].join(" on "),
    sides: entry.test
      ? [
          { ...entry.test.baseline, className: "t-base" },
          { ...entry.test.deployed, className: "t-best" },
        ]
      : [],
    value: entry.test ? `${percent(entry.test.baseline.score)} → ${percent(entry.test.deployed.score)}` : "no test yet",
    under:
      entry.test && isNumber(entry.test.delta_pp)
        ? `${points(entry.test.delta_pp)} ${spread(entry.test.delta_interval)}`
        : "",
  }));
  return section(
    "Test scores",
    "Baseline and deployed program of each job with 95% intervals; differences in points, paired.",
    forest(rows),
    key([
      ["t-base", "baseline"],
      ["t-best", "deployed"],
    ]),
  );
}

function jobCurves(entries) {
  const drawn = entries.filter((entry) => entry.curve.committed.some((point) => isNumber(point.score)));
  if (!drawn.length) return null;
  const most = Math.max(...drawn.flatMap((entry) => entry.curve.committed.map((point) => point.score || 0)));
  return section(
    "Learning curves",
    "Score of the best candidate so far on validation rows, as each search saw it.",
    plot({
      label: "score over rollouts",
      x: "charged rollouts",
      xMax: Math.max(...drawn.map((entry) => entry.budget)),
      yMax: Math.min(1, Math.ceil(most * 5) / 5 || 0.2),
      format: (y) => percent(y, 0),
      height: 320,
      series: drawn.map((entry, i) => {
        const known = entry.curve.committed.map((point) => [
          point.rollouts,
          point.score,
          `${entry.label}: ${percent(point.score)}`,
        ]);
        return {
          points: [...known, [entry.curve.spent, known[known.length - 1][1]]],
          className: `t-${i % 8}`,
          step: true,
          dots: true,
        };
      }),
    }),
    key(drawn.map((entry, i) => [`t-${i % 8}`, entry.label])),
  );
}

function jobTable(entries) {
  const text = (name, label, value, className) => ({
    name,
    label,
    value,
    cell: (row) => asText(value(row)),
    className,
  });
  const numeric = (name, label, value, show) => ({
    name,
    label,
    numeric: true,
    value,
    cell: (row) => show(value(row), row),
    className: "num",
  });
  const side = (part, which) => (row) => (row[part] ? row[part][which].score : null);
  return dataTable({
    rows: entries,
    label: "jobs",
    columns: [
      text("method", "method", (row) => row.method, "label"),
      text("program", "program", (row) => row.program, "label"),
      text("dataset", "dataset", (row) => row.dataset, "label"),
      numeric("seed", "seed", (row) => row.seed, asText),
      numeric("vb", "validation", side("validation", "baseline"), (v, row) =>
        row.validation ? `${percent(v)} → ${percent(row.validation.incumbent.score)}` : "",
      ),
      text("deployed", "deployed", (row) => (row.validation ? row.validation.deployed : ""), "label"),
      numeric("tb", "test", side("test", "deployed"), (v, row) =>
        row.test ? `${percent(row.test.baseline.score)} → ${percent(v)}` : "",
      ),
      numeric(
        "delta",
        "difference",
        (row) => (row.test ? row.test.delta_pp : null),
        (v, row) => (row.test ? `${points(v)} ${spread(row.test.delta_interval)}` : ""),
      ),
      numeric(
        "accepted",
        "accepted",
        (row) => row.accepted,
        (v, row) => `${count(v)} of ${count(row.tried)}`,
      ),
      numeric(
        "rollouts",
        "rollouts",
        (row) => row.spent,
        (v, row) => `${count(v)} of ${count(row.budget)}`,
      ),
      numeric(
        "calls",
        "calls",
        (row) => row.lm_calls,
        (v) => (isNumber(v) ? compact(v) : ""),
      ),
      numeric(
        "tokens",
        "tokens",
        (row) => row.tokens,
        (v) => (isNumber(v) ? compact(v) : ""),
      ),
      numeric(
        "usd",
        "billed",
        (row) => row.usd,
        (v, row) => (row.lm_calls === null || row.lm_calls === undefined ? "" : money(v)),
      ),
    ],
    filters: [],
    text: (row) => [row.label, row.dataset, row.folder].map(asText).join("\n"),
    note: (shown) =>
      plural(shown.length, "job") +
      (shown.some((row) => row.unfinished) ? `, ${shown.filter((row) => row.unfinished).length} not finished` : ""),
  });
}

function runScores(entries) {
  const rows = entries.map((entry) => ({
    name: entry.label,
    sub: [entry.model, entry.folder].map(asText).join(" · "),
    sides: [{ score: entry.score, interval: entry.interval, className: "t-best" }],
    value: percent(entry.score),
    under: range(entry.interval),
  }));
  return section(
    "Scores",
    `Mean ${[...new Set(entries.map((entry) => entry.name))].join(", ")} of the scored questions with 95% intervals.`,
    forest(rows),
  );
}

function runTable(all) {
  all.entries.forEach((entry, i) => (entry.versus = all.versus[i] || null));
  const numeric = (name, label, value, show) => ({
    name,
    label,
    numeric: true,
    value,
    cell: (row) => show(value(row), row),
    className: "num",
  });
  const against = (row) => (row.versus && isNumber(row.versus.difference) ? 100 * row.versus.difference : null);
  return dataTable({
    rows: all.entries,
    label: "runs",
    columns: [
      {
        name: "run",
        label: "run",
        value: (row) => row.label,
        cell: (row) => [row.label, el("small", null, asText(row.folder))],
      },
      { name: "model", label: "model", value: (row) => asText(row.model), cell: (row) => short(row.model, 60) },
      numeric(
        "score",
        "score",
        (row) => row.score,
        (v, row) => `${percent(v)} ${range(row.interval)}`,
      ),
      numeric("versus", "against the first", against, (v, row) =>
        v === null ? "" : `${points(v)} [${points(100 * row.versus.low)}, ${points(100 * row.versus.high)}]`,
      ),
      numeric(
        "p",
        "McNemar p (Holm)",
        (row) => (row.versus ? row.versus.p_holm : null),
        (v) => (isNumber(v) ? v.toPrecision(2) : ""),
      ),
      numeric(
        "n",
        "scored",
        (row) => row.n_scored,
        (v) => count(v),
      ),
      numeric(
        "errors",
        "errors",
        (row) => row.n_errors,
        (v) => count(v),
      ),
      numeric(
        "calls",
        "calls",
        (row) => row.lm_calls,
        (v) => compact(v),
      ),
      numeric(
        "tokens",
        "tokens",
        (row) => row.tokens,
        (v) => compact(v),
      ),
      numeric(
        "seconds",
        "median time",
        (row) => row.seconds,
        (v) => seconds(v),
      ),
      numeric(
        "usd",
        "billed",
        (row) => row.usd,
        (v) => money(v),
      ),
    ],
    filters: [],
    text: (row) => [row.label, row.model, row.folder].map(asText).join("\n"),
    note: (shown) =>
      plural(shown.length, "run") +
      (shown.some((row) => !row.complete) ? `, ${shown.filter((row) => !row.complete).length} not complete` : ""),
  });
}
