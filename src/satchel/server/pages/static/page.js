// On every page: replaces a part of the page instead of the whole, where a link or a form says so.
//
// <form data-swap="#list"> and <a data-swap="#list"> are followed with fetch, and the element with that id is replaced by
// the one in the page that answers. A link or a form that reads becomes the page's address. Without this script, the
// browser opens the page. `swap(url, "#list")` does the same for other scripts.

// The path below which this browser finds all pages; see browser_access.py.
const place = /^\/s\/[0-9a-f]{32}(?=\/|$)/.exec(location.pathname)?.[0] ?? "";
if (place) {
  localStorage.setItem("place", place);
  // Only for what other apps share. A window that keeps nothing may refuse.
  navigator.serviceWorker?.register(new URL("worker.js", import.meta.url), { scope: "/" }).catch(() => {});
}

export const inPlace = (path) => place + path;
export const logInAgain = () => location.assign(`/login?ended=1&next=${encodeURIComponent(location.pathname.slice(place.length) || "/")}`);

const running = new Map();   // target -> AbortController: only the newest answer counts

export const formToken = () => document.querySelector('meta[name="form-token"]')?.content ?? "";

export async function swap(url, selector, { method = "GET", body = null, push = false, focus = null } = {}) {
  running.get(selector)?.abort();
  const control = new AbortController();
  running.set(selector, control);
  const old = document.querySelector(selector);
  old?.setAttribute("aria-busy", "true");
  try {
    const answer = await fetch(url, {
      method, body, signal: control.signal, credentials: "same-origin", headers: { accept: "text/html", "x-form-token": formToken() },
    });
    const there = new URL(answer.url);
    if (there.pathname === "/login") { location.assign(answer.url); return; }
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const problem = page.querySelector("#problem");
    if (problem) { announce(problem); return; }
    const fresh = page.querySelector(selector);
    if (!fresh) { location.assign(answer.url); return; }
    replace(old, fresh, focus);
    const sayings = page.querySelector("#sayings");
    if (sayings && sayings.childElementCount && !fresh.contains(sayings)) announce(...sayings.children);
    document.title = page.title || document.title;
    if (push && method === "GET") setAddress(answer.url, { push });
    document.dispatchEvent(new CustomEvent("swapped", { detail: { target: document.querySelector(selector) } }));
  } catch (error) {
    const failed = notice("Satchel does not answer. Is the server running?");
    // Below a dialog, nobody would see it; and what was found for other words leads nowhere.
    if (error.name !== "AbortError" && old?.closest("dialog")) old.replaceChildren(failed);
    else if (error.name !== "AbortError") announce(failed);
  } finally {
    if (running.get(selector) === control) {
      old?.removeAttribute("aria-busy");
      running.delete(selector);
    }
  }
}

// Keeps what the reader had open, and the focus: on the same element if it is still there, else on the next one.
function replace(old, fresh, focus) {
  const open = new Set([...old.querySelectorAll("details[open][id]")].map((each) => each.id));
  const active = document.activeElement;
  const inside = old.contains(active);
  const path = inside ? [...old.querySelectorAll("a, button, input, select, textarea, summary")].indexOf(active) : -1;
  const name = inside ? active.id : "";
  const at = inside && "selectionStart" in active && active.type !== "checkbox" ? active.selectionStart : null;
  const value = inside && active.matches("input, textarea") ? active.value : null;
  old.replaceWith(document.adoptNode(fresh));
  for (const id of open) document.getElementById(id)?.setAttribute("open", "");
  if (!inside) return;
  const same = (focus && fresh.querySelector(focus)) || (name && document.getElementById(name));
  const all = [...fresh.querySelectorAll("a, button, input, select, textarea, summary")];
  const next = same || all[Math.min(path, all.length - 1)];
  next?.focus({ preventScroll: true });
  if (same && value !== null && same.value !== undefined && same.type === "search") { same.value = value; same.setSelectionRange(at, at); }
}

export function announce(...notices) {
  const place = document.getElementById("sayings");
  if (!place) return;
  place.replaceChildren(...notices.map((each) => document.adoptNode(each)));
  place.scrollIntoView({ block: "nearest" });
}

export function notice(words, state = "failed") {
  const template = document.createElement("div");
  template.className = "notice";
  template.dataset.state = state;
  template.setAttribute("role", "status");
  template.innerHTML = `<svg class="mark" aria-hidden="true"><use href="#${state}"/></svg> <div></div>`;
  template.querySelector("div").textContent = words;
  return template;
}

document.addEventListener("submit", (event) => {
  const form = event.target;
  const selector = event.submitter?.dataset.swap || form.dataset.swap;
  if (!selector || event.defaultPrevented || !document.querySelector(selector)) return;
  event.preventDefault();
  const data = new FormData(form, event.submitter);
  const fields = new URLSearchParams(data);
  const action = event.submitter?.getAttribute("formaction") || form.getAttribute("action") || location.pathname;
  if ((form.getAttribute("method") ?? "").toLowerCase() === "post") swap(action, selector, { method: "POST", body: fields });
  else swap(`${action}?${fields}`, selector, { push: !form.closest("dialog") });
});

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-swap]");
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  if (!document.querySelector(link.dataset.swap)) return;
  event.preventDefault();
  swap(link.href, link.dataset.swap, { push: true });
});

