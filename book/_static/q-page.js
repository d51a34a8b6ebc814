// What a page needs besides its tables: a tab stop on every other box that scrolls, so that the
// keyboard reaches what is in it, and nothing folded away on paper.
(function () {
  "use strict";
  const BOXES = "figure.q-figure > div, div.math, .highlight pre, .pst-scrollable-table-container, "
    + ".text_html:has(table.dataframe)";

  // What a screen reader says of a box: the caption of its table or figure.
  function name(box) {
    const own = box.closest("figure");
    const caption = own && own.querySelector("figcaption");
    const words = caption ? caption.textContent.replace(/#\s*$/, "").trim() : "";
    return words || (box.matches("pre") ? "Code" : box.matches(".math") ? "Formula" : "Table");
  }

  function addTabStops() {
    document.querySelectorAll(BOXES).forEach((box) => {
      if (box.scrollWidth > box.clientWidth + 1) {
        box.tabIndex = 0;
        box.setAttribute("role", "group");
        box.setAttribute("aria-label", name(box));
      } else if (box.getAttribute("role") === "group") {
        ["tabindex", "role", "aria-label"].forEach((each) => box.removeAttribute(each));
      }
    });
  }

  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll(".bd-article details:not([open]):not(.q-code)")];
    opened.forEach((each) => { each.open = true; });
  });
  addEventListener("afterprint", () => opened.forEach((each) => { each.open = false; }));
  addEventListener("load", addTabStops);
  addEventListener("resize", addTabStops);
  // A folded box has no width before it is opened; this event does not bubble.
  document.addEventListener("toggle", addTabStops, true);
})();
