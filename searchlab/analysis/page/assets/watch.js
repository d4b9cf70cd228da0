"use strict";
// Shows the study's progress. When its report has changed, loads the page again, with the switches as they were.
{
  const SECONDS = 5;
  const progress = document.getElementById("progress");
  const kept = "searchlab-switches";
  const has_report = document.getElementById("data") !== null;

  function reload() {
    if (has_report) {
      const open = all("details[id][open]").map((details) => details.id);
      sessionStorage.setItem(kept, JSON.stringify({ highlighted: [...highlighted], chosen, open }));
    }
    location.reload();
  }

  function restore() {
    const before = JSON.parse(sessionStorage.getItem(kept));
    sessionStorage.removeItem(kept);
    if (!before) return;
    for (const id of before.open) document.getElementById(id)?.setAttribute("open", "");
    highlighted.clear();
    for (const name of before.highlighted) if (strategies.includes(name)) highlighted.add(name);
    Object.assign(chosen, before.chosen);
    refresh();
  }

  async function update() {
    try {
      // Without a path, which may have any prefix that a proxy adds.
      const { version, text } = await (await fetch("?progress")).json();
      if (version !== progress.dataset.version) reload();
      progress.textContent = text;
    } catch {
      progress.textContent = "The server does not answer. To go on, run searchlab watch again.";
    }
  }

  if (has_report) restore();
  update();
  setInterval(() => document.hidden || update(), SECONDS * 1000);
}
