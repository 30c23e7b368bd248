// The page of an optimization job.

function jobPage(job) {
  document.getElementById("app").append(
    el(
      "main",
      null,
      masthead("Optimization", job.title, job.sub),
      job.embedded &&
        banner(
          "warn",
          el("b", null, "Embedded model. "),
          "What ran is " + job.embedded.replace(/^the model is /, "") + ".",
        ),
      job.unfinished && banner("warn", el("b", null, "Not finished. "), job.unfinished),
      job.warnings.map((text) => banner("bad", text)),
      result(job),
      learning(job),
      promptsSection(job),
      credit(job),
      tree(job),
      spending(job),
      section(
        "What was run",
        null,
        facts(job.measured),
        job.departures.length
          ? el("p", { class: "note" }, `Not conformant with the protocol: ${job.departures.join("; ")}.`)
          : null,
      ),
      testRows(job),
    ),
  );
}

function result(job) {
  const test = job.test;
  if (!test || !isNumber(test.deployed.score)) return job.validation ? decision(job) : null;
  const interval = test.delta_interval ? ` [${points(test.delta_interval[0])}, ${points(test.delta_interval[1])}]` : "";
  const delta = test.same_program
    ? "both sides are the same program"
    : `${isNumber(test.delta_pp) ? `${points(test.delta_pp)} points` : ""}${interval}, paired 95% interval`;
  const sides = [
    ["baseline", test.baseline],
    ["deployed", test.deployed],
  ];
  return [
    el(
      "section",
      { class: "headline" },
      el(
        "div",
        { class: "figure" },
        el(
          "strong",
          { class: "score" },
          el("span", { class: "from" }, `${percent(test.baseline.score)} → `),
          percent(test.deployed.score),
        ),
        el("span", null, `${test.name} on ${plural(test.n_scored, "test row")}, baseline to deployed`),
        el("span", null, delta),
        test.n_scored < test.n &&
          el("span", null, `${count(test.n - test.n_scored)} of ${count(test.n)} rows were lost to the infrastructure`),
      ),
      el(
        "div",
        { class: "picture" },
        sides.map(([label, side]) =>
          el(
            "div",
            { class: "side" },
            el("h3", null, `${label} ${percent(side.score)} ${range(side.interval)}`),
            strip(
              side.score,
              side.interval,
              side.means
                .filter((mean) => mean.label === "strict" || mean.label === "F1")
                .map((mean) => ({ label: mean.label, value: mean.value })),
            ),
          ),
        ),
      ),
    ),
    decision(job),
  ];
}

function decision(job) {
  const v = job.validation;
  if (!v) return null;
  const better = v.deployed === "incumbent";
  const n = isNumber(v.incumbent.n_scored) ? ` of ${plural(v.incumbent.n_scored, "validation row")}` : "";
  return banner(
    better ? "good" : "warn",
    el("b", null, better ? "The optimized program is deployed" : "The baseline stays"),
    ` (${v.reason}): ${percent(v.baseline.score)} → ${percent(v.incumbent.score)}${n}.`,
  );
}

