// Numbers sort by their value, other cells as words; cells without a value stay last.
"use strict";
const isBlank = text => text === "" || text === "–";
const number = text => {
  const match = /^[-+−]?[\d,]*\.?\d+(e[-+]?\d+)?/i.exec(text);
  return match ? Number(match[0].replace(/,/g, "").replace("−", "-")) : NaN;
};
const sort = button => {
  const head = button.closest("th"), table = button.closest("table"), body = table.tBodies[0];
  const isDescending = head.getAttribute("aria-sort") === "ascending";
  const cell = row => row.cells[head.cellIndex].textContent.trim();
  const rows = Array.from(body.rows);
  const isNumeric = rows.every(row => isBlank(cell(row)) || !Number.isNaN(number(cell(row))));
  const order = (a, b) => isNumeric ? number(a) - number(b) : a.localeCompare(b, undefined, { numeric: true });
  rows.sort((rowA, rowB) => {
    const a = cell(rowA), b = cell(rowB);
    if (isBlank(a) || isBlank(b)) return isBlank(a) - isBlank(b);
    return isDescending ? order(b, a) : order(a, b);
  });
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", isDescending ? "descending" : "ascending");
  body.append(...rows);
};
for (const button of document.querySelectorAll("th button")) button.addEventListener("click", () => sort(button));
addEventListener("beforeprint", () => { for (const part of document.querySelectorAll("details")) part.open = true; });
