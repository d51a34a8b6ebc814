// The explorer of queries: a point per query, the test of the queries that a reader picks, and the
// query that is selected. One script for JupyterLab, the book and a saved page: it needs nothing
// but the data next to it. Foreign text is only ever set as text. The statistics are those of
// qwen3nb/metrics/intervals.py and qwen3nb/analysis/stats/resampling.py; tests compare them.
(function () {
  "use strict";

  // Elements

  function make(tag, given, ...children) {
    const { data, ...properties } = given || {};
    const node = Object.assign(document.createElement(tag), properties);
    for (const [name, value] of Object.entries(data || {})) node.setAttribute(name, value);
    node.append(...children);
    return node;
  }

  function draw(tag, attributes, ...children) {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  }

  // Numbers as pages show them

  const MINUS = "\u2212";

  function number(value, { sign = false } = {}) {
    let digits = 3;
    while (sign && Math.abs(value) > 1e-9 && Number(value.toFixed(digits)) === 0) digits += 1;
    const text = Math.abs(value).toFixed(digits);
    if (value < 0 && Number(text) !== 0) return MINUS + text;
    return sign ? `+${text}` : text;
  }

  function end(value) {
    const isRoundedAway = Math.abs(value) > 1e-9 && Number(value.toFixed(3)) === 0;
    if (isRoundedAway) return value > 0 ? ">0" : "<0";
    return number(value, { sign: true });
  }

  const pText = (p) => (p < 0.001 ? "< 0.001" : `= ${p.toFixed(4)}`);
  const brief = (text) => (text.length > 70 ? `${text.slice(0, 69)}…` : text);
  const plural = (count, noun, nouns = `${noun}s`) => `${count.toLocaleString("en")} ${count === 1 ? noun : nouns}`;

  // Student's t

  function logGamma(x) {
    const coefficients = [
      676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
      12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
    ];
    if (x < 0.5) return Math.log(Math.PI / Math.sin(Math.PI * x)) - logGamma(1 - x);
    const shifted = x - 1;
    let sum = 0.99999999999980993;
    coefficients.forEach((coefficient, i) => { sum += coefficient / (shifted + i + 1); });
    const t = shifted + coefficients.length - 0.5;
    return 0.5 * Math.log(2 * Math.PI) + (shifted + 0.5) * Math.log(t) - t + Math.log(sum);
  }

  // The continued fraction of the incomplete beta function, by Lentz's method.
  function betaFraction(x, a, b) {
    const tiny = 1e-300;
    const filled = (value) => (Math.abs(value) < tiny ? tiny : value);
    let c = 1;
    let d = 1 / filled(1 - ((a + b) * x) / (a + 1));
    let product = d;
    for (let m = 1; m < 500; m += 1) {
      const even = (m * (b - m) * x) / ((a + 2 * m - 1) * (a + 2 * m));
      d = 1 / filled(1 + even * d);
      c = filled(1 + even / c);
      product *= d * c;
      const odd = (-(a + m) * (a + b + m) * x) / ((a + 2 * m) * (a + 2 * m + 1));
      d = 1 / filled(1 + odd * d);
      c = filled(1 + odd / c);
      product *= d * c;
      if (Math.abs(d * c - 1) < 1e-15) break;
    }
    return product;
  }

  function incompleteBeta(x, a, b) {
    if (x <= 0) return 0;
    if (x >= 1) return 1;
    const logFront = logGamma(a + b) - logGamma(a) - logGamma(b) + a * Math.log(x) + b * Math.log1p(-x);
    if (x < (a + 1) / (a + b + 2)) return (Math.exp(logFront) * betaFraction(x, a, b)) / a;
    return 1 - (Math.exp(logFront) * betaFraction(1 - x, b, a)) / b;
  }

  // The value that |t| exceeds with the probability `tail`.
  function studentQuantile(freedom, tail) {
    const exceeds = (t) => incompleteBeta(freedom / (freedom + t * t), freedom / 2, 0.5);
    let [low, high] = [0, 1];
    while (exceeds(high) > tail) high *= 2;
    for (let i = 0; i < 80; i += 1) {
      const middle = (low + high) / 2;
      if (exceeds(middle) > tail) low = middle;
      else high = middle;
    }
    return (low + high) / 2;
  }

  // Intervals: see `_widened` in intervals.py

  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

  function moments(values) {
    const center = mean(values);
    const deviations = values.map((value) => value - center);
    return {
      mean: center,
      variance: mean(deviations.map((d) => d * d)),
      toSides: mean(deviations.map((d) => d * d * Math.sign(d))),
      cube: mean(deviations.map((d) => d * d * d)),
    };
  }

  function sideLength(moment, sign, distance, n, level) {
    const t = studentQuantile(n - 1, 1 - level);
    const skewness = moment.variance > 0 ? moment.cube / moment.variance ** 1.5 : 0;
    const error = Math.sqrt((6 * (n - 2)) / ((n + 1) * (n + 3)));
    const shift = (2.5 * Math.max(0, sign * skewness - error) * (1 + 2 * t * t)) / (6 * n);
    const deviation = Math.sqrt((moment.variance * n) / (n - 1));
    const student = deviation * (t / Math.sqrt(n) + shift);
    const ofSide = Math.sqrt(Math.max(0, moment.variance + sign * moment.toSides));
    const way = 0.05 * distance;
    const share = way > 0 ? Math.min(deviation, ofSide) / way : 0;
    const narrowness = 1 - Math.min(1, share) ** 4;
    const missing = n <= 3 ? 1 : 1 - ((1 - level) / 2) ** (1 / n);
    return Math.hypot(student, narrowness * missing * distance);
  }

  function widenedInterval(values, low, high, level) {
    const n = values.length;
    if (n < 2) return null;
    const moment = moments(values);
    const below = sideLength(moment, -1, moment.mean - low, n, level);
    const above = sideLength(moment, 1, high - moment.mean, n, level);
    return [Math.max(moment.mean - below, low), Math.min(moment.mean + above, high)];
  }

  function differenceInterval(differences, level) {
    const bound = differences.reduce((most, d) => Math.max(most, Math.abs(d)), 1);
    return widenedInterval(differences, -bound, bound, level);
  }

  // Clusters: see `cluster_values` in resampling.py

  // The sampling units of some queries: their names, and the unit of each query.
  function unitsOf(task, rows) {
    const clusters = task.clusters ? rows.map((row) => task.clusters.of[row]) : [];
    const different = [...new Set(clusters)].sort((a, b) => a - b);
    if (!task.clusters || different.length === rows.length) {
      return { names: rows.map((row) => task.ids[row]), of: null };
    }
    const places = new Map(different.map((cluster, place) => [cluster, place]));
    return {
      names: different.map((cluster) => task.clusters.names[cluster]),
      of: clusters.map((cluster) => places.get(cluster)),
    };
  }

  function unitSums(values, units) {
    const sums = new Array(units.names.length).fill(0);
    values.forEach((value, i) => { sums[units.of[i]] += value; });
    return sums.map((sum) => sum * (units.names.length / values.length));
  }

  function centredUnitValues(values, units, level) {
    if (!units.of) return values;
    const center = mean(values);
    const sums = unitSums(values.map((value) => value - center), units);
    const factor = enlargement(sums, units, values.length, level);
    return sums.map((sum) => sum * factor + center);
  }

  // By how much a large cluster makes the interval longer (Bell and McCaffrey 2002).
  function enlargement(sums, units, n, level) {
    const sizes = new Array(units.names.length).fill(0);
    units.of.forEach((place) => { sizes[place] += 1; });
    const count = sizes.length;
    const largest = Math.max(...sizes);
    if (count < 2 || largest === Math.min(...sizes) || largest <= n / 8) return 1;
    const total = (values) => values.reduce((sum, value) => sum + value, 0);
    const weights = sizes.map((size) => 1 / (1 - size / n));
    const squares = sizes.map((size) => size * size);
    const error = Math.sqrt(total(sums.map((sum, i) => sum * sum * weights[i]))) / count;
    const product = total(squares.map((square, i) => square * weights[i]));
    const diagonal = total(squares.map((square, i) => square * square * weights[i] * weights[i]));
    const freedom = (n * n) / (total(squares) + (product * product - diagonal) / (n * n));
    const usual = Math.sqrt(total(sums.map((sum) => sum * sum)) / (count * (count - 1)));
    if (usual === 0) return 1;
    const half = error * studentQuantile(freedom, 1 - level);
    return Math.max(1, half / (usual * studentQuantile(count - 1, 1 - level)));
  }

  // Sign flips: numpy's PCG64, seeded by the names of the units, so that p is that of Python

  function crc32(text) {
    let crc = 0xffffffff;
    for (const byte of new TextEncoder().encode(text)) {
      crc ^= byte;
      for (let bit = 0; bit < 8; bit += 1) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
    }
    return (crc ^ 0xffffffff) >>> 0;
  }

  // numpy's SeedSequence: eight 32-bit words from two.
  function seedWords(entropy) {
    let constant = 0x43b0d7e5;
    const hash = (value) => {
      let mixed = value ^ constant;
      constant = Math.imul(constant, 0x931e8875);
      mixed = Math.imul(mixed, constant);
      return mixed ^ (mixed >>> 16);
    };
    const mix = (x, y) => {
      const mixed = Math.imul(0xca01f9dd, x) - Math.imul(0x4973f715, y);
      return mixed ^ (mixed >>> 16);
    };
    const pool = [0, 1, 2, 3].map((i) => hash(entropy[i] || 0));
    for (let from = 0; from < 4; from += 1) {
      for (let to = 0; to < 4; to += 1) if (from !== to) pool[to] = mix(pool[to], hash(pool[from]));
    }
    constant = 0x8b51f9dd;
    return Array.from({ length: 8 }, (_, i) => {
      let word = pool[i % 4] ^ constant;
      constant = Math.imul(constant, 0x58f38ded);
      word = Math.imul(word, constant);
      return (word ^ (word >>> 16)) >>> 0;
    });
  }

  // A number of 128 bits is eight limbs of 16 bits, the lowest first.
  const limbs = (value) => Array.from({ length: 8 }, (_, i) => Number((value >> BigInt(16 * i)) & 0xffffn));
  const MULTIPLIER = limbs(0x2360ed051fc65da44385df649fccf645n);

  // Bytes of the stream of PCG64, eight per word.
  function randomBytes(seed, words) {
    const given = seedWords(seed).map(BigInt);
    const word64 = (i) => given[2 * i] | (given[2 * i + 1] << 32n);
    const increment = limbs((((word64(2) << 64n) | word64(3)) << 1n) | 1n);
    let state = new Float64Array(8);
    let next = new Float64Array(8);
    function step() {
      let carry = 0;
      for (let i = 0; i < 8; i += 1) {
        let sum = carry + increment[i];
        for (let j = 0; j <= i; j += 1) sum += state[j] * MULTIPLIER[i - j];
        next[i] = sum & 0xffff;
        carry = Math.floor(sum / 65536);
      }
      [state, next] = [next, state];
    }
    step();
    let carry = 0;
    limbs((word64(0) << 64n) | word64(1)).forEach((limb, i) => {
      const sum = state[i] + limb + carry;
      state[i] = sum & 0xffff;
      carry = sum > 0xffff ? 1 : 0;
    });
    step();
    const bytes = new Uint8Array(8 * words);
    const view = new DataView(bytes.buffer);
    for (let word = 0; word < words; word += 1) {
      step();
      let low = (state[0] ^ state[4]) | ((state[1] ^ state[5]) << 16);
      let high = (state[2] ^ state[6]) | ((state[3] ^ state[7]) << 16);
      let turn = state[7] >> 10;
      if (turn >= 32) [low, high, turn] = [high, low, turn - 32];
      if (turn) {
        const back = 32 - turn;
        [low, high] = [(low >>> turn) | (high << back), (high >>> turn) | (low << back)];
      }
      view.setUint32(8 * word, low, true);
      view.setUint32(8 * word + 4, high, true);
    }
    return bytes;
  }

  // Coins by the names of their units: all pairs of models on the same queries share them.
  const coins = new Map();

  function coinBytes(names, rules) {
    const key = names.join("\0");
    if (!coins.has(key)) {
      if (coins.size > 8) coins.clear();
      const words = Math.ceil(names.length / 64);
      const bytes = randomBytes([rules.seed, crc32(key)], rules.draws * words);
      coins.set(key, { bytes, width: 8 * words });
    }
    return coins.get(key);
  }

  // To the nearest whole number, halves to the even one, as numpy does.
  function rounded(value) {
    const nearest = Math.round(value);
    return nearest - value === 0.5 && nearest % 2 !== 0 ? nearest - 1 : nearest;
  }

  // Sums over every choice of eight values, so that a flip takes one addition per byte.
  function sumsOfBytes(values) {
    const bytes = Math.ceil(values.length / 8);
    const sums = new Float64Array(256 * bytes);
    for (let byte = 0; byte < bytes; byte += 1) {
      for (let bit = 0; bit < 8; bit += 1) {
        const value = values[8 * byte + 7 - bit] || 0;
        for (let lower = 0; lower < 1 << bit; lower += 1) {
          sums[256 * byte + (1 << bit) + lower] = sums[256 * byte + lower] + value;
        }
      }
    }
    return sums;
  }

  // See `max_t_p_values` in resampling.py.
  function pValue(first, second, names, largest, rules) {
    const n = names.length;
    const highest = [...first, ...second].reduce((most, value) => Math.max(most, Math.abs(value)), largest);
    let exponent = 0;
    while (2 ** exponent <= n * highest) exponent += 1;
    const scale = 2 ** (51 - exponent);
    const differences = first.map((value, i) => rounded(value * scale) - rounded(second[i] * scale));
    const total = differences.reduce((sum, difference) => sum + difference, 0);
    const extreme = Math.abs(total) - 2 * n;
    const isComplete = n <= 32 && 2 ** n <= rules.draws;
    if (isComplete) {
      let count = 0;
      for (let flip = 0; flip < 2 ** n; flip += 1) {
        let flipped = 0;
        differences.forEach((difference, i) => { flipped += (flip >> i) & 1 ? difference : -difference; });
        if (Math.abs(flipped) >= extreme) count += 1;
      }
      return count / 2 ** n;
    }
    const sums = sumsOfBytes(differences);
    const bytes = sums.length / 256;
    const drawn = coinBytes(names, rules);
    let count = 0;
    for (let flip = 0; flip < rules.draws; flip += 1) {
      let stays = 0;
      const start = flip * drawn.width;
      for (let byte = 0; byte < bytes; byte += 1) stays += sums[256 * byte + drawn.bytes[start + byte]];
      if (Math.abs(2 * stays - total) >= extreme) count += 1;
    }
    const differing = differences.filter((difference) => Math.abs(difference) > 2).length;
    return Math.max((count + 1) / (rules.draws + 1), Math.min(1, 2 ** (1 - differing)));
  }

  function testPair(task, rows, scoresA, scoresB, rules) {
    const units = unitsOf(task, rows);
    const differences = scoresA.map((score, i) => score - scoresB[i]);
    const unitDifferences = centredUnitValues(differences, units, rules.level);
    let [first, second, largest] = [scoresA, scoresB, 1];
    if (units.of) {
      [first, second] = [unitSums(scoresA, units), unitSums(scoresB, units)];
      largest = Math.max(...unitSums(scoresA.map(() => 1), units));
    }
    return {
      units: units.names.length,
      isClustered: Boolean(units.of),
      difference: mean(differences),
      interval: differenceInterval(unitDifferences, rules.level),
      p: pValue(first, second, units.names, largest, rules),
    };
  }

  // Scores

  // The score of a query; null where no document is relevant at the threshold.
  function scoreOf(task, state, model, row) {
    const column = task.models.indexOf(model);
    const measure = (task.graded.measures || []).find(([name]) => name === state.measure);
    if (!measure) return task.values[task.scores[column][row]];
    const [, metric, depth] = measure;
    const relevant = relevantCount(task, row, state.threshold);
    return binaryScore(metric, depth, task.graded.grades[column][row], relevant, task, state);
  }

  const scoresOf = (task, state, model) => task.ids.map((_, row) => scoreOf(task, state, model, row));

  function relevantCount(task, row, threshold) {
    return task.graded.ideal[row].slice(threshold - 1).reduce((sum, count) => sum + count, 0);
  }

  function binaryScore(metric, depth, grades, relevant, task, state) {
    if (!relevant) return state.threshold === task.graded.threshold ? 0 : null;
    const hits = [];
    for (let rank = 1; rank <= Math.min(depth, grades.length); rank += 1) {
      if (parseInt(grades[rank - 1], 36) >= state.threshold) hits.push(rank);
    }
    if (metric === "MRR") return hits.length ? 1 / hits[0] : 0;
    if (metric === "Recall") return hits.length / relevant;
    if (metric === "P") return hits.length / depth;
    if (metric === "Hit") return hits.length ? 1 : 0;
    return hits.reduce((sum, rank, i) => sum + (i + 1) / rank, 0) / relevant; // MAP
  }

  // The queries that a reader picked, and both scores of each.
  function picked(task, state) {
    const scoresA = scoresOf(task, state, state.a);
    const scoresB = state.b ? scoresOf(task, state, state.b) : scoresA;
    const isOf = (groups, name, row) => !name || !groups || groups.names[groups.of[row]] === name;
    const rows = [];
    let unanswerable = 0;
    task.ids.forEach((_, row) => {
      const words = task.words[row];
      const isBelow = state.from && !(words >= state.from);
      const isAbove = state.to && !(words !== null && words <= state.to);
      if (isBelow || isAbove) return;
      if (!isOf(task.categories, state.category, row)) return;
      if (!isOf(task.languages, state.language, row)) return;
      if (scoresA[row] === null) unanswerable += 1;
      else rows.push(row);
    });
    return { rows, unanswerable, scoresA, scoresB };
  }

  // What is picked: the address has it, but in JupyterLab, whose address is JupyterLab's own

  const FIELDS = ["q", "a", "b", "task", "measure", "threshold", "category", "language", "from", "to"];

  function defaults(task) {
    return {
      task: task.name, a: task.models[0], b: task.models[1], q: "", measure: task.metric,
      threshold: task.graded.threshold || 1, category: "", language: "", from: "", to: "", unknown: [],
    };
  }

  function address(state, task) {
    const usual = defaults(task);
    const isNamed = (name) => name === "a" || name === "b" || String(state[name]) !== String(usual[name]);
    const named = FIELDS.filter((name) => isNamed(name)).map((name) => [name, state[name]]);
    return `#${new URLSearchParams(named)}`;
  }

  // The state that an address names; what it does not know is listed.
  function stateOf(data, text) {
    const given = new URLSearchParams(text.slice(1));
    const task = data.tasks.find((one) => one.name === given.get("task")) || data.tasks[0];
    const state = { ...defaults(task), q: given.get("q") || "" };
    const names = (groups) => (groups ? groups.names : []);
    const measures = [task.metric, ...(task.graded.measures || []).map(([name]) => name)];
    const known = {
      a: task.models, b: [...task.models, ""], measure: measures,
      category: names(task.categories), language: names(task.languages),
    };
    for (const [name, values] of Object.entries(known)) {
      if (!given.has(name)) continue;
      if (values.includes(given.get(name))) state[name] = given.get(name);
      else if (given.get(name)) state.unknown.push(given.get(name));
    }
    for (const name of ["threshold", "from", "to"]) {
      if (Number(given.get(name)) > 0) state[name] = Number(given.get(name));
    }
    state.threshold = Math.min(state.threshold, task.graded.highest || 1);
    return state;
  }

  const isInJupyter = () => document.getElementById("jupyter-config-data") !== null;

  // The controls

  function choice(label, name, options, go) {
    const list = make("select", { data: { "data-pick": name } });
    for (const [value, text] of options) list.append(make("option", { value }, text));
    list.addEventListener("change", () => go({ [name]: list.value }));
    return make("label", {}, `${label} `, list);
  }

  function length(label, name, go) {
    const box = make("input", { type: "number", min: 1, data: { "data-pick": name } });
    box.addEventListener("change", () => go({ [name]: box.value ? Number(box.value) : "" }));
    return make("label", {}, `${label} `, box);
  }

  const same = (names) => names.map((name) => [name, name]);

  function controls(data, task, go) {
    const box = make("div", { className: "q-controls" });
    const graded = task.graded;
    if (data.tasks.length > 1) {
      box.append(choice("task", "task", same(data.tasks.map((one) => one.name)), go));
    }
    box.append(choice("model", "a", same(task.models), go));
    box.append(choice("against", "b", [...same(task.models), ["", "none"]], go));
    const measures = (graded.measures || []).map(([name]) => name).filter((name) => name !== task.metric);
    if (measures.length) box.append(choice("measure", "measure", same([task.metric, ...measures]), go));
    for (const [name, groups] of [["category", task.categories], ["language", task.languages]]) {
      if (groups) box.append(choice(name, name, [["", "all"], ...same(groups.names)], go));
    }
    if (task.words.some((count) => count !== null)) {
      box.append(length("words from", "from", go), length("to", "to", go));
    }
    const slider = make("input", {
      type: "range", min: 1, max: graded.highest || 1, step: 1, data: { "data-pick": "threshold" },
    });
    const shown = make("output", {});
    slider.addEventListener("input", () => { shown.textContent = slider.value; });
    slider.addEventListener("change", () => go({ threshold: Number(slider.value) }));
    box.append(make("label", { className: "q-threshold" }, "relevant from grade ", slider, shown));
    return box;
  }

  // Why the threshold cannot be moved; empty if it can.
  function whyNoThreshold(task, state) {
    if (!task.graded.measures) return task.graded.why;
    if (task.graded.highest < 2) return "All relevant documents have the grade 1: there is one threshold.";
    if (task.graded.measures.some(([name]) => name === state.measure)) return "";
    const [name] = task.graded.measures[0];
    return `${state.measure} reads the grades themselves; choose ${name} to move the threshold.`;
  }

  function fill(box, task, state) {
    for (const control of box.querySelectorAll("[data-pick]")) control.value = state[control.dataset.pick];
    const slider = box.querySelector("[data-pick=threshold]");
    slider.disabled = whyNoThreshold(task, state) !== "";
    box.querySelector("output").textContent = state.threshold;
  }

  // The test

  const looks = new Set(); // the comparisons that were looked at since the page was opened

  function testNodes(task, state, pick, rules) {
    const { rows, unanswerable } = pick;
    const line = make("p", { className: "q-tested", data: { role: "status" } });
    const nodes = [line];
    const note = (text) => nodes.push(make("p", { className: "q-note" }, text));
    const of = `${rows.length.toLocaleString("en")} of ${plural(task.ids.length, "query", "queries")}`;
    if (!rows.length) {
      line.textContent = "No query is left: choose fewer conditions.";
    } else if (!state.b) {
      describeOne(line, task, state, pick, of, rules);
    } else if (state.a === state.b) {
      line.textContent = "Choose two different models, or none as the second.";
    } else {
      describePair(line, note, task, state, pick, of, rules);
    }
    if (unanswerable) note(`Left out, without a document of grade ${state.threshold}: ${unanswerable}.`);
    const why = whyNoThreshold(task, state);
    if (why) note(why);
    return nodes;
  }

  function store(line, numbers) {
    for (const [name, value] of Object.entries(numbers)) line.setAttribute(`data-${name}`, value);
  }

  function describeOne(line, task, state, pick, of, rules) {
    const scores = pick.rows.map((row) => pick.scoresA[row]);
    const interval = widenedInterval(scores, 0, 1, rules.level);
    const ends = interval ? ` [${interval.map((value) => number(value)).join(", ")}]` : "";
    line.append(make("strong", {}, state.a), ` has ${state.measure} ${number(mean(scores))}${ends} on ${of}.`);
    store(line, { n: scores.length, mean: mean(scores), low: interval ? interval[0] : "", high: interval ? interval[1] : "" });
  }

  function describePair(line, note, task, state, pick, of, rules) {
    const at = (scores) => pick.rows.map((row) => scores[row]);
    const test = testPair(task, pick.rows, at(pick.scoresA), at(pick.scoresB), rules);
    const { task: name, measure, threshold, a, b } = state;
    looks.add(JSON.stringify([name, measure, threshold, [a, b].sort(), pick.rows]));
    const corrected = Math.min(1, test.p * looks.size);
    const ends = test.interval ? test.interval.map(end).join(", ") : "";
    line.append(make("strong", {}, verdict(test, state, corrected, rules)),
      ` ${a} minus ${b} in ${measure}, on ${of}: `,
      make("span", { className: "q-difference" }, number(test.difference, { sign: true })),
      ends ? ` [${ends}]` : " (no interval)", `, p ${pText(test.p)}.`);
    store(line, {
      n: pick.rows.length, difference: test.difference, p: test.p,
      low: test.interval ? test.interval[0] : "", high: test.interval ? test.interval[1] : "",
    });
    const clusters = `Queries of one cluster count together: ${plural(test.units, "cluster")}. `;
    note((test.isClustered ? clusters : "") + looksText(corrected, rules));
  }

  function verdict(test, state, corrected, rules) {
    if (test.units < rules.fewest) {
      return test.isClustered
        ? `Queries of ${plural(test.units, "cluster")} are too few to tell.`
        : `${plural(test.units, "query is", "queries are")} too few to tell.`;
    }
    const [low, high] = test.interval;
    const excludesZero = low > 0 || high < 0;
    if (corrected >= rules.alpha || !excludesZero) return "These queries cannot tell the two apart.";
    return `${test.difference > 0 ? state.a : state.b} is better on these queries.`;
  }

  function looksText(corrected, rules) {
    const count = looks.size;
    const counted = `You have looked at ${plural(count, "comparison")} on this page.`;
    if (count === 1) return counted;
    const chance = Math.round(100 * (1 - (1 - rules.alpha) ** count));
    return `${counted} With ${count}, a p below ${rules.alpha} is expected by chance in up to ${chance}\u00a0%. ` +
      `Corrected for them (Bonferroni), p ${pText(corrected)}.`;
  }

  // The points

  // Small offsets (shares of the range of scores), so that equal points do not overlap.
  function offset(row) {
    const golden = (Math.sqrt(5) - 1) / 2;
    const radius = 0.012 * Math.sqrt((row * golden * golden) % 1);
    const turn = 2 * Math.PI * row * golden;
    return [radius * Math.cos(turn), radius * Math.sin(turn)];
  }

  const FRAME = { left: 40, right: 14, top: 26, bottom: 40 };

  function frame(width, height, xLabel, yLabel, xTicks) {
    const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img" });
    const [right, bottom] = [width - FRAME.right, height - FRAME.bottom];
    const label = (x, y, anchor, text, kind) => {
      const node = draw("text", { x, y, "text-anchor": anchor, class: kind || "q-tick" });
      node.textContent = text;
      svg.append(node);
    };
    for (const tick of [0, 0.2, 0.4, 0.6, 0.8, 1]) {
      const y = bottom - tick * (bottom - FRAME.top);
      svg.append(draw("line", { x1: FRAME.left, x2: right, y1: y, y2: y, class: "q-grid" }));
      label(FRAME.left - 6, y + 4, "end", tick.toFixed(1));
    }
    for (const [share, text] of xTicks) {
      const x = FRAME.left + share * (right - FRAME.left);
      svg.append(draw("line", { x1: x, x2: x, y1: FRAME.top, y2: bottom, class: "q-grid" }));
      label(x, bottom + 16, "middle", text);
    }
    label(2, 14, "start", yLabel, "q-axis");
    label(right, height - 6, "end", xLabel, "q-axis");
    return { svg, right, bottom };
  }

  // Where each query is: shares of the width and of the height, and the colour of who wins it.
  function places(task, state, pick) {
    const colorOf = (name) => task.colors[task.models.indexOf(name)];
    const most = Math.max(1, ...pick.rows.map((row) => task.words[row] || 0));
    return pick.rows.map((row) => {
      const [dx, dy] = offset(row);
      const [a, b] = [pick.scoresA[row], pick.scoresB[row]];
      if (!state.b) return { row, x: (task.words[row] || 0) / most + dx, y: a + dy, color: colorOf(state.a) };
      const color = a === b ? "" : colorOf(a > b ? state.a : state.b);
      return { row, x: b + dx, y: a + dy, color };
    });
  }

  function scatter(task, state, pick, width) {
    const height = Math.min(460, Math.max(300, Math.round(width * 0.75)));
    const most = Math.max(1, ...pick.rows.map((row) => task.words[row] || 0));
    const shares = [0, 0.2, 0.4, 0.6, 0.8, 1];
    const xTicks = shares.map((share) => [share, state.b ? share.toFixed(1) : String(Math.round(share * most))]);
    const xLabel = state.b ? `${state.measure}, ${brief(state.b)} →` : "words of the query →";
    const { svg, right, bottom } = frame(width, height, xLabel, `↑ ${state.measure}, ${brief(state.a)}`, xTicks);
    const [x, y] = [
      (share) => FRAME.left + share * (right - FRAME.left),
      (share) => bottom - share * (bottom - FRAME.top),
    ];
    if (state.b) {
      svg.append(draw("line", { x1: x(0), y1: y(0), x2: x(1), y2: y(1), class: "q-even" }));
    }
    for (const place of places(task, state, pick)) {
      const at = { cx: x(place.x).toFixed(1), cy: y(place.y).toFixed(1) };
      const point = draw("circle", { ...at, r: 4, class: "q-point", "data-row": place.row });
      if (place.color) point.setAttribute("fill", place.color);
      svg.append(point);
    }
    const against = state.b ? ` and ${state.b}` : "";
    svg.setAttribute("aria-label", `${state.measure} of ${state.a}${against} on ${pick.rows.length} queries.`);
    return svg;
  }

  // A ring around the selected query.
  function encircle(plot, row) {
    const ring = plot.querySelector(".q-ring");
    if (ring) ring.remove();
    const point = plot.querySelector(`[data-row="${row}"]`);
    if (!point) return;
    const [cx, cy] = [point.getAttribute("cx"), point.getAttribute("cy")];
    point.parentNode.append(draw("circle", { cx, cy, r: 9, class: "q-ring" }));
  }

  // The list of queries

  function order(pick, state) {
    const { rows, scoresA, scoresB } = pick;
    const size = (row) => (state.b ? Math.abs(scoresA[row] - scoresB[row]) : -scoresA[row]);
    return [...rows].sort((r, s) => size(s) - size(r) || r - s);
  }

  function queryList(task, current, pick, go) {
    const state = current();
    const list = make("select", { className: "q-query", data: { "data-query": "" } });
    const rows = order(pick, state);
    const label = (row) => {
      const a = pick.scoresA[row];
      const shown = state.b ? number(a - pick.scoresB[row], { sign: true }) : number(a);
      return `${shown}  ${brief(task.texts[row])}`;
    };
    list.append(make("option", { value: "" }, "select one"));
    for (const row of rows) list.append(make("option", { value: task.ids[row] }, label(row)));
    list.addEventListener("change", () => go({ q: list.value }));
    const step = (text, way, word) => {
      const button = make("button", { type: "button", data: { "aria-label": word } }, text);
      button.addEventListener("click", () => {
        const at = rows.findIndex((row) => task.ids[row] === current().q);
        const next = at < 0 ? 0 : (at + way + rows.length) % rows.length;
        if (rows.length) go({ q: task.ids[rows[next]] });
      });
      return button;
    };
    const first = state.b ? "the largest difference first" : "the lowest score first";
    return make("div", { className: "q-controls" },
      make("label", { className: "q-queries" }, `query, ${first} `, list),
      step("‹", -1, "previous query"), step("›", 1, "next query"));
  }

  // The query

  function detailOf(task, id) {
    const found = Object.hasOwn(task.details, id) ? task.details[id] : null;
    if (!found) return null;
    const [rankings, grades, judged, relevant, count] = found;
    return { rankings, grades, judged, relevant, count };
  }

  function scoreList(task, state, row) {
    const scores = new Map(task.models.map((name) => [name, scoreOf(task, state, name, row)]));
    const names = [...task.models].sort((m, n) => scores.get(n) - scores.get(m));
    return make("ul", { className: "q-scores" }, ...names.map((name) => {
      const score = scores.get(name) || 0;
      const bar = make("i");
      bar.style.width = `${100 * Math.max(0, Math.min(1, score))}%`;
      bar.style.background = task.colors[task.models.indexOf(name)];
      const label = make(name === state.a || name === state.b ? "strong" : "span", {}, name);
      return make("li", {}, label, make("em", {}, bar), make("b", {}, number(score)));
    }));
  }

  function gradeNode(grades, document, threshold) {
    if (!(document in grades)) return make("span", { className: "q-grade" }, "not judged");
    const grade = grades[document];
    const isRelevant = grade >= threshold && grade > 0;
    const word = isRelevant ? `✓ relevant, grade ${grade}` : `✗ not relevant, grade ${grade}`;
    return make("span", { className: isRelevant ? "q-grade q-relevant" : "q-grade" }, word);
  }

  function documentNodes(task, document) {
    const name = task.documents[document];
    const [title, text] = task.document_texts[document] || ["", ""];
    const nodes = [make("strong", {}, title || name)];
    if (text) nodes.push(make("span", { className: "q-text" }, text));
    if (title) nodes.push(make("span", { className: "q-detail" }, name));
    return nodes;
  }

  const ranking = (task, detail, model) => detail.rankings[task.models.indexOf(model)];

  function rankText(task, detail, model, document) {
    const documents = ranking(task, detail, model);
    if (!documents.length) return `no ranking of ${model} is kept`;
    const rank = documents.indexOf(document) + 1;
    return rank ? `rank ${rank} of ${model}` : `not among the first ${documents.length} of ${model}`;
  }

  function judgedList(task, detail, state, row) {
    const models = [state.a, state.b].filter(Boolean);
    const items = detail.judged.map((document) => make("li", {},
      gradeNode(detail.grades, document, state.threshold), ...documentNodes(task, document),
      make("span", { className: "q-detail" },
        models.map((model) => rankText(task, detail, model, document)).join("; "))));
    const relevant = task.graded.ideal ? relevantCount(task, row, state.threshold) : detail.relevant;
    const isCounted = detail.count !== null;
    const judged = isCounted ? ` of ${detail.count} judged` : "";
    const head = `Relevant documents: ${relevant}${judged}`;
    const isCut = isCounted && detail.count > detail.judged.length;
    const shown = isCounted ? `the first ${detail.judged.length}` : "the best that a model found";
    return [make("p", { className: "q-head" }, isCut || !isCounted ? `${head}; ${shown}` : head),
      make("ul", { className: "q-judged" }, ...items)];
  }

  // The first documents of one model; those that both rank lead to one another.
  function side(task, detail, state, model, other, score, rules) {
    const documents = ranking(task, detail, model).slice(0, rules.shown);
    const ofOther = other ? ranking(task, detail, other).slice(0, rules.shown) : [];
    const items = documents.map((document, index) => {
      const item = make("li", { tabIndex: -1, data: { "data-document": document } });
      if (detail.grades[document] >= state.threshold) item.classList.add("q-hit");
      item.append(make("span", { className: "q-rank" }, `${index + 1}`),
        gradeNode(detail.grades, document, state.threshold), ...documentNodes(task, document));
      if (other) {
        const label = rankText(task, detail, other, document);
        item.append(ofOther.includes(document)
          ? make("button", { type: "button", className: "q-other", data: { "data-to": document } }, label)
          : make("span", { className: "q-detail" }, label));
      }
      return item;
    });
    const head = make("p", { className: "q-head" }, model, make("span", {}, ` ${number(score || 0)}`));
    const none = "The record of this model keeps no ranking.";
    return make("section", { className: "q-side", data: { "aria-label": `First documents of ${model}` } },
      head, items.length ? make("ol", {}, ...items) : make("p", { className: "q-note" }, none));
  }

  // Lines between the documents that both models rank, in the gap between the two lists.
  function join(sides, gap) {
    const [left, right] = sides.querySelectorAll(".q-side");
    const { top, width } = gap.getBoundingClientRect();
    const middle = (item) => {
      const box = item.getBoundingClientRect();
      return box.top + Math.min(box.height / 2, 24) - top;
    };
    gap.replaceChildren();
    for (const item of left.querySelectorAll("[data-document]")) {
      const partner = right.querySelector(`[data-document="${item.dataset.document}"]`);
      if (!partner || !width) continue;
      const [from, to] = [middle(item), middle(partner)];
      const line = draw("path", { d: `M0 ${from} C${width / 2} ${from} ${width / 2} ${to} ${width} ${to}` });
      if (item.classList.contains("q-hit")) line.setAttribute("class", "q-hit");
      gap.append(line);
    }
  }

  function sides(task, detail, state, row, pick, rules) {
    const one = side(task, detail, state, state.a, state.b, pick.scoresA[row], rules);
    if (!state.b) return make("div", { className: "q-sides q-single" }, one);
    const gap = draw("svg", { class: "q-gap", "aria-hidden": "true" });
    const both = make("div", { className: "q-sides" }, one, gap,
      side(task, detail, state, state.b, state.a, pick.scoresB[row], rules));
    both.addEventListener("click", (event) => {
      const button = event.target.closest("[data-to]");
      if (!button) return;
      const here = button.closest(".q-side");
      const other = [...both.querySelectorAll(".q-side")].find((one) => one !== here);
      other.querySelector(`[data-document="${button.dataset.to}"]`).focus();
    });
    new ResizeObserver(() => join(both, gap)).observe(both);
    return both;
  }

  function panel(task, state, pick, rules) {
    const row = task.ids.indexOf(state.q);
    const notes = state.unknown.map((name) => make("p", { className: "q-note" }, `This page has no ${name}.`));
    if (!state.q) {
      const hint = "Click on a point or select a query: its text, its judged documents and the first " +
        "documents of each model are shown here.";
      return [...notes, make("p", {}, hint)];
    }
    if (row < 0) return [...notes, make("p", {}, `This page has no query ${state.q}.`)];
    const question = make("p", { className: "q-question" }, task.texts[row]);
    const parts = [...notes, question, make("span", { className: "q-detail" }, state.q)];
    if (!isInJupyter()) {
      const link = { className: "q-detail", href: address(state, task) };
      parts.push(make("a", link, "link to this query"));
    }
    parts.push(scoreList(task, state, row));
    const detail = detailOf(task, state.q);
    if (!detail) {
      const count = Object.keys(task.details).length;
      const why = `Rankings are here for the ${count} queries on which the models differ most.`;
      return [...parts, make("p", { className: "q-note" }, why)];
    }
    if (detail.judged.length) parts.push(...judgedList(task, detail, state, row));
    parts.push(sides(task, detail, state, row, pick, rules));
    return parts;
  }

  // The whole

  function begin(box) {
    const data = JSON.parse(box.querySelector('script[type="application/json"]').textContent);
    const view = box.querySelector(".q-explorer-view");
    const plot = make("div", { className: "q-plot" });
    const hover = make("div", { className: "q-hover", hidden: true });
    const lines = make("div", { className: "q-lines" });
    const list = make("div");
    const query = make("div", { className: "q-picked" });
    let state = stateOf(data, isInJupyter() ? "" : location.hash);
    let top = make("div");
    let task = null; // of the controls that are shown
    let pick = null;
    let tested = ""; // what the points and the test are of
    let drawn = 0; // width of the points

    function go(changes) {
      const other = "task" in changes && data.tasks.find((one) => one.name === changes.task);
      state = other ? defaults(other) : { ...state, ...changes, unknown: [] };
      show();
      if (!isInJupyter()) location.hash = address(state, task);
    }

    function drawPoints() {
      const width = Math.min(700, Math.floor(plot.clientWidth));
      if (width > 0) plot.replaceChildren(scatter(task, state, pick, width), hover);
      drawn = width;
      encircle(plot, task.ids.indexOf(state.q));
    }

    function showTest() {
      pick = picked(task, state);
      lines.replaceChildren(...testNodes(task, state, pick, data.rules));
      if (task.note) lines.append(make("p", { className: "q-note" }, task.note));
      list.replaceChildren(queryList(task, () => state, pick, go));
      drawPoints();
    }

    function show() {
      const chosen = data.tasks.find((one) => one.name === state.task);
      if (chosen !== task) {
        task = chosen;
        const fresh = controls(data, task, go);
        top.replaceWith(fresh);
        top = fresh;
      }
      fill(top, task, state);
      const asked = JSON.stringify({ ...state, q: "", unknown: [] });
      if (asked !== tested) showTest();
      tested = asked;
      encircle(plot, task.ids.indexOf(state.q));
      list.querySelector("select").value = pick.rows.some((row) => task.ids[row] === state.q) ? state.q : "";
      query.replaceChildren(...panel(task, state, pick, data.rules));
    }

    view.replaceChildren(make("style", { textContent: data.style }), top, lines, plot, list, query);
    show();
    new ResizeObserver(() => {
      if (Math.min(700, Math.floor(plot.clientWidth)) !== drawn) drawPoints();
    }).observe(plot);
    plot.addEventListener("click", (event) => {
      const row = event.target.getAttribute("data-row");
      if (row !== null) go({ q: task.ids[Number(row)] });
    });
    plot.addEventListener("pointerover", (event) => {
      const row = event.target.getAttribute("data-row");
      hover.hidden = row === null;
      if (row === null) return;
      const scores = [number(pick.scoresA[row]), ...(state.b ? [number(pick.scoresB[row])] : [])];
      hover.textContent = `${scores.join(" against ")}: ${task.texts[row].slice(0, 200)}`;
    });
    window.addEventListener("hashchange", () => {
      if (isInJupyter() || location.hash === address(state, task)) return;
      state = stateOf(data, location.hash);
      show();
    });
    if (state.q) query.scrollIntoView({ block: "start" });
  }

  function start() {
    for (const box of document.querySelectorAll(".q-explorer:not([data-ready])")) {
      if (!box.querySelector('script[type="application/json"]')) continue;
      box.dataset.ready = "yes";
      begin(box);
    }
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
