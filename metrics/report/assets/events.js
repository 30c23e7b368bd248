// The events of a conversation: lines over time, and a card for every model call.

/** Every agent as a line over time: model calls solid, tool calls light. */
function swimlanes(told, cards) {
  const [left, width, rowHeight] = [144, roomy(), 24];
  const height = told.lanes.length * rowHeight + 24;
  const total = told.total || 1;
  const x = (s) => left + (s / total) * (width - left - 6);
  const chart = svg(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, class: "lanes", role: "img" },
    svg("title", null, "agents over time"),
  );
  told.lanes.forEach((lane, i) => {
    const y = i * rowHeight;
    chart.append(
      svg(
        "text",
        { x: left - 10, y: y + 16, "text-anchor": "end", class: `name a${lane.colour}` },
        short(lane.name, 20),
      ),
      svg("line", { x1: left, x2: width - 6, y1: y + 12, y2: y + 12, class: "grid" }),
    );
  });
  told.events.forEach((event, i) => {
    const y = told.lanes.indexOf(event.lane) * rowHeight;
    const bar = (start, end, className, hint) => {
      const rect = svg(
        "rect",
        {
          x: x(start),
          y: y + (className === "tool" ? 8 : 5),
          width: Math.max(2.5, x(end) - x(start)),
          height: className === "tool" ? 8 : 14,
          rx: 2,
          class: `${className} a${event.lane.colour}`,
        },
        svg("title", null, hint),
      );
      rect.addEventListener("click", () => {
        cards[i].scrollIntoView({ block: "center" });
        cards[i].classList.add("flash");
        setTimeout(() => cards[i].classList.remove("flash"), 1200);
      });
      chart.append(rect);
    };
    for (const tool of event.used)
      if (isNumber(tool.start))
        bar(tool.start, tool.start + (tool.seconds || 0), "tool", `${tool.name}, ${seconds(tool.seconds)}`);
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
    el(
      "header",
      null,
      el("b", null, event.kind === "tool" ? `${event.lane.name} · tool` : event.lane.name),
      el("span", null, meta.filter(Boolean).join(" · ")),
    ),
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
      if (reply.text && !shown.includes(reply.text.trim())) found.push(said("reply", reply.text));
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
  return el(
    "div",
    { class: "said s-" + label.replace(/\W+/g, "-") },
    el("h4", null, label.replace(/_/g, " ")),
    block(text),
  );
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
      el(
        "div",
        { class: "callline" },
        block(`${tool.name}(${args})`, "call"),
        remark && el("span", { class: "n" }, remark),
      ),
      tool.unfinished ? el("p", { class: "note" }, "never returned") : block(tool.result, "result"),
    ),
  );
}

function route(item) {
  const seen = item.readers.length ? `read by ${item.readers.join(", ")}` : "in no later prompt";
  return el(
    "p",
    { class: "route" },
    [item.to && `to ${item.to}`, seen, item.parsed === false && "not in the chosen form"].filter(Boolean).join(" · "),
  );
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
  const details = el(
    "details",
    { class: "prompt" },
    el("summary", null, `prompt: ${plural(event.messages.length, "message")}, ${count(size)} characters`),
  );
  details.addEventListener("toggle", () => {
    if (!details.open || details.children.length > 1) return;
    for (const message of event.messages) {
      const pieces = message.pieces.map(([piece, old]) => el("span", { class: old && "old" }, piece));
      details.append(
        el("h4", null, message.role),
        message.text.length > 40000 ? block(message.text) : el("div", { class: "text", dir: "auto" }, pieces),
      );
      if (message.calls) details.append(block(message.calls));
    }
    if (event.tools) details.append(el("h4", null, "tools offered"), block(event.tools));
    const config = Object.entries(record(event.call.config)).map(([k, v]) => `${k} ${asText(v)}`);
    details.append(
      el(
        "p",
        { class: "note" },
        [event.call.model, ...config].filter(Boolean).join(" · "),
        event.messages.some((m) => m.pieces.some(([, old]) => old)) ? " · grey: sent to this agent before" : "",
      ),
    );
  });
  return details;
}
