// From a saved trace to events in the order of time: who was asked what, said what, called what, and who read it.

const READERS = new Intl.Collator("en", { numeric: true });
const agentKey = (agent) => `${agent.role}|${agent.index}|${agent.round}`;
const laneKey = (agent) => `${agent.role}|${agent.index}`;
const list = (value) => (Array.isArray(value) ? value : []);
const record = (value) => (value && typeof value === "object" && !Array.isArray(value) ? value : {});
const whoOf = (agent) => ({ role: "", index: 0, round: 0, ...record(agent) });

/** `{lanes, events, agents, votes, total}`; an event is a model call with its tool calls, or a tool call on its own. */
function readConversation(trace) {
  const texts = record(trace.texts);
  const text = (keys) =>
    typeof keys === "string"
      ? keys
      : list(keys)
          .map((k) => texts[k] ?? "")
          .join("");
  const own = list(trace.agents).map((entry) => ({ ...record(entry), agent: whoOf(entry && entry.agent) }));
  const pool = list(trace.tools).map((tool) => ({ ...record(tool), taken: false }));
  const events = list(trace.calls).map((call, i) => readCall(record(call), i, text));
  for (const entry of own) pairSteps(entry, events, pool, text);
  for (const tool of pool) if (!tool.taken) events.push(readTool(tool, text));
  events.sort((a, b) => a.start - b.start || a.order - b.order);

  const counts = new Map();
  for (const event of events) {
    if (event.kind !== "call") continue;
    event.turn = (counts.get(event.key) || 0) + 1;
    counts.set(event.key, event.turn);
  }
  for (const event of events) event.turns = counts.get(event.key);
  const several = new Map();
  for (const event of events)
    several.set(event.agent.role, (several.get(event.agent.role) || new Set()).add(event.agent.index));
  const name = (agent) =>
    (agent.role || "program") + ((several.get(agent.role) || new Set()).size > 1 ? ` ${agent.index + 1}` : "");

  const lanes = [];
  for (const event of events) {
    const id = laneKey(event.agent);
    let lane = lanes.find((each) => each.id === id);
    if (!lane) lanes.push((lane = { id, name: name(event.agent), colour: lanes.length % 8 }));
    event.lane = lane;
  }
  markRepeats(events);
  attachHandoffs(record(trace.reports), events, name);
  const total = Math.max(0, ...events.map((event) => event.end));
  return { lanes, events, name, total, votes: list(trace.votes).map(record), masked: own.filter((e) => e.masked) };
}

function readCall(call, order, text) {
  const agent = whoOf(call.agent);
  const start = isNumber(call.start_s) ? call.start_s : 0;
  return {
    kind: "call",
    order,
    agent,
    key: agentKey(agent),
    start,
    end: start + (isNumber(call.seconds) ? call.seconds : 0),
    messages: list(call.messages).map((message) => ({
      role: message.role,
      parts: list(message.text),
      text: text(message.text),
      calls: message.tool_calls ? text(message.tool_calls) : "",
      pieces: list(message.text).map((k) => [k, text([k])]),
    })),
    tools: call.tools ? text(call.tools) : "",
    replies: list(call.reply).map((reply) => ({
      text: text(record(reply).text),
      reasoning: text(record(reply).reasoning_content),
      calls: text(record(reply).tool_calls),
    })),
    call,
    steps: null,
    used: [],
    handoffs: [],
  };
}

function readTool(tool, text) {
  const agent = whoOf(tool.agent);
  const start = isNumber(tool.start_s) ? tool.start_s : 0;
  return {
    kind: "tool",
    order: 1e6,
    agent,
    key: agentKey(agent),
    start,
    end: start + (isNumber(tool.seconds) ? tool.seconds : 0),
    used: [
      {
        name: tool.name,
        args: text(tool.arguments),
        result: text(tool.result),
        kind: tool.error ? "error" : "ok",
        seconds: tool.seconds,
        unfinished: tool.unfinished,
      },
    ],
    messages: [],
    replies: [],
    handoffs: [],
  };
}

/** Give each model call of an agent the turn that the program recorded for it, with its tool calls and their times. */
function pairSteps(entry, events, pool, text) {
  const calls = events.filter(
    (event) => event.kind === "call" && event.key === agentKey(entry.agent) && !event.call.error,
  );
  let last = 0;
  list(entry.steps).forEach((raw, i) => {
    const step = record(raw);
    let event = calls[i];
    if (!event) {
      if (!step.thought && !list(step.calls).length) return;
      event = { ...readCall({ agent: entry.agent, start_s: last }, events.length, text), bare: true };
      events.push(event);
    }
    last = event.end;
    event.step = step;
    event.final = i === list(entry.steps).length - 1 ? entry : null;
    for (const call of list(step.calls).map(record)) {
      const args = canonical(call.args);
      const fits = (tool) => !tool.taken && tool.name === call.name && tool.start_s >= event.end - 0.002;
      const tool = pool.find((t) => fits(t) && canonicalText(text(t.arguments)) === args) || pool.find(fits);
      if (tool) tool.taken = true;
      event.used.push({
        name: call.name,
        args: call.args,
        result: call.result,
        kind: call.kind,
        seconds: tool && tool.seconds,
        start: tool && tool.start_s,
      });
    }
  });
}

