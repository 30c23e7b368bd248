// One question: what was asked, what came of it and why, then the whole conversation.

function why(row) {
  const found = [];
  if (row.error) found.push(`No score: ${row.error.kind} error (${row.error.type}). ${row.verdict === "refused" ? "It counts as wrong." : "It is in no mean."}`);
  if (row.skipped) found.push(`Not run: ${asText(row.skipped)}.`);
  const credits = {
    literal: "Credited: the answer is the gold, as the same value.",
    substring: "Credited: the gold stands in the answer.",
    tool_result: "Credited: the gold stands in the last tool result of the answering agent. The answer itself does not hold it.",
    none: "Not credited: the gold is neither the answer, nor in it, nor in the last tool result.",
  };
  if (!row.error && !row.skipped) {
    if (row.credited_by) found.push(credits[row.credited_by] || `Credited by ${row.credited_by}.`);
    if (typeof row.strict_correct === "boolean" && row.strict_correct !== row.correct) {
      found.push(row.strict_correct ? "The strict rule says right: the answer is the gold." : "The strict rule says wrong: the answer is not the gold itself.");
    }
    if (isNumber(row.em)) {
      found.push(row.em >= 1 ? "Equal to the gold after normalisation." : "Not equal to the gold after normalisation.");
      if (isNumber(row.f1) && row.em < 1) found.push(`Token F1 ${row.f1.toFixed(2)}.`);
    }
    if (row.no_answer || row.predicted_answer === null || row.predicted_answer === "") found.push("No answer could be read from the final message.");
  }
  const ends = [row.exhausted && "an agent was out of turns", row.forced && "the answer had to be forced", row.stopped && `stopped: ${row.stopped}`].filter(Boolean);
  if (ends.length) found.push(`On the way: ${ends.join(", ")}.`);
  return found;
}

const LISTED = new Set(["id", "question", "gold_answer", "predicted_answer", "verdict", "error", "type", "level", "hops", "domain"]);

