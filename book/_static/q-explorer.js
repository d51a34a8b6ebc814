// The per-query explorer: two models selected from lists, a point per query, details on click.
// The data are embedded in the page; plotly's script is loaded on pages with an explorer.
(function () {
  "use strict";

  // The current colours of the page, light or dark.
  function theme(box) {
    const ink = getComputedStyle(box).color;
    const line = ink.replace("rgb(", "rgba(").replace(")", ", 0.2)");
    const axis = { color: ink, gridcolor: line, linecolor: line };
    return { ink, line, axis };
  }

  function paint(box, plot) {
    const { ink, axis } = theme(box);
    const layout = { "font.color": ink, "font.family": getComputedStyle(box).fontFamily };
    for (const name of ["xaxis", "yaxis"]) {
      for (const key of Object.keys(axis)) layout[`${name}.${key}`] = axis[key];
    }
    window.Plotly.relayout(plot, layout);
    window.Plotly.restyle(plot, { "line.color": ink }, [1]);
  }

  function escaped(text) {
    const span = document.createElement("span");
    span.textContent = text;
    return span.innerHTML;
  }

  // Show the clicked query and every model's score on it, the best first.
  function show(panel, data, index) {
    const query = document.createElement("p");
    const id = document.createElement("span");
    id.className = "q-detail";
    id.textContent = data.ids[index];
    query.append(data.texts[index], id);
    const list = document.createElement("ul");
    const order = [...data.models].sort((a, b) => data.scores[b][index] - data.scores[a][index]);
    for (const name of order) {
      const score = data.scores[name][index];
      const item = document.createElement("li");
      const bar = document.createElement("i");
      bar.style.width = `${100 * Math.max(0, Math.min(1, score))}%`;
      bar.style.background = data.colors[name];
      const number = document.createElement("b");
      number.textContent = score.toFixed(3);
      const label = document.createElement("span");
      label.textContent = name;
      const track = document.createElement("em");
      track.append(bar);
      item.append(label, track, number);
      list.append(item);
    }
    panel.replaceChildren(query, list);
  }

  function choose(box, plot, data) {
    const [across, up] = ["x", "y"].map((axis) => box.querySelector(`[data-axis=${axis}]`).value);
    const [dx, dy] = data.jitter;
    const texts = data.figure.data[0].customdata.map((point) => point[0]);
    window.Plotly.restyle(
      plot,
      {
        x: [data.scores[across].map((score, i) => score + dx[i])],
        y: [data.scores[up].map((score, i) => score + dy[i])],
        customdata: [texts.map((text, i) => [text, data.scores[across][i], data.scores[up][i]])],
        "marker.color": data.colors[across],
      },
      [0]
    );
    window.Plotly.relayout(plot, {
      "xaxis.title.text": `${data.metric}, ${escaped(across)}`,
      "yaxis.title.text": `${data.metric}, ${escaped(up)}`,
    });
  }

  function begin(box) {
    const plot = box.querySelector(".q-plot");
    const data = JSON.parse(box.querySelector('script[type="application/json"]').textContent);
    const { data: traces, layout } = structuredClone(data.figure);
    const options = { responsive: true, displaylogo: false, displayModeBar: false, scrollZoom: false };
    window.Plotly.newPlot(plot, traces, layout, options);
    paint(box, plot);
    plot.on("plotly_click", (event) => {
      const point = event.points.find((each) => each.curveNumber === 0);
      if (point) show(box.querySelector(".q-chosen"), data, point.pointIndex);
    });
    box.querySelectorAll("select").forEach((list) => {
      list.addEventListener("change", () => choose(box, plot, data));
    });
    new MutationObserver(() => paint(box, plot)).observe(document.documentElement, {
      attributes: true,
      attributeFilter: ["data-theme"],
    });
  }

  function start() {
    if (!window.Plotly) return;
    document.querySelectorAll(".q-explorer").forEach((box) => {
      if (box.dataset.ready) return;
      box.dataset.ready = "yes";
      begin(box);
    });
  }

  if (document.readyState === "complete") start();
  else window.addEventListener("load", start);
})();
