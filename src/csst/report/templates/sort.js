// Numbers sort by their value, other cells as words; cells without a value stay last.
"use strict";
const blank = text => text === "" || text === "–";
const number = text => {
  const found = /^[-+−]?[\d,]*\.?\d+(e[-+]?\d+)?/i.exec(text);
  return found ? Number(found[0].replace(/,/g, "").replace("−", "-")) : NaN;
};
const sort = button => {
  const head = button.closest("th"), table = button.closest("table"), body = table.tBodies[0];
  const down = head.getAttribute("aria-sort") === "ascending";
  const cell = row => row.cells[head.cellIndex].textContent.trim();
  const rows = Array.from(body.rows);
  const numeric = rows.every(row => blank(cell(row)) || !Number.isNaN(number(cell(row))));
  const order = (a, b) => numeric ? number(a) - number(b) : a.localeCompare(b, undefined, { numeric: true });
  rows.sort((one, two) => {
    const a = cell(one), b = cell(two);
    if (blank(a) || blank(b)) return blank(a) - blank(b);
    return down ? order(b, a) : order(a, b);
  });
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  body.append(...rows);
};
for (const button of document.querySelectorAll("th button")) button.addEventListener("click", () => sort(button));
addEventListener("beforeprint", () => { for (const part of document.querySelectorAll("details")) part.open = true; });
