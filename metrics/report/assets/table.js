// A table that searches, filters, sorts and pages; only the rows of one page are in the document.

const PAGE = 50;

/**
 * `columns`: `{name, label, value(row), cell(row), numeric, className}`; `filters`: `{name, label, value(row),
 * options: [[value, label]]}`; `text(row)`: what the search looks in; `open(row)`: on a click; `note(rows)`: a line
 * about the rows that are shown.
 */
function dataTable({ rows, columns, filters, text, open, href, note, label }) {
  const state = { search: "", sort: null, descending: false, page: 0, chosen: {} };
  const haystack = rows.map((row) => text(row).toLowerCase());
  let shown = rows;

  const search = el("input", {
    type: "search",
    placeholder: "Search",
    "aria-label": "Search " + label,
    spellcheck: "false",
    on: { input: () => ((state.search = search.value.trim().toLowerCase()), (state.page = 0), update()) },
  });
  const selects = filters.map((filter) => {
    const select = el(
      "select",
      {
        "aria-label": filter.label,
        "data-filter": filter.name,
        on: { change: () => ((state.chosen[filter.name] = select.value), (state.page = 0), update()) },
      },
      el("option", { value: "" }, filter.label + ": all"),
      filter.options.map(([value, name]) => el("option", { value }, short(name, 40))),
    );
    return select;
  });
  const reset = el("button", { type: "button", class: "quiet", on: { click: () => choose({}) } }, "clear");
  const line = el("p", { class: "note", "aria-live": "polite" });
  const heads = columns.map((column) =>
    el(
      "th",
      { class: column.className, scope: "col", "aria-sort": "none" },
      el("button", { type: "button", on: { click: () => sortBy(column) } }, column.label),
    ),
  );
  const body = el("tbody");
  const pager = el("nav", { class: "pager", "aria-label": "pages of " + label });

  function sortBy(column) {
    if (state.sort === column) state.descending = !state.descending;
    else [state.sort, state.descending] = [column, Boolean(column.numeric)];
    state.page = 0;
    update();
  }

  /** Set all filters (name -> value), the search empty. */
  function choose(chosen) {
    state.chosen = { ...chosen };
    state.search = search.value = "";
    state.page = 0;
    selects.forEach((select, i) => (select.value = chosen[filters[i].name] || ""));
    update();
  }

  function select() {
    const active = filters.filter((filter) => state.chosen[filter.name]);
    shown = rows.filter(
      (row, i) =>
        (!state.search || haystack[i].includes(state.search)) &&
        active.every((filter) => filter.value(row).includes(state.chosen[filter.name])),
    );
    if (state.sort) {
      const keys = new Map(shown.map((row) => [row, state.sort.value(row)]));
      const sign = state.descending ? -1 : 1;
      shown = [...shown].sort((a, b) => compare(keys.get(a), keys.get(b), sign));
    }
  }

  function update() {
    select();
    const pages = Math.max(1, Math.ceil(shown.length / PAGE));
    state.page = Math.min(state.page, pages - 1);
    const first = state.page * PAGE;
    body.replaceChildren(...shown.slice(first, first + PAGE).map(tr));
    columns.forEach((column, i) =>
      heads[i].setAttribute(
        "aria-sort",
        state.sort !== column ? "none" : state.descending ? "descending" : "ascending",
      ),
    );
    reset.hidden = !state.search && !Object.values(state.chosen).some(Boolean);
    line.textContent = note(shown);
    const step = (text, to, off) =>
      el("button", { type: "button", disabled: off, on: { click: () => ((state.page = to), update()) } }, text);
    pager.replaceChildren(
      ...(pages > 1
        ? [
            step("← previous", state.page - 1, state.page === 0),
            el(
              "span",
              null,
              `${count(first + 1)}–${count(Math.min(first + PAGE, shown.length))} of ${count(shown.length)}`,
            ),
            step("next →", state.page + 1, state.page === pages - 1),
          ]
        : []),
    );
  }

  function tr(row) {
    const line = el(
      "tr",
      { class: open && "link", on: open && { click: (event) => event.target.closest("a") || open(row) } },
      columns.map((column, i) => {
        const content = column.cell(row);
        const linked = i === 0 && href ? el("a", { href: href(row) }, content) : content;
        return el("td", { class: column.className, "data-label": column.label }, linked);
      }),
    );
    return line;
  }

  update();
  const node = el(
    "div",
    { class: "table" },
    el("div", { class: "tools" }, search, selects, reset),
    line,
    el("div", { class: "scroll" }, el("table", null, el("thead", null, el("tr", null, heads)), body)),
    pager,
  );
  return { node, choose, shown: () => shown };
}

/** Numbers by value, texts by their natural order, what is missing last. */
function compare(a, b, sign) {
  const none = (value) => value === null || value === undefined || value === "";
  if (none(a) || none(b)) return none(a) - none(b);
  if (typeof a === "number" && typeof b === "number") return sign * (a - b);
  return sign * COLLATOR.compare(String(a).slice(0, 200), String(b).slice(0, 200));
}

const COLLATOR = new Intl.Collator("en", { numeric: true, sensitivity: "base" });
