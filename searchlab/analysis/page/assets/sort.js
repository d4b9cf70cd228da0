// Tables. A number sorts by its first figure, "not reached" after all numbers, and a dash last either way.

function key(cell) {
  const text = cell.textContent.trim();
  if (text === "–" || text === "-" || text === "") return null;
  const number = parseFloat(text.replace(/^[<>] /, "").replaceAll(",", ""));
  return Number.isNaN(number) ? (text.startsWith("not reached") ? Infinity : text) : number;
}

function compare(a, b) {
  if (a === null || b === null) return 0;
  if (typeof a === "number" && typeof b === "number") return a === b ? 0 : a - b;
  return String(a).localeCompare(String(b), "en", { numeric: true });
}

// Sorts by the column of a head: with the best first, with the worst first, and as the report has it.
function sort(head) {
  const table = head.closest("table");
  const orders = ["none", "ascending", "descending"];
  if (head.dataset.first) orders.push(...orders.splice(1, 1));
  const to = orders[(orders.indexOf(head.getAttribute("aria-sort")) + 1) % 3];
  for (const other of head.parentElement.querySelectorAll("[aria-sort]")) other.setAttribute("aria-sort", "none");
  head.setAttribute("aria-sort", to);
  const way = to === "descending" ? -1 : 1;
  const rows = table.given.map((row) => [key(row.cells[head.cellIndex]), row]);
  if (to !== "none") rows.sort(([a], [b]) => (a === null) - (b === null) || way * compare(a, b));
  table.tBodies[0].append(...rows.map(([, row]) => row));
}

function sortable(table) {
  table.given = [...table.tBodies[0].rows];
  if (table.given.length < 2) return;
  for (const head of table.tHead.rows[0].cells) {
    const button = document.createElement("button");
    button.append(...head.childNodes);
    button.className = "sort";
    button.type = "button";
    head.append(button);
    head.setAttribute("aria-sort", "none");
  }
}
