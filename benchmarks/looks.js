// Measures the look of pages for looks.py, which gives `visits`: name, address and width of each.
// A frame may be narrower than 500 pixels, which a window of Chromium may not.
const HIDDEN = "math, script, style, .skip-link, .visually-hidden, .sr-only, dialog";
const DRAWN_BESIDE = "defs, clipPath, script, style, .visually-hidden, .sr-only, "
  + "button.copybtn, .headerlink, .q-sort, span.w";
const TABLES = ".q-scroll, .q-table, .pst-scrollable-table-container, .text_html:has(table)";
const BLOCKS = "figure.q-figure, .q-table, .admonition, div.highlight, .q-note, .q-caption, "
  + "figcaption, .q-conclusion, .pst-scrollable-table-container, section > p";
const INSIDE = "li, dd, td, .admonition *, blockquote, .q-finding, .q-findings *, .sd-card *, "
  + "details details";
// Symbols; and numbers of a table, which lead to their runs in the colour of text.
const NO_TEXT_LINKS = ".headerlink, .q-permalink, .sd-btn, .footnote-reference, td[data-sort] a";

function shown(element) {
  return element.checkVisibility({ opacityProperty: true, visibilityProperty: true })
    && element.getClientRects().length > 0;
}

function named(element) {
  const words = element.textContent.trim().replace(/\s+/g, " ").slice(0, 30);
  const classes = [...element.classList].slice(0, 2).map((name) => "." + name);
  return `<${element.localName}${classes.join("")}> ${words}`;
}

// Elements that hold text themselves; formulas set their own sizes.
function texts(doc) {
  return [...doc.body.querySelectorAll("*")].filter((element) => {
    const holds = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    return holds && !element.closest(HIDDEN) && shown(element);
  });
}

// The size of an element's letters as they stand on the page, in pixels.
function pixels(element, view) {
  const size = parseFloat(view.getComputedStyle(element).fontSize);
  if (!element.ownerSVGElement) return Math.round(size * 10) / 10;
  const matrix = element.getScreenCTM();
  return Math.round(size * Math.hypot(matrix.c, matrix.d));
}

function scrolls(element, view) {
  return /auto|scroll/.test(view.getComputedStyle(element).overflowX);
}

function cuts(element, view) {
  return /hidden|clip/.test(view.getComputedStyle(element).overflowX);
}

// Where an element may be seen: the page, less what boxes around it cut; null if one scrolls.
function room(element, view) {
  const page = view.document;
  const edges = { left: 0, right: page.documentElement.clientWidth };
  for (let box = element.parentElement; box && box !== page.body; box = box.parentElement) {
    if (box.localName === "svg" || box.ownerSVGElement) continue;
    if (scrolls(box, view) && box.scrollWidth > box.clientWidth + 1) return null;
    if (cuts(box, view)) {
      const rectangle = box.getBoundingClientRect();
      edges.left = Math.max(edges.left, rectangle.left);
      edges.right = Math.min(edges.right, rectangle.right);
    }
  }
  return edges;
}

function beyond(doc, view) {
  const found = [...doc.querySelectorAll(".bd-article *")].filter((element) => {
    if (element.closest(DRAWN_BESIDE) || !shown(element)) return false;
    if (element.closest("math") && element.localName !== "math") return false;
    if (element.ownerSVGElement && element.localName !== "text") return false;
    const rectangle = element.getBoundingClientRect();
    const edges = room(element, view);
    if (rectangle.width < 2 || edges === null) return false;
    return rectangle.right > edges.right + 1.5 || rectangle.left < edges.left - 1.5;
  });
  return found.filter((element) => !found.some((other) =>
    other !== element && other.contains(element)));
}

function sideways(doc, view) {
  return [...doc.querySelectorAll(".bd-article *")].filter((element) =>
    !element.ownerSVGElement && shown(element) && scrolls(element, view)
    && element.scrollWidth > element.clientWidth + 1 && !element.matches(TABLES));
}

// How far the right edges of blocks are from that of the title, in pixels.
function edges(doc) {
  const title = doc.querySelector(".bd-article h1");
  if (!title) return [];
  const distances = new Set();
  for (const block of doc.querySelectorAll(`.bd-article :is(${BLOCKS})`)) {
    if (!shown(block) || block.closest(INSIDE)) continue;
    const right = block.getBoundingClientRect().right;
    const distance = Math.round(right - title.getBoundingClientRect().right);
    if (Math.abs(distance) > 2) distances.add(distance);
  }
  return [...distances];
}

function light(color) {
  const numbers = (color.match(/[\d.]+/g) || []).map(Number);
  if (numbers.length < 3) return false;  // none
  const least = color.startsWith("color(") ? 0.85 : 217;
  return numbers.slice(0, 3).every((part) => part > least) && (numbers[3] ?? 1) > 0.5;
}

function white(doc, view) {
  doc.documentElement.dataset.theme = "dark";
  const found = [...doc.querySelectorAll(".bd-article *")].filter((element) => {
    if (!shown(element) || element.closest("defs, clipPath")) return false;
    const style = view.getComputedStyle(element);
    const box = element.getBoundingClientRect();
    if (element.matches("path, rect")) {
      return box.width > 60 && box.height > 30 && light(style.fill);
    }
    if (element.ownerSVGElement) return false;
    return box.width > 30 && box.height > 12 && light(style.backgroundColor);
  });
  doc.documentElement.dataset.theme = "light";
  return found;
}

function cellsOfCode(doc) {
  if (!doc.URL.includes("/runs/")) return [];  // in lessons, code is the subject
  return [...doc.querySelectorAll(".cell_input")].filter((element) =>
    !element.closest(".q-code"));
}

// Each size of type with the number of elements that have it and the first of them.
function sizesOf(elements, view) {
  const found = new Map();
  for (const element of elements) {
    const size = pixels(element, view);
    const { count = 0, example = named(element) } = found.get(size) ?? {};
    found.set(size, { count: count + 1, example });
  }
  return [...found].map(([size, { count, example }]) => ({ size, count, example }));
}

function measured(doc, view) {
  const all = texts(doc);
  const letters = all.filter((element) => element.ownerSVGElement);
  const links = all.filter((element) =>
    element.closest(`.bd-article a[href]:not(${NO_TEXT_LINKS})`));
  return {
    sizes: sizesOf(all, view),
    link_colors: [...new Set(links.map((element) => view.getComputedStyle(element).color))],
    wide: doc.documentElement.scrollWidth > doc.documentElement.clientWidth,
    beyond: beyond(doc, view).slice(0, 4).map(named),
    scrolling: sideways(doc, view).slice(0, 4).map(named),
    edges: edges(doc).slice(0, 8),
    code: cellsOfCode(doc).length,
    white: white(doc, view).slice(0, 3).map(named),
    tiny: letters.length ? Math.min(...letters.map((element) => pixels(element, view))) : 0,
  };
}

// Resolves when the page has loaded, and its scripts have changed it.
function opened(frame, url) {
  return new Promise((resolve) => {
    frame.onload = () => setTimeout(resolve, 150);
    frame.src = url;
  });
}

(async () => {
  const looks = [];
  for (const visit of visits) {
    const frame = document.createElement("iframe");
    frame.style.cssText = `width:${visit.width}px;height:900px;border:0`;
    document.body.append(frame);
    await opened(frame, visit.url);
    const look = measured(frame.contentDocument, frame.contentWindow);
    looks.push({ page: visit.page, width: visit.width, ...look });
    frame.remove();
  }
  const answer = document.createElement("pre");
  answer.id = "looks";
  answer.textContent = JSON.stringify(looks);
  document.body.append(answer);
})();
