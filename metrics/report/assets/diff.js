// Word diff of two prompts: what was taken out, what was put in, in the order of reading.

const WORK = 4_000_000; // cells of the table of the longest common subsequence; beyond it lines are compared

/** `[kind, text]` pieces, kind one of "same", "out", "in"; joined without "in" they are `before`. */
function wordDiff(before, after) {
  const words = (text) => text.match(/\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) || [];
  const lines = (text) => text.match(/[^\n]*\n|[^\n]+/g) || [];
  let [a, b] = [words(before), words(after)];
  if (a.length * b.length > WORK) [a, b] = [lines(before), lines(after)];
  if (a.length * b.length > WORK)
    return [
      ["out", before],
      ["in", after],
    ];
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head += 1;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail])
    tail += 1;
  const middle = common(a.slice(head, a.length - tail), b.slice(head, b.length - tail));
  return merge([["same", a.slice(0, head).join("")], ...middle, ["same", a.slice(a.length - tail).join("")]]);
}

function common(a, b) {
  const width = b.length + 1;
  const table = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      table[i * width + j] =
        a[i] === b[j]
          ? table[(i + 1) * width + j + 1] + 1
          : Math.max(table[(i + 1) * width + j], table[i * width + j + 1]);
    }
  }
  const found = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      found.push(["same", a[i]]);
      [i, j] = [i + 1, j + 1];
    } else if (j >= b.length || (i < a.length && table[(i + 1) * width + j] >= table[i * width + j + 1])) {
      found.push(["out", a[i]]);
      i += 1;
    } else {
      found.push(["in", b[j]]);
      j += 1;
    }
  }
  return found;
}

/** Neighbours of one kind as one piece; a lone blank between two changes belongs to both. */
function merge(pieces) {
  const runs = [];
  let [gone, come] = ["", ""];
  const flush = () => {
    if (gone) runs.push(["out", gone]);
    if (come) runs.push(["in", come]);
    [gone, come] = ["", ""];
  };
  const kept = pieces.filter(([, text]) => text);
  kept.forEach(([kind, text], index) => {
    const next = kept[index + 1];
    const between = kind === "same" && (gone || come) && /^ $/.test(text) && next && next[0] !== "same";
    if (kind === "out" || between) gone += text;
    if (kind === "in" || between) come += text;
    if (kind !== "same" || between) return;
    flush();
    if (runs.length && runs[runs.length - 1][0] === "same") runs[runs.length - 1][1] += text;
    else runs.push(["same", text]);
  });
  flush();
  return runs;
}

function diffView(before, after) {
  if (before === after) return block(before, "diff");
  const tags = { out: "del", in: "ins", same: "span" };
  return el(
    "div",
    { class: "text diff", dir: "auto" },
    wordDiff(before, after).map(([kind, text]) => el(tags[kind], null, text)),
  );
}