// A form with data-live is sent while its fields change, a quarter of a second after the last key.
let waiting = null;
document.addEventListener("input", (event) => {
  const form = event.target.closest("form[data-live]");
  if (!form) return;
  // What is there, and what is on its way, is of other words.
  const selector = form.dataset.swap;
  document.querySelector(selector)?.setAttribute("aria-busy", "true");
  running.get(selector)?.abort();
  running.delete(selector);
  clearTimeout(waiting);
  waiting = setTimeout(() => form.requestSubmit(), 250);
});

// Back and forward lead to another page in the same document; a link to a part of this one, to the same.
const here = () => location.pathname + location.search;
let shown = here();
export function setAddress(url, { push = false } = {}) {
  history[push ? "pushState" : "replaceState"](null, "", url);
  shown = here();
}
addEventListener("popstate", () => { if (here() !== shown) location.reload(); });

// Where a form was refused, its first field that is wrong.
document.querySelector('[aria-invalid="true"]')?.focus();

// Ctrl-K, and "/" outside of fields, search everything in a dialog: the form of the rail, and the page's results.
const find = document.getElementById("find");
let dialog = null;

function openSearch() {
  const onPage = document.getElementById("search-all");
  if (onPage) { onPage.focus(); onPage.select(); return; }
  if (!dialog) {
    dialog = document.createElement("dialog");
    dialog.className = "search";
    dialog.setAttribute("aria-label", "Search everything");
    const form = find.form.cloneNode(true);
    form.dataset.swap = "#everything";
    form.dataset.live = "";
    form.querySelector("label").htmlFor = form.querySelector("input").id = "find-everything";
    form.querySelector("input").placeholder = "Conversations, memories, documents, capabilities, settings";
    const results = document.createElement("div");
    results.id = "everything";
    dialog.append(form, results);
    dialog.addEventListener("click", (event) => { if (event.target === dialog || event.target.closest("a")) dialog.close(); });
    // Enter in the field opens the best result, as soon as it is there.
    let opens = false;
    const openBest = () => {
      if (!opens || dialog.querySelector("#everything[aria-busy]")) return;
      opens = false;
      dialog.querySelector("#everything a.said")?.click();
    };
    document.addEventListener("swapped", openBest);
    for (const end of ["input", "close"]) dialog.addEventListener(end, () => { opens = false; });
    dialog.addEventListener("keydown", (event) => {
      if (event.key === "Escape") { event.preventDefault(); dialog.close(); }  // a search field would only be emptied
      if (event.key === "Enter" && event.target.matches("input") && !event.isComposing) {
        event.preventDefault();
        opens = true;
        if (dialog.querySelector("#everything > .notice")) form.requestSubmit();
        openBest();
      }
      if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
      if (dialog.querySelector("#everything[aria-busy]")) { event.preventDefault(); return; }
      const stops = [...dialog.querySelectorAll("input, a")];
      event.preventDefault();
      stops.at((stops.indexOf(document.activeElement) + (event.key === "ArrowDown" ? 1 : -1)) % stops.length).focus();
    });
    document.body.append(dialog);
  }
  dialog.showModal();
  dialog.querySelector("input").select();
}

if (find) document.addEventListener("keydown", (event) => {
  const isInField = event.target.closest?.("input, textarea, select, [contenteditable]");
  const isKey = event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey) && !event.shiftKey && !event.altKey;
  if (!isKey && (event.key !== "/" || isInField || event.ctrlKey || event.metaKey || event.altKey)) return;
  if (event.defaultPrevented || (document.querySelector("dialog[open]") && !dialog?.open)) return;
  event.preventDefault();
  openSearch();
});

// Escape closes a menu, as it closes a dialog, and so does the keyboard when it leads on: a menu covers what is below.
document.addEventListener("keydown", (event) => {
  const menu = event.key === "Escape" && event.target.closest?.("details.menu[open]");
  if (!menu) return;
  menu.open = false;
  menu.firstElementChild.focus();
});
document.addEventListener("focusout", ({ target, relatedTarget }) => {
  const menu = relatedTarget && target.closest?.("details.menu[open], #rail:popover-open");
  if (!menu || menu.contains(relatedTarget)) return;
  if (menu.popover) menu.hidePopover();
  else menu.open = false;
});

// A picture of a conversation or a memory opens above the page, with a link that downloads it.
document.addEventListener("click", (event) => {
  const link = event.target.closest(".made a:has(> img)");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const viewer = document.createElement("dialog");
  const picture = document.createElement("img");
  const row = document.createElement("form");
  const download = document.createElement("a");
  const close = document.createElement("button");
  picture.src = link.firstElementChild.src;
  picture.alt = download.download = link.firstElementChild.alt;
  download.href = link.href;
  download.textContent = "Download";
  close.textContent = "Close";
  row.method = "dialog";
  row.className = "row";
  row.append(picture.alt, download, close);
  viewer.className = "viewer";
  viewer.setAttribute("aria-label", picture.alt);
  viewer.append(picture, row);
  viewer.addEventListener("click", ({ target }) => { if (target === viewer || target === picture) viewer.close(); });
  viewer.addEventListener("close", () => viewer.remove());
  document.body.append(viewer);
  viewer.showModal();
});