function learning(job) {
  const c = job.curve;
  if (!c.committed.length && !c.tried.length) return null;
  const sides = (pair, name) => [
    { label: "baseline", shift: -9, y: pair.baseline.score, interval: pair.baseline.interval, className: "t-base" },
    { label: name, shift: 9, y: pair[name].score, interval: pair[name].interval, className: "t-best" },
  ];
  const marks = [];
  if (job.validation) marks.push({ label: "validation", sides: sides(job.validation, "incumbent") });
  if (job.test) marks.push({ label: "test", sides: sides(job.test, "deployed") });
  const last = c.committed[c.committed.length - 1];
  const best = last
    ? [
        ...c.committed.map((e) => [e.rollouts, e.score, `${e.candidate.slice(0, 8)} ${percent(e.score)}`]),
        [c.spent, last.score],
      ]
    : [];
  const base = isNumber(c.seed_score)
    ? [
        [0, c.seed_score],
        [job.budget, c.seed_score],
      ]
    : [];
  const scores = [...c.committed, ...c.tried].map((e) => e.score);
  for (const mark of marks) for (const side of mark.sides) scores.push(side.y, side.interval && side.interval[1]);
  const high = Math.max(0, ...scores.filter(isNumber));
  const tried = c.tried.map((e) => [
    e.rollouts,
    e.score,
    `${e.candidate.slice(0, 8)} ${percent(e.score)} on ${plural(e.rows, "row")}`,
  ]);
  return section(
    "Learning curve",
    "Score of the best candidate so far over charged rollouts" +
      (marks.length ? "; to the right the decision on all validation rows and the test, with 95% intervals." : "."),
    plot({
      label: "score over rollouts",
      x: "charged rollouts",
      xMax: job.budget,
      yMax: Math.min(1, Math.ceil(high * 5) / 5 || 0.2),
      format: (y) => percent(y, 0),
      marks,
      series: [
        { points: base, className: "t-base" },
        { points: tried, className: "t-try hollow", only: true },
        { points: best, className: "t-best", step: true, dots: true },
      ],
    }),
    key([
      ["t-best", "best so far"],
      ["t-base", "baseline"],
      ["t-try hollow", "a candidate on validation rows"],
    ]),
  );
}

function promptsSection(job) {
  const find = (id) => job.candidates.find((candidate) => candidate.id === id);
  const [before, after] = [find(job.baseline), find(job.shown)];
  if (!before || !after) return null;
  const isBest = job.validation && job.validation.deployed === "baseline" && before !== after;
  const note =
    before === after
      ? "No prompt was changed; these are the baseline's."
      : `Baseline to ${isBest ? "best candidate, which was not deployed" : job.validation ? "deployed" : "best so far"}; taken out is struck through.`;
  return section("Prompts by role", note, prompts(job, before === after ? null : before, after));
}

function credit(job) {
  if (!job.credit.length) return null;
  return section(
    "Credit per role",
    null,
    job.credit.map((part) => {
      const values = part.series.flatMap((entry) => Object.values(entry.values)).filter(isNumber);
      const most = Math.max(...values.map(Math.abs), 1e-9);
      const roles = [...new Set(part.series.flatMap((entry) => Object.keys(entry.values)))];
      const show = (v) =>
        isNumber(v)
          ? part.unit === "count"
            ? count(v)
            : part.unit === "share"
              ? percent(v)
              : (v < 0 ? "−" : "") + Math.abs(v).toFixed(3)
          : "";
      return el(
        "div",
        { class: "scroll matrix" },
        el("p", { class: "note" }, part.note),
        el(
          "table",
          { class: "plain" },
          el(
            "thead",
            null,
            el(
              "tr",
              null,
              el("th", { scope: "col" }, "role"),
              part.series.map((entry) => el("th", { class: "num", scope: "col" }, entry.label)),
            ),
          ),
          el(
            "tbody",
            null,
            roles.map((role) =>
              el(
                "tr",
                null,
                el("th", { scope: "row" }, role),
                part.series.map((entry) =>
                  el(
                    "td",
                    { class: "num" },
                    el(entry.mark === role ? "b" : "span", null, show(entry.values[role])),
                    meter(Math.max(0, entry.values[role]), most),
                  ),
                ),
              ),
            ),
          ),
        ),
      );
    }),
  );
}

function tree(job) {
  if (!job.candidates.length) return null;
  const counts = [
    isNumber(job.counts.tried) && `${count(job.counts.tried)} proposals`,
    isNumber(job.counts.accepted) && `${count(job.counts.accepted)} accepted`,
    job.counts.refused && `${count(job.counts.refused)} refused unread or unchanged`,
    job.counts.invalid && `${count(job.counts.invalid)} trials invalid`,
  ];
  return section(
    "Candidates",
    counts.filter(Boolean).join(", ") +
      ". A candidate stands below the one it was made from; open it to see what it changes. Scores in brackets are of training rows.",
    lineage(job),
  );
}

