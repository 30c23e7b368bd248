// One question: what was asked, what came of it and why, then the whole conversation.

function why(row) {
  const found = [];
  if (row.error)
    found.push(
      `No score: ${row.error.kind} error (${row.error.type}). ${row.verdict === "refused" ? "It counts as wrong." : "It is in no mean."}`,
    );
  if (row.skipped) found.push(`Not run: ${asText(row.skipped)}.`);
  const credits = {
    literal: "Credited: the answer is the gold, as the same value.",
    substring: "Credited: the gold stands in the answer.",
    tool_result:
      "Credited: the gold stands in the last tool result of the answering agent. The answer itself does not hold it.",
    none: "Not credited: the gold is neither the answer, nor in it, nor in the last tool result.",
  };
  if (!row.error && !row.skipped) {
    if (row.credited_by) found.push(credits[row.credited_by] || `Credited by ${row.credited_by}.`);
    if (typeof row.strict_correct === "boolean" && row.strict_correct !== row.correct) {
      found.push(
        row.strict_correct
          ? "The strict rule says right: the answer is the gold."
          : "The strict rule says wrong: the answer is not the gold itself.",
      );
    }
    if (isNumber(row.em)) {
      found.push(row.em >= 1 ? "Equal to the gold after normalisation." : "Not equal to the gold after normalisation.");
      if (isNumber(row.f1) && row.em < 1) found.push(`Token F1 ${row.f1.toFixed(2)}.`);
    }
    if (row.no_answer || row.predicted_answer === null || row.predicted_answer === "")
      found.push("No answer could be read from the final message.");
  }
  const ends = [
    row.exhausted && "an agent was out of turns",
    row.forced && "the answer had to be forced",
    row.stopped && `stopped: ${row.stopped}`,
  ].filter(Boolean);
  if (ends.length) found.push(`On the way: ${ends.join(", ")}.`);
  return found;
}

const LISTED = new Set([
  "id",
  "question",
  "gold_answer",
  "predicted_answer",
  "verdict",
  "error",
  "type",
  "level",
  "hops",
  "domain",
]);

function questionView(run, row, index, neighbours) {
  const holder = el("div", { class: "conversation" }, el("p", { class: "note" }, "reading the conversation …"));
  const labels = run.labels
    .filter((name) => row[name] !== null && row[name] !== undefined)
    .map((name) => el("span", { class: "tag" }, `${name} ${row[name]}`));
  const go = (target, text) =>
    target === null ? el("span", { class: "off" }, text) : el("a", { href: target }, text);
  const view = el(
    "article",
    { class: "question" },
    el(
      "nav",
      { class: "crumbs" },
      el("a", { href: "#" }, "← all questions"),
      el("span", { class: "spring" }),
      go(neighbours[0], "previous"),
      go(neighbours[1], "next"),
    ),
    el("p", { class: "kicker" }, `question ${asText(row.id)}`, labels),
    el("h2", { dir: "auto", tabindex: "-1" }, short(row.question, 600)),
    asText(row.question).length > 600 ? block(row.question) : null,
    el(
      "div",
      { class: "answers" },
      el(
        "div",
        null,
        el("h3", null, "answer"),
        block(row.predicted_answer ?? "none", row.predicted_answer === null ? "none" : ""),
      ),
      el("div", null, el("h3", null, "gold"), block(row.gold_answer)),
      el(
        "div",
        { class: "verdict v-" + row.verdict },
        el("h3", null, VERDICTS[row.verdict] === "errors" ? "error" : VERDICTS[row.verdict]),
        why(row).map((text) => el("p", null, text)),
        row.error && block(row.error.message),
      ),
    ),
    facts([
      ["time", seconds(row.latency_s)],
      [
        "model calls",
        isNumber(row.n_lm_calls)
          ? count(row.n_lm_calls) + (row.n_cached_lm_calls ? ` (${count(row.n_cached_lm_calls)} from the cache)` : "")
          : null,
      ],
      ["tool calls", isNumber(row.n_tool_calls) ? count(row.n_tool_calls) : null],
      ["tokens", `${count(row.prompt_tokens)} in, ${count(row.completion_tokens)} out`],
      ["billed", money(row.usd_billed)],
      ["without cache", money(row.usd_without_cache)],
    ]),
    holder,
    el(
      "details",
      { class: "raw" },
      el("summary", null, "all fields of the row"),
      facts(
        Object.entries(row)
          .filter(([name]) => !LISTED.has(name))
          .map(([name, value]) => [name, short(value, 400)]),
      ),
    ),
  );
  showTrace(holder, index, row);
  return view;
}

