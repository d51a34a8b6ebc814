// Sorting and filtering of result tables, and copying of commands. Nothing is fetched, and tables
// work without this script: it only adds buttons and a filter box.
(function () {
  "use strict";
  const MANY = 8; // rows from which a table gets a filter box
  const NUMBER = /^[+\-−]?[\d,]*\.?\d+(e[+-]?\d+)?\s*%?$/i;

  const plain = (text) => text.replace(/−/g, "-"); // as it is typed

  // The text of a cell, without the small type below it.
  function words(cell) {
    const copy = cell.cloneNode(true);
    copy.querySelectorAll(".q-detail, sub, sup").forEach((part) => part.remove());
    return copy.textContent.trim();
  }

  // The number behind a cell: its sort key, else its text if numeric, else NaN.
  function value(cell) {
    if (cell.classList.contains("q-published")) return NaN; // never among measured ones
    if (cell.dataset.sort !== undefined) return parseFloat(cell.dataset.sort);
    const text = words(cell);
    if (!NUMBER.test(text)) return NaN;
    return parseFloat(plain(text).replace(/,/g, ""));
  }

  function compare(first, second, index, numeric, sign) {
    const a = first.cells[index];
    const b = second.cells[index];
    if (!numeric) return sign * words(a).localeCompare(words(b), undefined, { numeric: true });
    const x = value(a);
    const y = value(b);
    if (isNaN(x) || isNaN(y)) return isNaN(x) - isNaN(y); // missing values always come last
    return sign * (x - y);
  }

  // A cell that spans several rows becomes one in each row; brackets beside them go.
  function separateRows(table) {
    table.classList.add("q-sorted");
    for (const cell of table.querySelectorAll("tbody [rowspan]")) {
      let row = cell.parentNode;
      for (let left = cell.rowSpan - 1; left > 0; left -= 1) {
        row = row.nextElementSibling;
        const copy = cell.cloneNode(true);
        copy.removeAttribute("rowspan");
        row.insertBefore(copy, row.cells[cell.cellIndex]);
      }
      cell.removeAttribute("rowspan");
    }
  }

  function sort(table, head, index) {
    separateRows(table);
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
      if (!head.textContent.trim()) return;
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
    const rows = Array.from(table.querySelectorAll("tbody > tr"));
    const input = document.createElement("input");
    input.type = "search";
    input.className = "q-filter";
    input.placeholder = "Filter rows";
    input.setAttribute("aria-label", "Filter the rows of this table");
    const count = document.createElement("span");
    count.className = "q-count";
    count.setAttribute("role", "status");
    input.addEventListener("input", () => {
      separateRows(table);
      const wanted = plain(input.value).toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of rows) {
        const text = plain(row.textContent).toLowerCase();
        row.hidden = !wanted.every((word) => text.includes(word));
        shown += row.hidden ? 0 : 1;
      }
      count.textContent = wanted.length ? `${shown} of ${rows.length} rows` : "";
    });
    const bar = document.createElement("div");
    bar.className = "q-bar";
    bar.append(input, count);
    const caption = box.querySelector(":scope > .q-caption");
    if (caption) caption.after(bar);
    else box.prepend(bar);
  }

  // A button that copies a command, or selects it where the page may not write the clipboard.
  function addCopying(code) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "q-copy";
    button.textContent = "Copy";
    button.addEventListener("click", () => {
      getSelection().selectAllChildren(code);
      const done = () => (button.textContent = "Copied");
      if (navigator.clipboard) navigator.clipboard.writeText(code.textContent).then(done, () => {});
    });
    code.after(button);
  }

  // A box that scrolls must be reachable by keyboard, and say what it is.
  function addScrolling(box) {
    if (box.scrollWidth <= box.clientWidth) return;
    box.tabIndex = 0;
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", "Scrolls sideways");
  }

  function prepare(table) {
    if (table.dataset.ready || !table.tHead || !table.tBodies.length) return;
    table.dataset.ready = "yes";
    const box = table.closest(".q-table") || table.parentNode;
    const rows = table.tBodies[0].rows.length;
    if (rows > 1) addSorting(table);
    const many = table.classList.contains("q-board") ? 2 * MANY : MANY;
    if (rows > many && !box.querySelector(":scope > .q-bar")) addFilter(table, box);
  }

  // A list from which the reader chooses one of the tables that were made with the page.
  function addChoice(data) {
    const box = data.closest(".q-table");
    const grid = box && box.querySelector(":scope > .q-scroll");
    if (!grid) return;
    const variants = JSON.parse(data.textContent);
    const select = document.createElement("select");
    for (const name of Object.keys(variants)) select.add(new Option(name));
    const first = select.value;
    select.addEventListener("change", () => {
      const chosen = new DOMParser().parseFromString(variants[select.value], "text/html");
      grid.replaceChildren(...chosen.querySelector(".q-scroll").childNodes);
      grid.querySelectorAll("table").forEach(prepare);
      const files = box.parentNode.querySelector(":scope > .q-files");
      if (files) files.hidden = select.value !== first; // they hold the first
    });
    const label = document.createElement("label");
    label.className = "q-choice";
    label.append(data.dataset.label, select);
    const bar = document.createElement("div");
    bar.className = "q-bar";
    bar.append(label);
    grid.before(bar);
  }

  // The view with the target of a link is the one that is shown.
  function showTarget() {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const view = target && target.closest(".q-view");
    if (!view) return;
    const views = view.parentNode;
    const place = Array.from(views.querySelectorAll(":scope > .q-view")).indexOf(view);
    views.querySelectorAll(":scope > input")[place].checked = true;
    target.scrollIntoView();
  }

  function addViews(views) {
    views.dataset.ready = "yes";
    views.querySelectorAll(":scope > input").forEach((input) => {
      input.addEventListener("change", () => views.querySelectorAll(".q-scroll").forEach(addScrolling));
    });
  }

  function start() {
    document.querySelectorAll(".q-views").forEach(addViews);
    addEventListener("hashchange", showTarget);
    showTarget();
    document.querySelectorAll("script.q-variants").forEach(addChoice);
    document.querySelectorAll("table.q:not(.facts)").forEach(prepare);
    document.querySelectorAll("code.q-command").forEach(addCopying);
    document.querySelectorAll(".q-scroll, figure.q-figure > div").forEach(addScrolling);
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
