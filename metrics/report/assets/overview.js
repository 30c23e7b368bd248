// What stands above the questions of a run.

const VERDICTS = {
  right: "right",
  wrong: "wrong",
  error: "errors",
  refused: "refused",
  skipped: "skipped",
  missing: "not run",
};
const VERDICT_HINTS = {
  error: "the infrastructure failed: no score, in no mean",
  refused: "the dataset's code may not run: counts as wrong",
  skipped: "the row has no gold answer",
  missing: "the run ended before",
};

function headline(run) {
  const head = run.headline;
  const marks = [
    { value: head.nothing, label: "do nothing" },
    ...head.beside
      .filter((b) => b.label === "strict" || b.label === "F1")
      .map((b) => ({ value: b.score, label: b.label })),
  ];
  const wrong = run.outcomes.error ? `${percent(head.errors_as_wrong)} with errors counted as wrong` : null;
  const lines = [
    `${head.name} of ${plural(head.n_scored, "scored question")}`,
    head.interval && `95% interval ${percent(head.interval[0])} to ${percent(head.interval[1])}`,
    isNumber(head.nothing) && `a do-nothing answer scores ${percent(head.nothing)}`,
    head.rules_differ,
    wrong,
  ];
  return el(
    "section",
    { class: "headline" },
    el(
      "div",
      { class: "figure" },
      el("strong", { class: "score" }, percent(head.score)),
      lines.filter(Boolean).map((text) => el("span", null, text)),
    ),
    el(
      "div",
      { class: "picture" },
      strip(head.score, head.interval, marks),
      head.beside.length
        ? el(
            "ul",
            { class: "beside" },
            head.beside.map((b) =>
              el(
                "li",
                null,
                el("b", null, percent(b.score)),
                ` ${b.label} `,
                el("span", { class: "n" }, range(b.interval)),
              ),
            ),
          )
        : null,
    ),
  );
}

function outcomes(run, pick) {
  const entries = Object.entries(VERDICTS).map(([key, label]) => ({
    key,
    label,
    n: run.outcomes[key],
    hint: VERDICT_HINTS[key],
  }));
  return section(
    "Outcomes",
    null,
    parts(entries, (key) => key !== "missing" && pick({ verdict: key })),
  );
}

function groups(run, pick) {
  if (!run.groups.length) return null;
  const filterable = new Set(run.labels);
  const strict = run.groups.some((group) => group.entries.some((entry) => isNumber(entry.strict)));
  const note =
    `Mean and 95% interval of ${run.headline.name}` + (strict ? "; the thin mark is the strict score." : ".");
  return section(
    "Scores by group",
    note,
    el(
      "div",
      { class: "grid" },
      run.groups.map((group) =>
        el(
          "div",
          { class: "card" },
          el("h3", null, group.label),
          dots(group.entries, filterable.has(group.label) && ((name) => pick({ [group.label]: name }))),
        ),
      ),
    ),
  );
}

const CREDITS = {
  literal: "the answer is the gold",
  substring: "the gold stands in the answer",
  tool_result: "the gold stands in the last tool result only",
  none: "not credited",
};

function credited(run, pick) {
  const entries = Object.entries(run.credited).map(([name, n]) => ({
    key: "credit-" + name,
    label: CREDITS[name] || name,
    n,
    name,
  }));
  if (!entries.some((entry) => entry.n)) return null;
  return section(
    "Credited by",
    "Which part of the official rule gave the credit.",
    parts(entries, (key) => pick({ credited_by: key.slice("credit-".length) })),
  );
}

function errors(run, pick) {
  if (!run.errors.length) return null;
  return section(
    "Errors",
    "Failures of the infrastructure or of the program. They are no wrong answers: they have no score.",
    el(
      "ul",
      { class: "errors" },
      run.errors.map((error) =>
        el(
          "li",
          null,
          el(
            "button",
            { type: "button", on: { click: () => pick({ error: `${error.kind}:${error.type}` }) } },
            el("b", null, `${count(error.n)} × ${error.kind}`),
            ` ${error.type || ""}`,
          ),
          block(error.message),
        ),
      ),
    ),
  );
}

function usage(run) {
  const u = run.usage;
  const roles = u.roles;
  const most = (pick) => Math.max(0, ...roles.map((role) => pick(role) || 0));
  const tokens = (role) => (role.prompt_tokens || 0) + (role.completion_tokens || 0);
  const columns = [
    ["model calls", (r) => count(r.lm_calls), (r) => r.lm_calls],
    ["prompt tokens", (r) => compact(r.prompt_tokens), tokens],
    ["completion tokens", (r) => compact(r.completion_tokens), (r) => r.completion_tokens],
    ["model time", (r) => seconds(r.seconds), (r) => r.seconds],
    ["billed", (r) => money(r.usd_billed), (r) => r.usd_billed],
    ["without cache", (r) => money(r.usd_without_cache), (r) => r.usd_without_cache],
  ];
  const cached = u.cached_lm_calls ? ` (${count(u.cached_lm_calls)} from the cache)` : "";
  const stopped = Object.entries(u.stopped || {}).map(([why, n]) => `${count(n)} stopped: ${why}`);
  const latency = u.latency_s || {};
  return section(
    "Cost and time",
    null,
    facts([
      ["model calls", count(u.lm_calls) + cached],
      ["tool calls", count(u.tool_calls)],
      ["tokens", `${compact(u.prompt_tokens)} in, ${compact(u.completion_tokens)} out`],
      ["billed", money(u.usd_billed)],
      ["without cache", money(u.usd_without_cache)],
      [
        "per question",
        isNumber(latency.median)
          ? `${seconds(latency.median)} median, ${seconds(latency.p95)} at the 95th percentile`
          : null,
      ],
      ["in tools", isNumber(u.tool_seconds) ? seconds(u.tool_seconds) : null],
      ["whole run", isNumber(u.wall_s) ? seconds(u.wall_s) : null],
      [
        "limits",
        [
          u.n_exhausted && `${count(u.n_exhausted)} out of turns`,
          u.n_forced && `${count(u.n_forced)} forced answers`,
          u.n_no_answer && `${count(u.n_no_answer)} without an answer`,
          ...stopped,
        ]
          .filter(Boolean)
          .join(", "),
      ],
      [
        "malformed",
        [
          u.parse_errors && plural(u.parse_errors, "unreadable reply").replace("replys", "replies"),
          u.tool_args_errors && plural(u.tool_args_errors, "refused tool argument"),
          u.truncated && `${count(u.truncated)} cut off`,
        ]
          .filter(Boolean)
          .join(", "),
      ],
      ["handoffs", u.n_handoffs ? `${count(u.n_handoffs)}, ${count(u.n_handoffs_parsed)} in their form` : null],
    ]),
    roles.length
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
                el("th", { scope: "col" }, "agent role"),
                columns.map(([name]) => el("th", { class: "num", scope: "col" }, name)),
              ),
            ),
            el(
              "tbody",
              null,
              roles.map((role) =>
                el(
                  "tr",
                  null,
                  el(
                    "th",
                    { scope: "row" },
                    role.role || "(no role)",
                    (role.models || []).length ? el("small", null, role.models.join(", ")) : null,
                  ),
                  columns.map(([, shown, value]) =>
                    el("td", { class: "num" }, shown(role), meter(value(role), most(value))),
                  ),
                ),
              ),
            ),
          ),
        )
      : null,
  );
}
