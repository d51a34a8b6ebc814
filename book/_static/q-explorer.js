// The per-query explorer: a point per query, two models side by side, and the query that the
// page's address names: #q=<query>&a=<model>&b=<model>. The data are embedded in the page;
// plotly's script is loaded on pages with an explorer. Foreign text is only ever set as text.
(function () {
  "use strict";

  const SHOWN = 5; // documents of a ranking

  function make(tag, given, ...children) {
    const { data, ...properties } = given || {};
    const node = Object.assign(document.createElement(tag), properties);
    for (const [name, value] of Object.entries(data || {})) node.setAttribute(name, value);
    node.append(...children);
    return node;
  }

  function escaped(text) {
    return make("span", { textContent: text }).innerHTML;
  }

  // A text for a hover box, in lines of about 60 characters.
  function wrapped(text) {
    const lines = [""];
    for (const word of text.split(" ")) {
      if (lines.at(-1) && lines.at(-1).length + word.length > 60) lines.push("");
      lines.push(`${lines.pop()} ${word}`.trim());
    }
    return lines.slice(0, 5).map(escaped).join("<br>") + (lines.length > 5 ? " …" : "");
  }

  const signed = (value) => (value < 0 ? "−" : "+") + Math.abs(value).toFixed(3);
  const briefly = (text) => (text.length > 70 ? `${text.slice(0, 69)}…` : text);

  // The address

  function address(state) {
    const entries = Object.entries(state).filter(([, value]) => value);
    return `#${new URLSearchParams(entries)}`;
  }

  function stated(data) {
    const given = new URLSearchParams(location.hash.slice(1));
    const known = (name, otherwise) => (data.models.includes(name) ? name : otherwise);
    const unknown = [given.get("a"), given.get("b")].filter((name) => name && known(name, "") === "");
    const [a, b] = [known(given.get("a"), data.models[0]), known(given.get("b"), data.models[1])];
    return { q: given.get("q") || "", a, b, unknown };
  }

  function go(state, changes) {
    const { q, a, b } = { ...state, ...changes };
    location.hash = address({ q, a, b });
  }

  // The points

  function theme(box) {
    const ink = getComputedStyle(box).color;
    const line = ink.replace("rgb(", "rgba(").replace(")", ", 0.2)");
    return { ink, axis: { color: ink, gridcolor: line, linecolor: line } };
  }

  function paint(box, plot) {
    const { ink, axis } = theme(box);
    const layout = { "font.color": ink, "font.family": getComputedStyle(box).fontFamily };
    for (const name of ["xaxis", "yaxis"]) {
      for (const key of Object.keys(axis)) layout[`${name}.${key}`] = axis[key];
    }
    window.Plotly.relayout(plot, layout);
    window.Plotly.restyle(plot, { "line.color": ink, "marker.line.color": ink }, [1, 2]);
  }

  // Small offsets (shares of the range of scores), so that equal points do not overlap.
  function offsets(data) {
    const golden = (Math.sqrt(5) - 1) / 2;
    return data.ids.map((_, i) => {
      const radius = 0.012 * Math.sqrt((i * golden * golden) % 1);
      const turn = 2 * Math.PI * i * golden;
      return [radius * Math.cos(turn), radius * Math.sin(turn)];
    });
  }

  function points(data, state) {
    const { a, b } = state;
    const shifts = offsets(data);
    const at = (name, axis) => data.scores[name].map((score, i) => score + shifts[i][axis]);
    const rows = data.texts.map((text, i) => [wrapped(text), data.scores[a][i], data.scores[b][i]]);
    return { x: at(a, 0), y: at(b, 1), customdata: rows };
  }

  function draw(plot, data, state) {
    const all = points(data, state);
    const index = data.ids.indexOf(state.q);
    const ring = index < 0 ? { x: [], y: [] } : { x: [all.x[index]], y: [all.y[index]] };
    const each = (given) => Object.fromEntries(Object.entries(given).map(([k, v]) => [k, [v]]));
    window.Plotly.restyle(plot, { ...each(all), "marker.color": data.colors[state.a] }, [0]);
    window.Plotly.restyle(plot, each(ring), [2]);
    window.Plotly.relayout(plot, {
      "xaxis.title.text": `${data.metric}, ${escaped(state.a)}`,
      "yaxis.title.text": `${data.metric}, ${escaped(state.b)}`,
    });
  }

  function plotted(box, data) {
    const plot = box.querySelector(".q-plot");
    if (!window.Plotly) {
      plot.remove();
      return null;
    }
    const [clear, silent] = ["rgba(0,0,0,0)", { type: "scatter", hoverinfo: "skip" }];
    const hovertemplate =
      "%{customdata[0]}<br>x-axis %{customdata[1]:.3f}, y-axis %{customdata[2]:.3f}<extra></extra>";
    const trace = { type: "scatter", mode: "markers", marker: { size: 9, opacity: 0.55 }, hovertemplate };
    const even = { ...silent, x: [0, 1], y: [0, 1], mode: "lines", line: { dash: "dot", width: 1 } };
    const marker = { size: 15, color: clear, line: { width: 2 } };
    const ring = { ...silent, mode: "markers", x: [], y: [], marker };
    const axis = () => ({ range: [-0.04, 1.04], zeroline: false, title: {} });
    const layout = {
      template: "none",
      showlegend: false,
      hovermode: "closest",
      dragmode: "pan",
      paper_bgcolor: clear,
      plot_bgcolor: clear,
      margin: { l: 60, r: 10, t: 10, b: 50 },
      height: 420,
      xaxis: axis(),
      yaxis: axis(),
    };
    const options = { responsive: true, displaylogo: false, displayModeBar: false, scrollZoom: false };
    window.Plotly.newPlot(plot, [trace, even, ring], layout, options);
    paint(box, plot);
    new MutationObserver(() => paint(box, plot)).observe(document.documentElement, {
      attributes: true,
      attributeFilter: ["data-theme"],
    });
    return plot;
  }

  // The query

  function scoreList(data, state, index) {
    const order = [...data.models].sort((m, n) => data.scores[n][index] - data.scores[m][index]);
    return make("ul", { className: "q-scores" }, ...order.map((name) => {
      const score = data.scores[name][index];
      const bar = make("i");
      bar.style.width = `${100 * Math.max(0, Math.min(1, score))}%`;
      bar.style.background = data.colors[name];
      const label = make(name === state.a || name === state.b ? "strong" : "span", {}, name);
      return make("li", {}, label, make("em", {}, bar), make("b", {}, score.toFixed(3)));
    }));
  }

  function verdict(grades, name) {
    if (!(name in grades)) return make("span", { className: "q-grade" }, "not judged");
    const relevant = grades[name] > 0;
    const word = relevant ? `✓ relevant, grade ${grades[name]}` : "✗ judged not relevant";
    return make("span", { className: relevant ? "q-grade q-relevant" : "q-grade" }, word);
  }

  function documentNodes(data, name) {
    const [title, text] = data.details.documents[name] || ["", ""];
    const nodes = [make("strong", {}, title || name)];
    if (text) nodes.push(make("span", { className: "q-text" }, text));
    if (title) nodes.push(make("span", { className: "q-detail" }, name));
    return nodes;
  }

  function rankOf(detail, model, name) {
    const top = detail.top[model];
    if (!top) return `no ranking of ${model} is kept`;
    const rank = top.indexOf(name) + 1;
    return rank ? `rank ${rank} of ${model}` : `not among the first ${top.length} of ${model}`;
  }

  function judgedList(data, detail, state) {
    const items = detail.judged.map((name) =>
      make("li", {}, verdict(detail.grades, name), ...documentNodes(data, name),
        make("span", { className: "q-detail" },
          `${rankOf(detail, state.a, name)}; ${rankOf(detail, state.b, name)}`)));
    const head = `Judged documents: ${detail.count}, of which ${detail.relevant} relevant`;
    const more = detail.count - detail.judged.length;
    return [
      make("p", { className: "q-head" }, head + (more > 0 ? `; the first ${detail.judged.length}` : "")),
      make("ul", { className: "q-judged" }, ...items),
    ];
  }

  // The first documents of one model; those that both rank lead to one another.
  function side(data, detail, model, other, index) {
    const top = (detail.top[model] || []).slice(0, SHOWN);
    const items = top.map((name, rank) => {
      const item = make("li", { tabIndex: -1, data: { "data-document": name } });
      const label = rankOf(detail, other, name);
      const shared = (detail.top[other] || []).slice(0, SHOWN).includes(name);
      const link = shared
        ? make("button", { type: "button", className: "q-other", data: { "data-to": name } }, label)
        : make("span", { className: "q-detail" }, label);
      if (detail.grades[name] > 0) item.classList.add("q-hit");
      item.append(make("span", { className: "q-rank" }, `${rank + 1}`), verdict(detail.grades, name),
        ...documentNodes(data, name), link);
      return item;
    });
    const head = make("p", { className: "q-head" }, model, make("span", {}, ` ${data.scores[model][index].toFixed(3)}`));
    const none = "The record of this model keeps no ranking.";
    return make("section", { className: "q-side", data: { "aria-label": `First documents of ${model}` } },
      head, items.length ? make("ol", {}, ...items) : make("p", { className: "q-note" }, none));
  }

  // Lines between the documents that both models rank, in the gap between the two lists.
  function join(sides, gap) {
    const [left, right] = sides.querySelectorAll(".q-side");
    const frame = gap.getBoundingClientRect();
    const middle = (item) => {
      const own = item.getBoundingClientRect();
      return own.top + Math.min(own.height / 2, 24) - frame.top;
    };
    gap.replaceChildren();
    for (const item of left.querySelectorAll("[data-document]")) {
      const partner = [...right.querySelectorAll("[data-document]")].find(
        (each) => each.dataset.document === item.dataset.document);
      if (!partner || !frame.width) continue;
      const [from, to, w] = [middle(item), middle(partner), frame.width];
      const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
      line.setAttribute("d", `M0 ${from} C${w / 2} ${from} ${w / 2} ${to} ${w} ${to}`);
      if (item.classList.contains("q-hit")) line.setAttribute("class", "q-hit");
      gap.append(line);
    }
  }

  function sides(data, detail, state, index) {
    const gap = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    gap.setAttribute("class", "q-gap");
    gap.setAttribute("aria-hidden", "true");
    const both = make("div", { className: "q-sides" }, side(data, detail, state.a, state.b, index),
      gap, side(data, detail, state.b, state.a, index));
    both.addEventListener("click", (event) => {
      const button = event.target.closest("[data-to]");
      if (!button) return;
      const own = button.closest(".q-side");
      const other = [...both.querySelectorAll(".q-side")].find((each) => each !== own);
      [...other.querySelectorAll("[data-document]")]
        .find((each) => each.dataset.document === button.dataset.to).focus();
    });
    new ResizeObserver(() => join(both, gap)).observe(both);
    return both;
  }

  function panel(data, state) {
    const index = data.ids.indexOf(state.q);
    const notes = state.unknown.map((name) =>
      make("p", { className: "q-note" }, `No model ${name} on this page.`));
    if (!state.q) {
      const hint = "Click on a point, or select a query: its text, its judged documents and what " +
        "both models rank first are shown here.";
      return [...notes, make("p", {}, hint)];
    }
    if (index < 0) return [...notes, make("p", {}, `This page has no query ${state.q}.`)];
    const detail = data.details.queries[state.q];
    const text = (detail && detail.text) || data.texts[index];
    const query = make("p", { className: "q-question" }, text);
    const link = make("a", { className: "q-detail", href: address({ q: state.q, a: state.a, b: state.b }) },
      text === state.q ? "link to this query" : `${state.q} · link to this query`);
    const parts = [...notes, query, link, scoreList(data, state, index)];
    if (!detail) {
      const most = Object.keys(data.details.queries).length;
      const why = `Documents are shown of the ${most} queries on which the models differ most.`;
      return [...parts, make("p", { className: "q-note" }, why)];
    }
    if (detail.count) parts.push(...judgedList(data, detail, state));
    if (Object.keys(detail.top).length) parts.push(sides(data, detail, state, index));
    return parts;
  }

  // The controls

  function queryList(data, state) {
    const gap = (index) => data.scores[state.a][index] - data.scores[state.b][index];
    const shown = data.ids.map((id, index) => ({ id, index }))
      .filter(({ id }) => id in data.details.queries || id === state.q)
      .sort((p, r) => Math.abs(gap(r.index)) - Math.abs(gap(p.index)) || p.index - r.index);
    return shown.map(({ id, index }) => ({ id, label: `${signed(gap(index))}  ${briefly(data.texts[index])}` }));
  }

  function controls(box, current) {
    const list = make("select", { className: "q-query" });
    const step = (text, way, word) => {
      const button = make("button", { type: "button", data: { "aria-label": word } }, text);
      button.addEventListener("click", () => {
        const options = [...list.options].map((each) => each.value).filter(Boolean);
        const at = options.indexOf(current().q);
        go(current(), { q: options[at < 0 ? 0 : (at + way + options.length) % options.length] });
      });
      return button;
    };
    list.addEventListener("change", () => go(current(), { q: list.value }));
    const label = make("label", { className: "q-queries" }, "query, the largest difference first ", list);
    box.querySelector(".q-controls").append(label, step("‹", -1, "previous query"), step("›", 1, "next query"));
    for (const axis of box.querySelectorAll("[data-axis]")) {
      axis.addEventListener("change", () => go(current(), { [axis.dataset.axis === "x" ? "a" : "b"]: axis.value }));
    }
    return list;
  }

  function fill(box, list, data, state) {
    box.querySelector("[data-axis=x]").value = state.a;
    box.querySelector("[data-axis=y]").value = state.b;
    const options = queryList(data, state).map(({ id, label }) => make("option", { value: id }, label));
    list.replaceChildren(make("option", { value: "" }, "select one"), ...options);
    list.value = data.ids.includes(state.q) ? state.q : "";
  }

  function begin(box) {
    const data = JSON.parse(box.querySelector('script[type="application/json"]').textContent);
    const picked = box.querySelector(".q-picked");
    const status = make("p", { className: "q-status", data: { role: "status" } });
    const current = () => stated(data);
    const list = controls(box, current);
    const plot = plotted(box, data);
    picked.before(status);
    function show() {
      const state = current();
      fill(box, list, data, state);
      if (plot) draw(plot, data, state);
      picked.replaceChildren(...panel(data, state));
      const index = data.ids.indexOf(state.q);
      const score = (name) => `${name} ${data.scores[name][index].toFixed(3)}`;
      status.textContent = index < 0 ? "" : `${data.metric}: ${score(state.a)}, ${score(state.b)}`;
    }
    show();
    if (current().q) picked.scrollIntoView({ block: "start" });
    window.addEventListener("hashchange", show);
    if (plot) plot.on("plotly_click", (event) => {
      const point = event.points.find((each) => each.curveNumber === 0);
      if (point) go(current(), { q: data.ids[point.pointIndex] });
    });
  }

  function start() {
    document.querySelectorAll(".q-explorer").forEach((box) => {
      if (box.dataset.ready || !box.querySelector("script")) return;
      box.dataset.ready = "yes";
      begin(box);
    });
  }

  if (document.readyState === "complete") start();
  else window.addEventListener("load", start);
})();
