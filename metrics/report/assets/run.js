// The page of an evaluation run.

function runPage(run) {
  const app = document.getElementById("app");
  const table = questions(run);
  const part = section("Questions", null, table.node);
  part.id = "questions";
  const pick = (chosen) => {
    table.choose(chosen);
    part.scrollIntoView();
  };
  const overview = el(
    "main",
    null,
    masthead("Evaluation", run.title, run.model),
    run.embedded &&
      banner(
        "warn",
        el("b", null, "Embedded model. "),
        "What ran is " + run.embedded.replace(/^the model is /, "") + ".",
      ),
    run.stopped &&
      banner(
        "warn",
        el("b", null, "Not complete"),
        ` (${run.stopped.by || "incomplete"}): ${count(run.stopped.missing)} of ${plural(run.stopped.n, "question")} were not run.`,
      ),
    headline(run),
    run.notes.map((note) => el("p", { class: "note" }, note)),
    outcomes(run, pick),
    groups(run, pick),
    credited(run, pick),
    errors(run, pick),
    usage(run),
    section("What was measured", null, facts(run.measured)),
    part,
  );
  const view = el("main", { hidden: true });
  app.append(overview, view);

  let scroll = 0;
  function route() {
    const row = run.rows.find((each) => each.anchor === location.hash);
    if (!row) {
      if (!view.hidden) {
        view.hidden = true;
        view.replaceChildren();
        overview.hidden = false;
        window.scrollTo(0, scroll);
      }
      return;
    }
    if (!overview.hidden) scroll = window.scrollY;
    const shown = table.shown();
    const at = shown.indexOf(row);
    const anchor = (neighbour) => (neighbour ? neighbour.anchor : null);
    overview.hidden = true;
    view.hidden = false;
    view.replaceChildren(
      questionView(run, row, row.number, at < 0 ? [null, null] : [anchor(shown[at - 1]), anchor(shown[at + 1])]),
    );
    window.scrollTo(0, 0);
    view.querySelector("h2").focus({ preventScroll: true });
  }
  window.addEventListener("hashchange", route);
  route();
}

// `#q` and the question's id, as an address spells it (half of a surrogate pair has no spelling).
function anchorOf(id) {
  return `#q${encodeURIComponent(asText(id).replace(/\p{Surrogate}/gu, "\ufffd"))}`;
}

function questions(run) {
  const rows = run.rows;
  rows.forEach((row, i) =>
    Object.defineProperties(row, { number: { value: i }, anchor: { value: anchorOf(row.id) } }),
  );
  const tokens = (row) => (row.prompt_tokens || 0) + (row.completion_tokens || 0);
  const labels = run.labels.map((name) => ({
    name,
    label: name,
    value: (row) => row[name],
    cell: (row) => asText(row[name]),
    className: "label",
  }));
  const columns = [
    { name: "id", label: "id", value: (row) => row.id, cell: (row) => short(row.id, 24), className: "id" },
    {
      name: "verdict",
      label: "verdict",
      value: (row) => row.verdict,
      cell: (row) => el("span", { class: "chip v-" + row.verdict }, row.verdict),
      className: "verdictcell",
    },
    {
      name: "question",
      label: "question",
      value: (row) => asText(row.question),
      cell: (row) => el("span", { dir: "auto" }, short(row.question, 200)),
      className: "wide",
    },
    {
      name: "answer",
      label: "answer",
      value: (row) => asText(row.predicted_answer),
      cell: (row) =>
        el(
          "span",
          { dir: "auto" },
          short(row.error ? row.error.kind + ": " + row.error.message : row.predicted_answer, 90),
        ),
      className: "medium",
    },
    {
      name: "gold",
      label: "gold",
      value: (row) => asText(row.gold_answer),
      cell: (row) => el("span", { dir: "auto" }, short(row.gold_answer, 90)),
      className: "medium",
    },
    ...labels,
    ...(rows.some((row) => row.credited_by)
      ? [
          {
            name: "credited_by",
            label: "credit",
            value: (row) => row.credited_by,
            cell: (row) => asText(row.credited_by),
            className: "label",
          },
        ]
      : []),
    ...(rows.some((row) => isNumber(row.f1))
      ? [
          {
            name: "f1",
            label: "F1",
            numeric: true,
            value: (row) => row.f1,
            cell: (row) => (isNumber(row.f1) ? row.f1.toFixed(2) : ""),
            className: "num",
          },
        ]
      : []),
    {
      name: "calls",
      label: "calls",
      numeric: true,
      value: (row) => row.n_lm_calls,
      cell: (row) => count(row.n_lm_calls),
      className: "num",
    },
    {
      name: "tools",
      label: "tools",
      numeric: true,
      value: (row) => row.n_tool_calls,
      cell: (row) => count(row.n_tool_calls),
      className: "num",
    },
    {
      name: "tokens",
      label: "tokens",
      numeric: true,
      value: tokens,
      cell: (row) => compact(tokens(row)),
      className: "num",
    },
    {
      name: "time",
      label: "time",
      numeric: true,
      value: (row) => row.latency_s,
      cell: (row) => seconds(row.latency_s),
      className: "num",
    },
    ...(rows.some((row) => row.usd_without_cache)
      ? [
          {
            name: "usd",
            label: "$",
            numeric: true,
            value: (row) => row.usd_without_cache,
            cell: (row) => money(row.usd_without_cache),
            className: "num",
          },
        ]
      : []),
  ];
  const remarks = (row) =>
    [
      row.exhausted && "out of turns",
      row.forced && "forced",
      row.stopped && `stopped: ${row.stopped}`,
      row.verdict !== "error" &&
        !row.skipped &&
        (row.predicted_answer === null || row.predicted_answer === "") &&
        "no answer",
      row.strict_correct === false && row.correct === true && "right by the official rule only",
      row.strict_correct === true && row.correct === false && "right by the strict rule only",
    ].filter(Boolean);
  const filters = [
    facet("verdict", "verdict", (row) => [row.verdict]),
    ...run.labels.map((name) => facet(name, name, (row) => [asText(row[name])])),
    facet("credited_by", "credited by", (row) => (row.credited_by ? [row.credited_by] : [])),
    facet("error", "error", (row) => (row.error ? [`${row.error.kind}:${row.error.type}`] : [])),
    facet("remark", "remark", remarks),
  ].filter(
    (filter) =>
      filter.options.length >
      (filter.name === "verdict" || filter.name === "error" || filter.name === "remark" ? 0 : 1),
  );

  function facet(name, label, value) {
    const counts = new Map();
    for (const row of rows)
      for (const each of value(row)) if (each !== "") counts.set(each, (counts.get(each) || 0) + 1);
    const options = [...counts].sort((a, b) => COLLATOR.compare(a[0], b[0])).slice(0, 200);
    return { name, label, value, options: options.map(([each, n]) => [each, `${each} (${n})`]) };
  }

  return dataTable({
    rows,
    columns,
    filters,
    label: "questions",
    text: (row) =>
      [row.id, row.question, row.predicted_answer, row.gold_answer, row.error && row.error.message]
        .map(asText)
        .join("\n"),
    href: (row) => row.anchor,
    open: (row) => (location.hash = row.anchor),
    note: (shown) => {
      const scored = shown.filter((row) => row.verdict !== "error" && row.verdict !== "skipped");
      const right = scored.filter((row) => row.verdict === "right").length;
      const score = scored.length
        ? ` · ${percent(right / scored.length)} ${range(wilson(right, scored.length))} right`
        : "";
      return `${shown.length === rows.length ? "all " : ""}${plural(shown.length, "question")}${score}`;
    },
  });
}
