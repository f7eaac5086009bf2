// The overview renews itself while it is looked at and its box is ticked. Everything works without this.
"use strict";

const box = document.getElementById("refresh");
const live = document.getElementById("live");
const KEY = "relay-refresh";

async function renew() {
  // Not under somebody's hands: what has the focus, or is open, or is selected, would be lost.
  const busy = live.contains(document.activeElement) || live.querySelector("details[open]") || String(getSelection());
  if (!box.checked || document.hidden || busy) return;
  const said = document.getElementById("refreshed");
  try {
    const answer = await fetch(location.href, { redirect: "error", signal: AbortSignal.timeout(9000) });
    if (!answer.ok) throw new Error(String(answer.status));
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const before = document.getElementById("attention").textContent;
    live.replaceChildren(...page.getElementById("live").childNodes);
    const after = document.getElementById("attention").textContent;
    said.textContent = `as of ${new Date().toLocaleTimeString()}`;
    if (before !== after) document.getElementById("told").textContent = after;
  } catch {
    said.textContent = "cannot be renewed now; reload the page";
  }
}

if (box && live) {
  box.checked = localStorage.getItem(KEY) === "yes";
  box.addEventListener("change", () => localStorage.setItem(KEY, box.checked ? "yes" : "no"));
  setInterval(renew, 10000);
}
