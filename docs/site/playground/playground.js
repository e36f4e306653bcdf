// The page asks playground.cpp, in WebAssembly, and draws its answer. It computes nothing itself.
"use strict";
(() => {
  const form = document.getElementById("question");
  if (!form) return;
  const $ = (id) => document.getElementById(id);

  // Outputs are of 1,024 tokens in 32 bits, of the last of 2,048 in 16.
  const examples = {
    "BERT base": { layers: 12, parameters: 7.09, half: 0, boundary: 3.15, inside: 50 },
    "BERT large": { layers: 24, parameters: 12.6, half: 0, boundary: 4.19, inside: 67 },
    "a GPT of 6.4 billion": { layers: 32, parameters: 201.3, half: 1, boundary: 16.8, inside: 268 },
  };

  // --- the library ---
  const bytes = Uint8Array.from(atob(dhpPlayground), (c) => c.charCodeAt(0));
  const compiled = bytes.length ? new WebAssembly.Module(bytes) : null;
  let instance = null;
  function ask(question) {
    if (!compiled) return { refused: "this copy of the site was built without clang-16, and has no playground" };
    if (!instance) {
      instance = new WebAssembly.Instance(compiled);
      instance.exports._initialize();
    }
    const library = instance.exports;
    const text = new TextEncoder().encode(question);
    const at = library.question(text.length);
    new Uint8Array(library.memory.buffer, at, text.length).set(text);
    try {
      library.answer();
    } catch (trap) {
      instance = null; // an Error of the library ends the instance; its sentence is left
    }
    const answer = new Uint8Array(library.memory.buffer, library.text(), library.text_bytes());
    return JSON.parse(new TextDecoder().decode(answer));
  }

  // --- text ---
  const sized = (value) => {
    const units = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    let unit = 0;
    while (value >= 999.5 && unit + 1 < units.length) { value /= 1000; ++unit; }
    return `${unit === 0 ? Math.round(value) : value.toPrecision(3)} ${units[unit]}`;
  };
  const number = (value) => Number(value.toPrecision(4)).toLocaleString("en", { maximumFractionDigits: 4 });
  const percent = (share) => `${(100 * share).toFixed(1)} %`;
  const sum = (values) => values.reduce((total, value) => total + value, 0);
  const mean = (values) => sum(values) / values.length;
  const idle = (answer) => mean(answer.stages.map((stage) => stage.idle));

  // --- the question ---
  const needed_chunks = Object.fromEntries(ask("").schedules ?? []); // 0: any number
  form.elements.schedule.innerHTML = Object.keys(needed_chunks)
    .map((name) => `<option${name === "1f1b" ? " selected" : ""}>${name}</option>`).join("");
  const fields = [...form.elements].filter((field) => field.name);
  let strange = []; // what an address asks and the page has no field for: the library refuses it
  const question = () => [...fields.map((field) => {
    const unit = field.dataset.unit;
    const value = unit && field.value !== "" ? String(Number((field.value * unit).toPrecision(12))) : field.value;
    return `${field.name}=${value}`;
  }), ...strange].join("&");
  function choose(text) {
    strange = [];
    for (const pair of text.split("&").filter(Boolean)) {
      const [key, value] = pair.split("=");
      const field = fields.find((other) => other.name === key);
      if (!field || value === undefined) strange.push(pair);
      else field.value = field.dataset.unit ? value / field.dataset.unit : value;
    }
  }

  // --- pictures ---
  const letter = { forward: "F", backward: "B", backward_input: "B", backward_weight: "W" };
  const said = {
    forward: "forward", backward: "backward", backward_input: "input gradient", backward_weight: "weight gradient",
  };
  function timeline(answer, chunks) {
    const row = 30, left = 66, right = 66, top = 4;
    const shortest = Math.min(...answer.stages.flatMap((stage) => stage.actions.map((a) => a[4])).filter((t) => t > 0));
    const room = $("timeline").clientWidth - left - right;
    // Wide enough to read the shortest action, no wider than 4 screens.
    const wish = Number.isFinite(shortest) ? 12 * answer.makespan / shortest : room;
    const width = Math.max(Math.min(room, 1400), Math.min(wish, 4 * Math.max(room, 600)));
    const scale = width / (answer.makespan || 1);
    const height = top + row * answer.stages.length + 26;
    let svg = `<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="Timeline of the stages"
      viewBox="0 0 ${left + width + right} ${height}" style="width:${left + width + right}px;height:${height}px">`;
    answer.stages.forEach((stage, s) => {
      const y = top + s * row;
      svg += `<text class="stage" x="0" y="${y + 18}">stage ${s}</text>`;
      svg += `<rect class="idle" x="${left}" y="${y + 2}" width="${width}" height="${row - 6}"/>`;
      for (const [kind, chunk, batch, start, cost] of stage.actions) {
        const x = left + start * scale, w = cost * scale;
        const label = letter[kind] + batch + (chunks > 1 ? String.fromCharCode(97 + chunk) : "");
        const where = chunks > 1 ? ` in chunk ${chunk}` : "";
        svg += `<g><title>stage ${s}: ${said[kind]} of micro-batch ${batch}${where},
          from ${number(start)} to ${number(start + cost)}</title>`;
        svg += `<rect class="${kind}" style="fill-opacity:${1 - 0.5 * chunk / chunks}" x="${x.toFixed(2)}" y="${y + 2}"
          width="${Math.max(w - 1, 0.5).toFixed(2)}" height="${row - 6}" rx="2"/>`;
        const fits = (text) => w >= 6.6 * text.length + 2;
        const short = fits(label) ? label : label.slice(1);
        if (fits(short)) svg += `<text x="${(x + w / 2).toFixed(2)}" y="${y + 18}">${short}</text>`;
        svg += "</g>";
      }
      svg += `<text class="share" x="${left + width + 10}" y="${y + 18}">${percent(stage.idle)}</text>`;
    });
    const bottom = top + row * answer.stages.length;
    const step = 10 ** Math.floor(Math.log10((answer.makespan || 1) / 4));
    const tick = [1, 2, 5, 10].map((k) => k * step).find((t) => answer.makespan / t <= 10) || step;
    for (let t = 0; answer.makespan > 0 && t <= answer.makespan * (1 + 1e-9); t += tick) {
      const x = left + t * scale;
      svg += `<line x1="${x}" x2="${x}" y1="${bottom}" y2="${bottom + 4}"/>`;
      svg += `<text class="tick" x="${x}" y="${bottom + 18}">${number(t)}</text>`;
    }
    svg += `<text class="share" x="${left + width + 10}" y="${bottom + 18}">idle</text>`;
    $("timeline").innerHTML = svg + "</svg>";
  }

  // Rows of cells; a bar of parts beside each row where there are parts.
  function table(id, heads, rows) {
    const most = Math.max(...rows.map((row) => sum(row.parts || [])), 1e-300);
    const plain = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;");
    const cells = (row) => row.cells.map((cell) => `<td>${plain(cell)}</td>`).join("");
    const bar = (part, i) => `<i class="part${row_of_colors(id) + i}" style="width:${100 * part / most}%"></i>`;
    const bars = (row) => row.parts ? `<td class="bar"><div>${row.parts.map(bar).join("")}</div></td>` : "";
    const body = rows.map((row) => `<tr${row.chosen ? ' class="chosen"' : ""}>${cells(row)}${bars(row)}</tr>`);
    $(id).innerHTML = `<thead><tr>${heads.map((head) => `<th>${head}</th>`).join("")}</tr></thead>` +
      `<tbody>${body.join("")}</tbody>`;
  }
  const row_of_colors = (id) => (id === "sent" ? 4 : 0);
  const key = (name, part) => `<i class="key part${part}"></i>${name}`;

  // --- the answer ---
  function show() {
    const text = question();
    const answer = ask(text);
    $("refused").hidden = !answer.refused;
    $("answer").hidden = !!answer.refused;
    $("playground").dataset.question = text;
    if (answer.refused) {
      $("refused").textContent = `Refused: ${answer.refused}.`;
      return;
    }
    const chosen = Object.fromEntries(fields.map((field) => [field.name, field.value]));
    const ranks = chosen.data * chosen.tensor * chosen.pipeline * chosen.context;
    const many = (count, noun) => `<b>${count}</b> ${noun}${count === 1 ? "" : "s"}`;
    $("summary").innerHTML = `${many(ranks, "rank")}. A step takes <b>${number(answer.makespan)}</b>, stages are idle ` +
      `for <b>${percent(idle(answer))}</b> of it. The schedule is proved; on an edge there are at most ` +
      `${many(answer.max_messages, "message")} at a time.`;
    timeline(answer, Number(chosen.chunks));
    const others = [...form.elements.schedule.options].map(({ value: schedule }) => {
      const more = chosen.schedule === schedule ? chosen.chunks : Math.max(2, chosen.chunks);
      const chunks = needed_chunks[schedule] || more;
      const other = ask(`${text}&schedule=${schedule}&chunks=${chunks}`);
      const cells = other.refused ? ["", "", "", other.refused] : [number(other.makespan), percent(idle(other)),
        Math.max(...other.stages.map((stage) => stage.in_flight)),
        sized(Math.max(...other.stages.map((stage) => stage.memory.activations)))];
      return { cells: [schedule, ...cells], chosen: schedule === chosen.schedule };
    });
    table("schedules", ["schedule", "time of the step", "idle", "most in flight", "most activations"], others);
    table("memory", ["stage", "layers", "in flight", key("weights", 0), key("gradients", 1), key("optimizer", 2),
      key("activations", 3), "sum", ""],
      answer.stages.map((stage, s) => {
        const parts = [stage.memory.weights, stage.memory.gradients, stage.memory.optimizer, stage.memory.activations];
        return { cells: [s, stage.layers, stage.in_flight, ...parts.map(sized), sized(sum(parts))], parts };
      }));
    table("sent", ["stage", key("D, data", 4), key("H, tensor", 5), key("P, pipeline", 6),
      key("C, context", 7), ""],
      answer.stages.map((stage, s) => {
        const parts = [stage.sent.data, stage.sent.tensor, stage.sent.pipeline, stage.sent.context];
        return { cells: [s, ...parts.map(sized)], parts };
      }));
  }

  $("example").innerHTML = [...Object.keys(examples), "your own"].map((name) => `<option>${name}</option>`).join("");
  function from_example() {
    const example = examples[$("example").value];
    if (!example) return;
    for (const [name, value] of Object.entries(example)) form.elements[name].value = value;
  }
  function from_address() {
    let text = location.hash.slice(1);
    try { text = decodeURIComponent(text); } catch { /* a % that escapes nothing: as it stands */ }
    if (!text.includes("=")) return;
    form.reset();
    from_example();
    choose(text);
    $("example").value = "your own";
    show();
  }
  form.addEventListener("input", (event) => {
    strange = [];
    if (event.target.id === "example") from_example();
    else if (event.target.name in examples["BERT base"]) $("example").value = "your own";
    if (event.target.name === "schedule") {
      const chunks = form.elements.chunks;
      chunks.value = needed_chunks[event.target.value] || Math.max(2, chunks.value);
    }
    show();
    history.replaceState(null, "", `#${question()}`);
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  let resized = 0;
  addEventListener("resize", () => { clearTimeout(resized); resized = setTimeout(show, 150); });
  addEventListener("hashchange", from_address);
  from_example();
  show();
  from_address();
})();