function spending(job) {
  const s = job.spending;
  const charts = [];
  const last = (points) => (points.length ? points[points.length - 1][1] : 0);
  const chart = (name, task, optimizer, format) =>
    el(
      "div",
      { class: "card" },
      el("h3", null, name),
      plot({
        label: name,
        x: "charged rollouts",
        xMax: job.budget,
        yMax: Math.max(last(task), last(optimizer)),
        height: 220,
        format,
        series: [
          { points: task, className: "t-best" },
          { points: optimizer, className: "t-try", step: true },
        ],
      }),
    );
  if (s.tokens.length) charts.push(chart("tokens of the search", s.tokens, s.optimizer_tokens, compact));
  if (last(s.usd) > 0 || last(s.optimizer_usd) > 0)
    charts.push(chart("dollars of the search", s.usd, s.optimizer_usd, money));
  const columns = [
    ["model calls", (r) => count(r.lm_calls), (r) => r.lm_calls],
    ["from cache", (r) => count(r.cached_lm_calls), (r) => r.cached_lm_calls],
    ["prompt tokens", (r) => compact(r.prompt_tokens), (r) => r.prompt_tokens],
    ["completion tokens", (r) => compact(r.completion_tokens), (r) => r.completion_tokens],
    ["billed", (r) => money(r.usd_billed), (r) => r.usd_billed],
    ["without cache", (r) => money(r.usd_without_cache), (r) => r.usd_without_cache],
  ];
  const table = (head, rows) =>
    rows.length
      ? el(
          "div",
          { class: "scroll" },
          el(
            "table",
            { class: "plain" },
            el(
              "thead",
              null,
              el(
                "tr",
                null,
                el("th", { scope: "col" }, head),
                columns.map(([name]) => el("th", { class: "num", scope: "col" }, name)),
              ),
            ),
            el(
              "tbody",
              null,
              rows.map((row) =>
                el(
                  "tr",
                  null,
                  el("th", { scope: "row" }, row.name),
                  columns.map(([, show, value]) =>
                    el(
                      "td",
                      { class: "num" },
                      show(row),
                      meter(value(row), Math.max(0, ...rows.map((r) => value(r) || 0))),
                    ),
                  ),
                ),
              ),
            ),
          ),
        )
      : null;
  return section(
    "Rollouts and money",
    null,
    facts(s.facts),
    charts.length
      ? el(
          "div",
          { class: "stack" },
          charts,
          key([
            ["t-best", "task model"],
            ["t-try", "optimizer's model"],
          ]),
        )
      : null,
    table("part", s.parts),
    table("agent role in the search", s.roles),
  );
}

function testRows(job) {
  if (!job.rows.length) return null;
  const change = (row) => row.change;
  const side = (name, label) => ({
    name,
    label,
    value: (row) => row[name].score,
    cell: (row) => [
      el("span", { class: `chip v-${row[name].verdict}` }, row[name].verdict),
      " ",
      el("span", { dir: "auto" }, short(row[name].error ? row[name].error.message : row[name].answer, 120)),
    ],
    className: "wide",
  });
  const table = dataTable({
    rows: job.rows,
    label: "test rows",
    columns: [
      { name: "id", label: "id", value: (row) => row.id, cell: (row) => short(row.id, 30), className: "id" },
      { name: "change", label: "change", value: change, cell: change, className: "label" },
      side("baseline", "baseline"),
      side("deployed", "deployed"),
    ],
    filters: [
      {
        name: "change",
        label: "change",
        value: (row) => [row.change],
        options: [...new Set(job.rows.map(change))]
          .sort()
          .map((value) => [value, `${value} (${job.rows.filter((row) => row.change === value).length})`]),
      },
    ],
    text: (row) => [row.id, row.baseline.answer, row.deployed.answer].map(asText).join("\n"),
    note: (shown) =>
      `${plural(shown.length, "test row")}: ${shown.filter((r) => r.change === "gained").length} gained, ${shown.filter((r) => r.change === "lost").length} lost`,
  });
  return section("Test rows", "The same rows and seeds under both programs.", table.node);
}
