// Moves along the frontier: a way and a slider choose a point, and its classes, sentence and commands appear. On the
// way of one class a point has the numbers of that class alone.
const explore = section => {
  const data = JSON.parse(section.dataset.explorer);
  const { names, labeled, best } = data;
  const part = selector => section.querySelector(selector);
  const add = (parent, tag, text, attributes = {}) => {
    const node = document.createElement(tag);
    if (text !== undefined) node.textContent = text;
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    parent.append(node);
    return node;
  };
  const rate = value => (value / 10000).toFixed(3);
  const signed = value => (value < 0 ? "−" : "+") + (Math.abs(value) / 10000).toFixed(3);
  const slider = part("input[type=range]"), filter = part("input[type=search]");
  const body = part(".classes tbody"), head = part(".classes thead").rows[0];
  const picker = part(".one-class select");
  const isClass = () => part("input[name=way]:checked").value === "class";
  const currentWay = () => isClass() ? data.classes[picker.value] : data.ways[part("input[name=way]:checked").value];
  const summary = () => isClass() ? ["recall", "precision", "coverage"] : data.summary;
  const currentPoint = () => currentWay().points[Number(slider.value)];

  // The class that class k is most often taken for, and its rate.
  const mistake = (point, k) => {
    if (!point.rates) return [point.taken_for[k], point.taken_for_rate[k]];
    let target = k ? 0 : 1;
    point.rates[k].forEach((value, j) => { if (j !== k && value > point.rates[k][target]) target = j; });
    return [target, point.rates[k][target]];
  };
  const cells = (point, k) => {
    const [target, frequency] = mistake(point, k);
    return [names[k], labeled.length ? String(labeled[k]) : "–", rate(point.recall[k]),
      best ? signed(point.recall[k] - best.recall[k]) : "–", rate(point.precision[k]), rate(point.coverage[k]),
      frequency ? names[target] : "–", frequency ? rate(frequency) : "–"];
  };
  const rows = names.map((name, k) => {
    const row = add(body, "tr");
    row.dataset.index = k;
    for (let n = 0; n < head.cells.length; n += 1) add(row, "td");
    return row;
  });
  const isShown = k => names[k].toLowerCase().includes(filter.value.trim().toLowerCase());

  const drawPicture = () => {
    const { points, gain } = currentWay(), position = Number(slider.value), width = 320, height = 150, edge = 12;
    const space = "http://www.w3.org/2000/svg", svg = document.createElementNS(space, "svg");
    const scale = index => {
      const values = points.map(point => point.numbers[index]), low = Math.min(...values), high = Math.max(...values);
      return value => high > low ? (value - low) / (high - low) : 0.5;
    };
    const across = scale(gain), up = scale(0);
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("aria-hidden", "true");
    points.forEach((point, n) => {
      const isOwn = best && point.sentence === best.sentence;
      const dot = document.createElementNS(space, "circle");
      dot.setAttribute("cx", edge + across(point.numbers[gain]) * (width - 2 * edge));
      dot.setAttribute("cy", height - edge - up(point.numbers[0]) * (height - 2 * edge));
      dot.setAttribute("r", n === position ? 7 : 4);
      dot.setAttribute("class", [n === position ? "here" : "", isOwn ? "own" : ""].join(" ").trim());
      dot.addEventListener("click", () => { slider.value = n; show(); });
      svg.append(dot);
    });
    const place = part(".picture");
    place.replaceChildren(svg);
    const range = index => {
      const values = points.map(point => point.numbers[index]);
      return `${summary()[index]} ${Math.min(...values).toFixed(3)} to ${Math.max(...values).toFixed(3)}`;
    };
    add(place, "span", `up: ${range(0)}; right: ${range(gain)}${best ? "; ringed: this run's own sentence" : ""}`, { class: "soft" });
  };
  const drawConfusion = point => {
    const place = part(".confusion"), indices = names.map((_, k) => k).filter(isShown);
    place.replaceChildren();
    if (!point.rates || !indices.length) return;
    const table = add(place, "table");
    add(table, "caption", "Confusion at this point: rates of each true class (rows) over the predicted (columns)");
    const top = add(add(table, "thead"), "tr");
    add(top, "th", "", { scope: "col" });
    for (const name of names) add(top, "th", name, { scope: "col" });
    const main = add(table, "tbody");
    for (const k of indices) {
      const row = add(main, "tr");
      add(row, "th", names[k], { scope: "row" });
      point.rates[k].forEach(value => {
        add(row, "td", value >= 50 ? (value / 10000).toFixed(2) : "").style.setProperty("--rate", `${value / 150}%`);
      });
    }
  };
  const show = () => {
    const point = currentPoint(), numbers = part("dl"), commands = part(".commands");
    numbers.replaceChildren();
    summary().forEach((name, n) => {
      const item = add(numbers, "div");
      add(item, "dt", name);
      add(item, "dd", point.numbers[n].toFixed(3), { "data-name": name });
    });
    slider.setAttribute("aria-valuetext", summary().map((name, n) => `${name} ${point.numbers[n].toFixed(3)}`).join(", "));
    part(".sentence-of-point").textContent = point.sentence;
    const isOwn = best !== null && point.sentence === best.sentence;
    part(".whose").textContent = isOwn ? "(this run's own)" : "";
    part(".about-class").hidden = !isClass() || isOwn;
    commands.replaceChildren();
    point.commands.forEach((command, n) => {
      add(commands, "p", n ? "Train for it:" : "Decide so with this model, without training again:", { class: "soft" });
      add(commands, "pre", command, { tabindex: "0" });
    });
    drawPicture();
    if (isClass()) return;
    rows.forEach((row, k) => cells(point, k).forEach((text, n) => { row.cells[n].textContent = text; }));
    drawConfusion(point);
  };
  const choose = () => {
    slider.max = currentWay().points.length - 1;
    slider.value = currentWay().start;
    part(".loss").textContent = `more ${summary()[0]}`;
    part(".goal").textContent = `more ${summary()[currentWay().gain]}`;
    for (const place of section.querySelectorAll(".one-class")) place.hidden = !isClass();
    part(".all-classes").hidden = isClass();
    show();
  };
  const select = () => {
    rows.forEach((row, k) => { row.hidden = !isShown(k); });
    part(".count").textContent = `${rows.filter(row => !row.hidden).length} of ${names.length} classes`;
    if (!isClass()) drawConfusion(currentPoint());
  };
  const quoted = text => {
    const safe = /^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text;
    return /[",\n\r]/.test(safe) ? `"${safe.replace(/"/g, '""')}"` : safe;
  };
  const download = () => {
    const lines = [Array.from(head.cells, cell => cell.textContent), ...Array.from(body.rows)
      .filter(row => !row.hidden).map(row => Array.from(row.cells, cell => cell.textContent.replace("−", "-")))];
    const text = lines.map(line => line.map(quoted).join(",")).join("\r\n") + "\r\n";
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "text/csv;charset=utf-8" }));
    link.download = "classes.csv";
    link.click();
    URL.revokeObjectURL(link.href);
  };
  for (const radio of section.querySelectorAll("input[name=way]")) radio.addEventListener("change", choose);
  if (picker) picker.addEventListener("change", choose);
  slider.addEventListener("input", show);
  filter.addEventListener("input", select);
  part(".download").addEventListener("click", download);
  section.hidden = false;
  choose();
  select();
};
for (const section of document.querySelectorAll("[data-explorer]")) explore(section);
