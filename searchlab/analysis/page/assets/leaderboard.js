// Chooses the table of a set of tables and a budget, and the classes of strategies that it shows. Without this script, all
// tables are shown one after the other.

const choices = Object.fromEntries(["selection", "budget", "class"].map((name) => [name, document.getElementById(name)]));

function show() {
  for (const figure of document.querySelectorAll("figure[data-selection]")) {
    const { selection, budget } = figure.dataset;
    figure.hidden = selection !== choices.selection.value || budget !== choices.budget.value;
    for (const row of figure.querySelectorAll("tbody tr"))
      row.hidden = choices.class.value !== "" && row.dataset.class !== choices.class.value;
  }
}

document.querySelectorAll("table.sortable").forEach(sortable);
document.addEventListener("change", show);
document.addEventListener("click", ({ target }) => {
  const head = target.closest("button.sort")?.closest("th");
  if (head) sort(head);
});
document.getElementById("choices").hidden = false;
show();