function questionView(run, row, index, neighbours) {
  const holder = el("div", { class: "conversation" }, el("p", { class: "note" }, "reading the conversation …"));
  const labels = run.labels.filter((name) => row[name] !== null && row[name] !== undefined).map((name) => el("span", { class: "tag" }, `${name} ${row[name]}`));
  const go = (target, text) => (target === null ? el("span", { class: "off" }, text) : el("a", { href: `#q${target}` }, text));
  const view = el(
    "article",
    { class: "question" },
    el(
      "nav",
      { class: "crumbs" },
      el("a", { href: "#questions" }, "← all questions"),
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
      el("div", null, el("h3", null, "answer"), block(row.predicted_answer ?? "none", row.predicted_answer === null ? "none" : "")),
      el("div", null, el("h3", null, "gold"), block(row.gold_answer)),
      el("div", { class: "verdict v-" + row.verdict }, el("h3", null, VERDICTS[row.verdict] === "errors" ? "error" : VERDICTS[row.verdict]), why(row).map((text) => el("p", null, text)), row.error && block(row.error.message)),
    ),
    facts([
      ["time", seconds(row.latency_s)],
      ["model calls", isNumber(row.n_lm_calls) ? count(row.n_lm_calls) + (row.n_cached_lm_calls ? ` (${count(row.n_cached_lm_calls)} from the cache)` : "") : null],
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
      facts(Object.entries(row).filter(([name]) => !LISTED.has(name)).map(([name, value]) => [name, short(value, 400)])),
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
      const why = data.traces_left_out ? "The page would be too large with every conversation; this one is in the run's folder, under traces/." : "No conversation was recorded.";
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
  if (told.masked.length) parts.push(el("p", { class: "note" }, `masked: ${told.masked.map((entry) => told.name(entry.agent)).join(", ")}`));
  if (told.votes.length) parts.push(votes(told));
  parts.push(outcome(trace, row));
  return parts;
}

/** Every agent as a line over time: model calls solid, tool calls light. */
function swimlanes(told, cards) {
  const [left, width, rowHeight] = [118, roomy(), 24];
  const height = told.lanes.length * rowHeight + 24;
  const total = told.total || 1;
  const x = (s) => left + (s / total) * (width - left - 6);
  const chart = svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "lanes", role: "img" }, svg("title", null, "agents over time"));
  told.lanes.forEach((lane, i) => {
    const y = i * rowHeight;
    chart.append(
      svg("text", { x: left - 10, y: y + 16, "text-anchor": "end", class: `name a${lane.colour}` }, short(lane.name, 17)),
      svg("line", { x1: left, x2: width - 6, y1: y + 12, y2: y + 12, class: "grid" }),
    );
  });
  told.events.forEach((event, i) => {
    const y = told.lanes.indexOf(event.lane) * rowHeight;
    const bar = (start, end, className, hint) => {
      const rect = svg("rect", { x: x(start), y: y + (className === "tool" ? 8 : 5), width: Math.max(2.5, x(end) - x(start)), height: className === "tool" ? 8 : 14, rx: 2, class: `${className} a${event.lane.colour}` }, svg("title", null, hint));
      rect.addEventListener("click", () => {
        cards[i].scrollIntoView({ block: "center" });
        cards[i].classList.add("flash");
        setTimeout(() => cards[i].classList.remove("flash"), 1200);
      });
      chart.append(rect);
    };
    for (const tool of event.used) if (isNumber(tool.start)) bar(tool.start, tool.start + (tool.seconds || 0), "tool", `${tool.name}, ${seconds(tool.seconds)}`);
    bar(event.start, event.end, event.kind, `${event.lane.name}, ${seconds(event.end - event.start)}`);
  });
  chart.append(
    svg("text", { x: left, y: height - 3, class: "tick" }, "0"),
    svg("text", { x: width - 6, y: height - 3, "text-anchor": "end", class: "tick" }, seconds(total)),
  );
  return el("div", { class: "plotbox" }, chart);
}

function eventCard(event, told) {
  const call = event.call || {};
  const meta = [
    event.agent.round > 1 && `round ${event.agent.round}`,
    event.kind === "call" && event.turns > 1 && `call ${event.turn} of ${event.turns}`,
    !event.bare && `at ${seconds(event.start)}`,
    !event.bare && `took ${seconds(event.end - event.start)}`,
    isNumber(call.prompt_tokens) && `${count(call.prompt_tokens)} → ${count(call.completion_tokens)} tokens`,
    call.cached && "from the cache",
    call.usd_without_cache > 0 && money(call.usd_without_cache),
    call.finish_reason === "length" && "cut off at the token limit",
    call.unfinished && "never returned",
    call.error && `failed: ${call.error}`,
  ];
  return el(
    "li",
    { class: `event a${event.lane.colour}` },
    el("header", null, el("b", null, event.kind === "tool" ? `${event.lane.name} · tool` : event.lane.name), el("span", null, meta.filter(Boolean).join(" · "))),
    spoken(event),
    event.used.map(toolCall),
    list(event.step && event.step.notes).map((note) => said("note from the loop", note)),
    event.handoffs.map(handoff),
    event.messages.length ? prompt(event) : null,
  );
}

/** What the model said: its fields when the reply has DSPy's text form, else the reply as it is. */
function spoken(event) {
  const found = [];
  const shown = event.handoffs.map((h) => h.text.trim());
  for (const reply of event.replies) {
    if (reply.reasoning) found.push(said("reasoning", reply.reasoning));
    const fields = fieldsOf(reply.text);
    if (fields === null) {
      if (reply.text) found.push(said("reply", reply.text));
    } else {
      for (const [name, value] of fields) {
        const listed = name === "tool_calls" && (event.used.length || /^(\{"tool_calls": ?\[\]\}|\[\])$/.test(value));
        if (!listed && !shown.includes(value)) found.push(said(name, value));
      }
    }
    if (reply.calls && !event.used.length) found.push(said("tool calls", reply.calls));
  }
  if (!event.replies.length && event.step && event.step.thought) found.push(said("thought", event.step.thought));
  if (event.step && event.step.error) found.push(said("could not be read", event.step.error));
  if (event.step && event.step.forced) found.push(said("forced, because of", event.step.forced));
  return found;
}

function said(label, text) {
  return el("div", { class: "said s-" + label.replace(/\W+/g, "-") }, el("h4", null, label.replace(/_/g, " ")), block(text));
}

function toolCall(tool) {
  const args = typeof tool.args === "string" ? tool.args : JSON.stringify(tool.args ?? {});
  const failed = tool.kind && tool.kind !== "ok";
  const remark = [failed && tool.kind, isNumber(tool.seconds) && seconds(tool.seconds)].filter(Boolean).join(" · ");
  return el(
    "div",
    { class: "said tool" + (failed ? " failed" : "") },
    el("h4", null, tool.handoff ? tool.handoff.kind : "tool"),
    el(
      "div",
      null,
      tool.handoff ? route(tool.handoff) : null,
      el("div", { class: "callline" }, block(`${tool.name}(${args})`, "call"), remark && el("span", { class: "n" }, remark)),
      tool.unfinished ? el("p", { class: "note" }, "never returned") : block(tool.result, "result"),
    ),
  );
}

function route(item) {
  const seen = item.readers.length ? `read by ${item.readers.join(", ")}` : "in no later prompt";
  return el("p", { class: "route" }, [item.to && `to ${item.to}`, seen, item.parsed === false && "not in the chosen form"].filter(Boolean).join(" · "));
}

function handoff(item) {
  return el(
    "div",
    { class: "said handoff" },
    el("h4", null, item.kind || "handoff"),
    el(
      "div",
      null,
      route(item),
      block(item.text),
      item.errors.length ? el("p", { class: "note" }, item.errors.map((e) => short(e, 200)).join("; ")) : null,
    ),
  );
}

function prompt(event) {
  const size = event.messages.reduce((sum, message) => sum + message.text.length, 0);
  const details = el("details", { class: "prompt" }, el("summary", null, `prompt: ${plural(event.messages.length, "message")}, ${count(size)} characters`));
  details.addEventListener("toggle", () => {
    if (!details.open || details.children.length > 1) return;
    for (const message of event.messages) {
      const pieces = message.pieces.map(([piece, old]) => el("span", { class: old && "old" }, piece));
      details.append(el("h4", null, message.role), message.text.length > 40000 ? block(message.text) : el("div", { class: "text", dir: "auto" }, pieces));
      if (message.calls) details.append(block(message.calls));
    }
    if (event.tools) details.append(el("h4", null, "tools offered"), block(event.tools));
    const config = Object.entries(record(event.call.config)).map(([k, v]) => `${k} ${asText(v)}`);
    details.append(el("p", { class: "note" }, [event.call.model, ...config].filter(Boolean).join(" · "), event.messages.some((m) => m.pieces.some(([, old]) => old)) ? " · grey: sent to this agent before" : ""));
  });
  return details;
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
      el("thead", null, el("tr", null, ["agent", "answer", "votes for its answer"].map((name) => el("th", { scope: "col" }, name)))),
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
    el("div", { class: "said" }, el("h4", null, "verdict"), el("div", { class: "v-" + row.verdict }, why(row).map((text) => el("p", null, text)))),
    trace.answer_format ? said("asked form", trace.answer_format) : null,
    list(trace.tools_offered).length ? said("tools offered", list(trace.tools_offered).join(", ")) : null,
    trace.traceback ? said("traceback", list(trace.traceback).map(asText).join("\n")) : null,
  );
}