async function showTrace(holder, index, row) {
  let trace;
  try {
    const text = await unpack(`trace-${index}`);
    if (text === null) {
      const why = data.traces_left_out
        ? "The page would be too large with every conversation; this one is in the run's folder, under traces/."
        : "No conversation was recorded.";
      holder.replaceChildren(el("p", { class: "note" }, why));
      return;
    }
    trace = record(JSON.parse(text));
  } catch (error) {
    holder.replaceChildren(banner("warn", `The conversation cannot be read: ${error.message}`));
    return;
  }
  holder.replaceChildren(...conversation(trace, row));
}

function conversation(trace, row) {
  const told = readConversation(trace);
  const cards = told.events.map((event) => eventCard(event, told));
  const hidden = new Set();
  const toggles = told.lanes.map((lane) =>
    el(
      "button",
      {
        type: "button",
        class: `chip a${lane.colour}`,
        "aria-pressed": "true",
        on: {
          click: (event) => {
            const off = !hidden.delete(lane.id) && hidden.add(lane.id);
            event.currentTarget.setAttribute("aria-pressed", String(!off));
            told.events.forEach((each, i) => (cards[i].hidden = hidden.has(each.lane.id)));
          },
        },
      },
      lane.name,
    ),
  );
  const openAll = el("button", { type: "button", class: "quiet" }, "open all prompts");
  openAll.addEventListener("click", () => {
    const open = openAll.textContent.startsWith("open");
    for (const card of cards) for (const details of card.querySelectorAll("details.prompt")) details.open = open;
    openAll.textContent = open ? "close all prompts" : "open all prompts";
  });
  const parts = [];
  if (told.events.length) {
    parts.push(
      el("h3", { class: "over" }, "Conversation"),
      swimlanes(told, cards),
      el("div", { class: "tools" }, toggles.length > 1 ? toggles : null, el("span", { class: "spring" }), openAll),
      el("ol", { class: "events" }, cards),
    );
  }
  if (told.masked.length)
    parts.push(el("p", { class: "note" }, `masked: ${told.masked.map((entry) => told.name(entry.agent)).join(", ")}`));
  if (told.votes.length) parts.push(votes(told));
  parts.push(outcome(trace, row));
  return parts;
}

function votes(told) {
  const cast = told.votes.filter((vote) => vote.key !== null && vote.key !== undefined);
  const counts = new Map();
  for (const vote of cast) counts.set(vote.key, (counts.get(vote.key) || 0) + 1);
  return el(
    "section",
    { class: "vote" },
    el("h3", { class: "over" }, "Vote"),
    el(
      "table",
      { class: "plain" },
      el(
        "thead",
        null,
        el(
          "tr",
          null,
          ["agent", "answer", "votes for its answer"].map((name) => el("th", { scope: "col" }, name)),
        ),
      ),
      el(
        "tbody",
        null,
        told.votes.map((vote) =>
          el(
            "tr",
            { class: vote.won && "won" },
            el("th", { scope: "row" }, told.name(whoOf(vote.agent)), vote.won ? el("small", null, "submitted") : null),
            el("td", { dir: "auto" }, vote.answer === null ? "no vote" : short(vote.answer, 300)),
            el("td", null, counts.has(vote.key) ? `${counts.get(vote.key)} of ${cast.length}` : "none"),
          ),
        ),
      ),
    ),
  );
}

function outcome(trace, row) {
  return el(
    "section",
    { class: "outcome" },
    el("h3", { class: "over" }, "Scored"),
    said("final message", trace.final_text || "(empty)"),
    trace.last_tool_result ? said("last tool result", trace.last_tool_result) : null,
    el(
      "div",
      { class: "said" },
      el("h4", null, "verdict"),
      el(
        "div",
        { class: "v-" + row.verdict },
        why(row).map((text) => el("p", null, text)),
      ),
    ),
    trace.answer_format ? said("asked form", trace.answer_format) : null,
    list(trace.tools_offered).length ? said("tools offered", list(trace.tools_offered).join(", ")) : null,
    trace.traceback ? said("traceback", list(trace.traceback).map(asText).join("\n")) : null,
  );
}