const canonical = (value) => JSON.stringify(sorted(value));

function canonicalText(text) {
  try {
    return canonical(JSON.parse(text));
  } catch {
    return text;
  }
}

function sorted(value) {
  if (Array.isArray(value)) return value.map(sorted);
  if (value && typeof value === "object")
    return Object.fromEntries(
      Object.keys(value)
        .sort()
        .map((k) => [k, sorted(value[k])]),
    );
  return value;
}

/** What of a prompt its agent had been sent before: a turn repeats most of the turn before it. */
function markRepeats(events) {
  const sent = new Map();
  for (const event of events) {
    if (event.kind !== "call") continue;
    const before = sent.get(event.key);
    for (const message of event.messages) {
      message.pieces = message.pieces.map(([k, piece]) => [piece, Boolean(before && before.has(k))]);
    }
    const now = before || new Set();
    for (const message of event.messages) for (const part of message.parts) now.add(part);
    sent.set(event.key, now);
  }
}

/** Put each handoff to the call that wrote it, with the agents whose later prompts hold its text. */
function attachHandoffs(reports, events, name) {
  const prompts = new Map();
  for (const event of events) {
    if (event.kind !== "call") continue;
    const known = prompts.get(event.key) || { agent: event.agent, first: event.start, last: 0, texts: new Set() };
    known.last = event.start;
    for (const message of event.messages) known.texts.add(message.text);
    prompts.set(event.key, known);
  }
  for (const known of prompts.values()) known.joined = bare([...known.texts].join("\n"));
  for (const raw of list(reports.handoffs)) {
    const handoff = record(raw);
    const from = whoOf(handoff.from);
    const written = asText(handoff.text);
    const own = events.filter((event) => event.kind === "call" && event.key === agentKey(from));
    const wrote = (event) => event.replies.some((reply) => holds(bare(reply.text + reply.calls), written));
    const event =
      (handoff.kind === "delegation" && own.find((e) => wrote(e) && !handed(e, written))) || own[own.length - 1];
    if (!event) continue;
    const readers = [];
    for (const [id, known] of prompts) {
      if (id === event.key || known.last < event.start || !holds(known.joined, written)) continue;
      const label = name(known.agent) + (known.agent.round > 1 ? ` (round ${known.agent.round})` : "");
      if (!readers.includes(label)) readers.push(label);
    }
    readers.sort(READERS.compare);
    const to = handoff.to ? name(whoOf(handoff.to)) : null;
    const item = {
      kind: handoff.kind,
      text: written,
      to,
      readers,
      parsed: handoff.parse_ok,
      errors: list(handoff.errors),
    };
    const call = event.used.find((used) => !used.handoff && Object.values(record(used.args)).includes(handoff.text));
    if (call) call.handoff = item;
    else event.handoffs.push(item);
  }
}

/** Whether this very handoff was put to the call before: an agent may delegate the same question twice. */
function handed(event, written) {
  return [...event.handoffs, ...event.used.map((used) => used.handoff)].some((item) => item && item.text === written);
}

/** Letters and digits alone: a reader's copy of a text has other marks and line breaks. */
const bare = (text) => text.replace(/[^\p{L}\p{N}]+/gu, " ").trim();

/** Whether a prompt (made `bare`) holds a handoff: whole, or most of its lines when its form was changed. */
function holds(prompt, written) {
  const whole = bare(written);
  if (!whole) return false;
  if (prompt.includes(whole)) return true;
  let pieces = written.split("\n");
  try {
    pieces = leaves(JSON.parse(written));
  } catch {
    pieces = pieces.map((line) => line.replace(/^\s*(\[\w+\]|\w+:)\s*/, ""));
  }
  pieces = pieces.map(bare).filter((piece) => piece.length >= 12);
  return pieces.length > 0 && 2 * pieces.filter((piece) => prompt.includes(piece)).length >= pieces.length;
}

function leaves(value) {
  if (typeof value === "string") return [value];
  return value && typeof value === "object" ? Object.values(value).flatMap(leaves) : [];
}

/** The output fields of a reply in DSPy's text form; null when it has another form. */
function fieldsOf(reply) {
  const pieces = reply.split(/^\[\[ ## (\w+) ## \]\][ \t]*\n?/m);
  if (pieces.length < 3) return null;
  const fields = [];
  for (let i = 1; i < pieces.length; i += 2) {
    const value = pieces[i + 1].trim();
    if (pieces[i] !== "completed" && value) fields.push([pieces[i], value]);
  }
  return pieces[0].trim() ? [["before the first field", pieces[0].trim()], ...fields] : fields;
}
