// Candidates as a tree: who came from whom, what became of it, and what its prompts changed.

const STATUS = {
  baseline: "baseline",
  deployed: "deployed",
  incumbent: "best so far",
  accepted: "accepted",
  rejected: "rejected",
  proposed: "not decided",
};

function lineage(job) {
  const byId = new Map(job.candidates.map((candidate) => [candidate.id, candidate]));
  const children = new Map();
  const roots = [];
  for (const candidate of job.candidates) {
    if (candidate.parent && candidate.parent !== candidate.id && byId.has(candidate.parent)) {
      children.set(candidate.parent, [...(children.get(candidate.parent) || []), candidate]);
    } else roots.push(candidate);
  }
  const items = [];
  const seen = new Set();
  const walk = (candidate, depth) => {
    if (seen.has(candidate.id)) return;
    seen.add(candidate.id);
    items.push(treeRow(job, byId, candidate, depth));
    for (const child of children.get(candidate.id) || []) walk(child, depth + 1);
  };
  for (const root of roots) walk(root, 0);
  for (const candidate of job.candidates) walk(candidate, 0); // a parent that names itself in a circle
  return el("ul", { class: "tree" }, items);
}

function treeRow(job, byId, candidate, depth) {
  const best = candidate.scores.filter((score) => score.split === "validation" && isNumber(score.score)).pop();
  const trained = candidate.scores.filter((score) => score.split !== "validation" && isNumber(score.score)).pop();
  const what = [
    candidate.origin !== "baseline" && candidate.origin,
    isNumber(candidate.rollouts) && depth > 0 && `at ${plural(candidate.rollouts, "rollout")}`,
    candidate.changed.length && depth > 0 ? `changes ${candidate.changed.join(", ")}` : null,
    candidate.reason,
  ];
  const status = STATUS[candidate.status] || candidate.status;
  const score = best ? percent(best.score) : trained ? `(${percent(trained.score)})` : "";
  const button = el(
    "button",
    {
      type: "button",
      class: "node",
      "aria-expanded": "false",
      title: best
        ? `on ${plural(best.rows, "validation row")}`
        : trained
          ? `on ${plural(trained.rows, "training row")}`
          : null,
    },
    el(
      "span",
      { class: "name", style: { "padding-left": `${Math.max(0, Math.min(depth, 12) - 1) * 1.1}rem` } },
      depth ? el("i", { class: "limb" }) : null,
      el("code", null, candidate.id.slice(0, 8)),
    ),
    el(
      "span",
      { class: "what" },
      el("b", { class: "status s-" + candidate.status }, status),
      what.filter(Boolean).map((text) => " · " + short(text, 160)),
    ),
    el("span", { class: "score-cell" }, score),
  );
  const item = el("li", null, button);
  button.addEventListener("click", () => {
    const open = button.getAttribute("aria-expanded") === "true";
    button.setAttribute("aria-expanded", String(!open));
    if (open) item.querySelector(".detail").remove();
    else item.append(treeDetail(job, candidate, byId.get(candidate.parent)));
  });
  return item;
}

function treeDetail(job, candidate, parent) {
  const scores = candidate.scores.map(
    (s) => `${s.split} ${percent(s.score)} on ${plural(s.rows, "row")}, at ${plural(s.rollouts, "rollout")}`,
  );
  return el(
    "div",
    { class: "detail" },
    scores.length ? el("p", { class: "note" }, scores.slice(0, 12).join("; ")) : null,
    prompts(job, parent || null, candidate, parent ? "nothing of its parent was changed" : null),
  );
}

/** The instructions of two candidates, one word diff per predictor that changed; the others by name. */
function prompts(job, before, after, same) {
  const names = Object.keys(after.instructions);
  const changed = before
    ? names.filter(
        (name) =>
          before.instructions[name] !== after.instructions[name] ||
          (before.demos[name] || 0) !== (after.demos[name] || 0),
      )
    : names;
  const untouched = names.filter((name) => !changed.includes(name));
  const text = (candidate, name) => job.texts[candidate.instructions[name]] ?? "";
  const demos = (name) => {
    const [a, b] = [before ? before.demos[name] || 0 : 0, after.demos[name] || 0];
    return a === b ? (b ? `${plural(b, "demonstration")}` : null) : `demonstrations: ${a} → ${b}`;
  };
  return [
    changed.map((name) =>
      el(
        "div",
        { class: "prompt-diff" },
        el("h3", null, name),
        demos(name) && el("p", { class: "note" }, demos(name)),
        before ? diffView(text(before, name), text(after, name)) : block(text(after, name), "diff"),
      ),
    ),
    !changed.length && same ? el("p", { class: "note" }, same) : null,
    changed.length && untouched.length ? el("p", { class: "note" }, `unchanged: ${untouched.join(", ")}`) : null,
  ];
}
