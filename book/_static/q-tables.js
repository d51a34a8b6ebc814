// Sorting and filtering of result tables. Nothing is fetched, and a table without this
// script is still a table: all it adds are buttons in the head and, above, a box to filter by.
(function () {
  "use strict";
  const MANY = 8; // rows, from which on a table can be filtered
  const NUMBER = /^[+\-−]?[\d,]*\.?\d+(e[+-]?\d+)?\s*%?$/i;

  // What a cell says, without the small type below it.
  function words(cell) {
    const copy = cell.cloneNode(true);
    copy.querySelectorAll(".q-detail, sub, sup").forEach((part) => part.remove());
    return copy.textContent.trim();
  }

  // The number behind a cell, or NaN: its own value, else what it says if that is a number.
  function value(cell) {
    if (cell.dataset.sort !== undefined) return parseFloat(cell.dataset.sort);
    const said = words(cell);
    if (!NUMBER.test(said)) return NaN;
    return parseFloat(said.replace(/,/g, "").replace("−", "-"));
  }

  function compare(first, second, index, numeric, sign) {
    const a = first.cells[index];
    const b = second.cells[index];
    if (!numeric) return sign * words(a).localeCompare(words(b), undefined, { numeric: true });
    const x = value(a);
    const y = value(b);
    if (isNaN(x) || isNaN(y)) return isNaN(x) - isNaN(y); // what is missing comes last, always
    return sign * (x - y);
  }

  function sort(table, head, index) {
    const body = table.tBodies[0];
    const rows = Array.from(body.rows);
    const numeric = rows.some((row) => !isNaN(value(row.cells[index])));
    const now = head.getAttribute("aria-sort");
    const first = numeric ? "descending" : "ascending";
    const next = now === null ? first : now === "ascending" ? "descending" : "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", next);
    const sign = next === "ascending" ? 1 : -1;
    rows.sort((a, b) => compare(a, b, index, numeric, sign)).forEach((row) => body.append(row));
  }

  function addSorting(table) {
    Array.from(table.tHead.rows[0].cells).forEach((head, index) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "q-sort";
      button.title = "Sort by this column";
      button.append(...head.childNodes);
      button.addEventListener("click", () => sort(table, head, index));
      head.append(button);
    });
  }

  function addFilter(table, box) {
    const rows = Array.from(table.tBodies[0].rows);
    const input = document.createElement("input");
    input.type = "search";
    input.className = "q-filter";
    input.placeholder = "Filter rows";
    input.setAttribute("aria-label", "Filter the rows of this table");
    const count = document.createElement("span");
    count.className = "q-count";
    count.setAttribute("role", "status");
    input.addEventListener("input", () => {
      const wanted = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !wanted.every((word) => text.includes(word));
        shown += row.hidden ? 0 : 1;
      }
      count.textContent = wanted.length ? `${shown} of ${rows.length} rows` : "";
    });
    const bar = document.createElement("div");
    bar.className = "q-bar";
    bar.append(input, count);
    box.prepend(bar);
  }

  function start() {
    document.querySelectorAll("table.q:not(.facts)").forEach((table) => {
      if (table.dataset.ready || !table.tHead || !table.tBodies.length) return;
      table.dataset.ready = "yes";
      const rows = table.tBodies[0].rows.length;
      if (rows > 1) addSorting(table);
      if (rows > MANY) addFilter(table, table.closest(".q-table") || table.parentNode);
    });
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
