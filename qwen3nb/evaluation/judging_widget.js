"use strict";
// The keys of grading widgets. One script serves all of them, however often a cell is run.
(() => {
  if (window.qwen3nbJudge) return;
  window.qwen3nbJudge = true;
  const places = { KeyS: "s", KeyU: "u" };
  for (const digit of "0123") {
    places[`Digit${digit}`] = digit;
    places[`Numpad${digit}`] = digit;
  }

  function keyOf(event) {
    const key = event.key.toLowerCase();
    if ("0123su".includes(key) && key.length === 1) return key;
    const isLatin = /^[\x20-\x7e]$/.test(event.key) && !event.code.startsWith("Digit");
    return isLatin ? undefined : places[event.code];
  }

  function stepOf(box) {
    return box.querySelector("[data-step]")?.dataset.step;
  }

  // A box keeps the focus while its texts change, and JupyterLab's own keys rest in it.
  function prepare(box) {
    if (box.tabIndex === 0) return;
    box.tabIndex = 0;
    box.setAttribute("data-lm-suppress-shortcuts", "true");
    box.setAttribute("aria-label", "Grade documents: keys 0 to 3, s, u");
    box.setAttribute("role", "group");
  }

  // Before JupyterLab sees the key: there, 0 twice restarts the kernel.
  window.addEventListener("keydown", (event) => {
    const box = event.target.closest?.(".qwen3nb-judge");
    if (!box || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    const key = keyOf(event);
    const button = key && box.querySelector(`.qwen3nb-judge-${key}`);
    if (!button) {
      if (event.key === "Escape" || event.key === "Tab") return;
      const text = box.querySelector(".qwen3nb-text");
      const page = text.clientHeight * 0.9;
      const moves = { ArrowDown: 40, ArrowUp: -40, PageDown: page, PageUp: -page, " ": page };
      if (event.key in moves && document.activeElement === box) {
        text.scrollBy(0, moves[event.key]);
        event.preventDefault();
      }
      event.stopPropagation();
      return;
    }
    event.preventDefault();
    event.stopPropagation();
    if (!event.repeat) button.click();
  }, true);

  // The kernel answers after a moment: until then, a second press would grade an unseen document.
  window.addEventListener("click", (event) => {
    const button = event.target.closest?.(".qwen3nb-judge button");
    if (!button) return;
    const box = button.closest(".qwen3nb-judge");
    if (box.dataset.answered === stepOf(box)) {
      event.stopPropagation();
      event.preventDefault();
    } else {
      box.dataset.answered = stepOf(box);
    }
  }, true);

  window.addEventListener("pointerup", (event) => {
    const box = event.target.closest?.(".qwen3nb-judge");
    if (!box) return;
    prepare(box);
    if (!event.target.closest("button")) box.focus({ preventScroll: true });
  }, true);

  function takeFocus(box) {
    const isTyping = document.activeElement?.closest("input, textarea, [contenteditable=true]");
    if (!isTyping && box.isConnected) box.focus({ preventScroll: true });
  }

  // A box appears a moment after its cell has run; JupyterLab then focuses a cell.
  function greet() {
    for (const box of document.querySelectorAll(".qwen3nb-judge")) {
      if (box.tabIndex === 0) continue;
      prepare(box);
      setTimeout(() => takeFocus(box), 500);
    }
  }
  new MutationObserver(greet).observe(document.body, { childList: true, subtree: true });
  greet();
})();
