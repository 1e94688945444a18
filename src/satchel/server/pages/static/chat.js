// The chat page: follows the session, sends messages, keeps drafts, and adds what only a script can.
// Without it the page works by its forms.

import { attaching } from "./attach.js";
import { formToken, inPlace, logInAgain, notice, setAddress } from "./page.js";
import { dictate, speak } from "./voice.js";

const turns = document.getElementById("turns");
const composer = document.getElementById("composer");
const message = document.getElementById("message");
const told = document.getElementById("told");
const status = document.getElementById("status");
const broken = document.getElementById("broken");
const stopButton = document.getElementById("stop");
const sendButton = document.getElementById("send");
const waiting = document.getElementById("waiting");

let session = turns.dataset.session;
let place = { first: Number(turns.dataset.first), after: Number(turns.dataset.after) };
let running = turns.dataset.running === "true";
let asks = 0;

// ---- Following

let source = null;
let retry = null;

function follow() {
  if (!session || source || document.visibilityState === "hidden") return;
  clearTimeout(retry);
  const mine = new EventSource(inPlace(`/chat/${session}/events?first=${place.first}&after=${place.after}`));
  source = mine;
  const on = (name, act) => mine.addEventListener(name, (event) => {
    if (mine !== source) return;
    act(JSON.parse(event.data));
    const [, after] = event.lastEventId.split(".");
    if (after) place.after = Number(after);
  });
  on("put", put);
  on("write", write);
  on("state", settle);
  mine.addEventListener("open", () => { broken.hidden = true; });
  mine.addEventListener("error", () => {
    if (mine !== source) return;
    keepingPlace(() => { broken.hidden = false; });
    // An answer that is no stream ends an EventSource for good; a connection that broke it mends itself.
    if (mine.readyState !== EventSource.CLOSED) return;
    release();
    retry = setTimeout(check, 3000);
  });
}

function release() { source?.close(); source = null; }

async function check() {
  try {
    const answer = await fetch(inPlace(`/api/sessions/${session}?limit=1`), { credentials: "same-origin", headers: { accept: "application/json" } });
    if (answer.status === 401) { logInAgain(); return; }
    if (answer.status === 404) { location.assign(inPlace("/sessions")); return; }
  } catch { /* the server is down: keep trying */ }
  follow();
}

document.getElementById("again").addEventListener("click", () => { release(); follow(); });
// A connection is given back while nobody looks: a browser has six of them for one server.
document.addEventListener("visibilitychange", () => { if (document.visibilityState === "hidden") release(); else follow(); });
addEventListener("pagehide", release);
addEventListener("pageshow", follow);

// ---- Drawing

// Where the focus is nowhere, and no keyboard of a phone would jump up.
function focusField() {
  if (document.activeElement === document.body && !matchMedia("(pointer: coarse)").matches) message.focus({ preventScroll: true });
}

// The end is followed until the reader goes up from it, by however little, and again when they are back there.
const belowSight = () => document.documentElement.scrollHeight - innerHeight - scrollY;
const endButton = document.getElementById("to-end");
let follows = true;
let scrolledTo = scrollY;

function look() {
  if (scrollY < scrolledTo) follows = belowSight() < 2;
  else if (scrollY > scrolledTo && belowSight() < 2) follows = true;
  scrolledTo = scrollY;
  offerEnd();
}
addEventListener("scroll", look);
// What the reader opens at the end is not scrolled away.
turns.addEventListener("click", () => {
  const before = belowSight();
  requestAnimationFrame(() => { if (belowSight() > before) follows = false; offerEnd(); });
});
const offerEnd = () => { endButton.hidden = follows || belowSight() < innerHeight / 2; };
endButton.addEventListener("click", () => { follows = true; toEnd(); offerEnd(); endButton.blur(); focusField(); });

function element(html) {
  const template = document.createElement("template");
  template.innerHTML = html;                 // made and escaped by the server; the policy lets nothing in it run
  return template.content.firstElementChild;
}

function toEnd() {
  scrollTo({ top: document.documentElement.scrollHeight, behavior: "instant" });
  scrolledTo = scrollY;
}

// The field grows with what is written, and with a message that waits: what stands above it stays in sight.
new ResizeObserver(() => { if (follows) toEnd(); }).observe(composer);

function keepingPlace(change) {
  look();   // the event of a scroll comes a moment after it
  change();
  if (follows) toEnd(); else offerEnd();
}

function put({ id, html, into }) {
  keepingPlace(() => {
    const fresh = element(html);
    const old = document.getElementById(id);
    if (old) {
      keep(old, fresh);
    } else {
      document.getElementById(into)?.append(fresh);
    }
    dress(fresh);
    if (!old && into === "turns") refreshAround();   // a turn has begun: the title, the order of the list
  });
}

// What the reader has opened, typed or focused in a part that is drawn again.
function keep(old, fresh) {
  const focused = old.contains(document.activeElement) ? document.activeElement : null;
  const open = [...old.querySelectorAll("details[open][id]"), ...(old.matches("details[open]") ? [old] : [])].map((each) => each.id);
  const typed = [...old.querySelectorAll("input[id]:not([type=hidden]), textarea[id]")].filter((each) => each.value !== each.defaultValue);
  const selection = focused && "selectionStart" in focused ? [focused.selectionStart, focused.selectionEnd] : null;
  const wasHeading = focused?.closest("[data-ask]");
  const branches = old.querySelector(".branches");   // only the whole page knows them
  if (branches && fresh.matches(".turn") && !fresh.querySelector(".branches")) fresh.querySelector(".body").prepend(branches);
  old.replaceWith(fresh);
  for (const id of open) document.getElementById(id)?.setAttribute("open", "");
  for (const each of typed) { const same = document.getElementById(each.id); if (same) same.value = each.value; }
  if (!focused) return;
  const same = focused.id && document.getElementById(focused.id);
  if (same) {
    same.focus({ preventScroll: true });
    if (selection && same.setSelectionRange && same.type !== "email") { try { same.setSelectionRange(...selection); } catch { /* no text field */ } }
  } else if (wasHeading) {
    message.focus({ preventScroll: true });  // the question is answered and gone
  }
}

function write({ id, blocks, count }) {
  const target = document.getElementById(id);
  if (!target) return;
  keepingPlace(() => {
    for (const [at, html] of blocks) {
      let block = target.children[at];
      if (!block) {
        block = document.createElement("div");
        block.className = "block";
        target.append(block);
      }
      block.innerHTML = html;
    }
    while (target.children.length > count) target.lastElementChild.remove();
  });
}

let stateBefore = { running, asks };   // what the server said last; `running` may be ahead of it

function settle(state) {
  const was = stateBefore;
  stateBefore = { running: state.running, asks: state.asks, mode: state.mode, title: state.title };
  // An approved plan, or another client, has changed it; what is chosen here and not sent yet stays otherwise.
  if (was.mode && state.mode && state.mode !== was.mode) composer.querySelector("[name=mode]").value = state.mode;
  running = state.running;
  asks = state.asks;
  document.getElementById("elsewhere").hidden = state.where !== "elsewhere";
  showRunning(state.where);
  // Spoken once, not with every word.
  if (asks > was.asks) status.textContent = asks === 1 ? "A question waits for you." : `${asks} questions wait for you.`;
  else if (running && !was.running) status.textContent = "Satchel is answering.";
  else if (!running && was.running) status.textContent = "Satchel has answered.";
  if ((!running && was.running) || (was.title !== undefined && state.title !== was.title)) refreshAround();
  if (!running) sendWaiting();
}

// The frame changes with the conversation: the heading, the list of sessions, the counts. Only the newest answer counts.
let refreshes = 0;
async function refreshAround() {
  const number = ++refreshes;
  try {
    const answer = await fetch(inPlace(`/chat/${session}`), { credentials: "same-origin", headers: { accept: "text/html" } });
    if (!answer.ok || answer.redirected) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (number !== refreshes) return;
    for (const id of ["rail-pages", "rail-list", "chat-head"]) {
      const fresh = page.getElementById(id);
      const old = document.getElementById(id);
      if (fresh && old && !old.contains(document.activeElement)) old.replaceWith(document.adoptNode(fresh));
    }
    document.title = page.title;
  } catch { /* the server is down; another part reports that */ }
}

function showRunning(where = "here") {
  const hadFocus = document.activeElement === stopButton;
  stopButton.hidden = !running || where === "elsewhere";
  if (hadFocus && stopButton.hidden) message.focus({ preventScroll: true });
  sendButton.title = running ? "It waits for the end of this turn" : "";
  sendButton.classList.toggle("first", !running);
  turns.dataset.running = running;
}

// ---- What only a script can add to a turn

const shownAt = new Map();   // by question

function dress(root) {
  for (const { value } of root.querySelectorAll("[data-ask] [name=question]")) {
    if (!shownAt.has(value)) shownAt.set(value, performance.now());
  }
  for (const pre of root.querySelectorAll(".said pre:not([data-dressed])")) {
    pre.dataset.dressed = "";
    const bar = document.createElement("div");
    bar.className = "code-bar";
    bar.append(button("Copy", (event) => copy(pre.querySelector("code").textContent, event.currentTarget)));
    if (pre.dataset.lang === "mermaid") drawDiagram(pre, bar);
    if (["html", "svg"].includes(pre.dataset.lang)) bar.append(button("Show", (event) => showMade(pre, pre.dataset.lang, codeOf(pre), event.currentTarget)));
    if (pre.dataset.lang) bar.prepend(Object.assign(document.createElement("span"), { textContent: pre.dataset.lang, className: "meta" }));
    pre.before(bar);
  }
  for (const link of root.querySelectorAll(".made a[download]:not([data-dressed])")) {
    link.dataset.dressed = "";
    const [, kind] = link.textContent.match(/\.(html|svg)$/i) ?? [];
    if (kind) link.after(" ", button("Show", (event) => showMade(link, kind, `${link.href}?framed=1`, event.currentTarget)));
  }
  const feet = root.matches?.("[data-actions]") ? [root] : root.querySelectorAll("[data-actions]:empty");
  for (const foot of feet) {
    const turn = foot.closest(".turn");
    const hasAnswer = answerOf(turn) !== "";
    if (hasAnswer) foot.append(button("Copy", (event) => copyAnswer(turn, event.currentTarget)));
    if (hasAnswer && speak.works) foot.append(button("Read aloud", (event) => readAloud(turn, event.currentTarget)));
    const edit = button("Edit", () => change(turn));
    edit.title = "Puts your message back into the field. Sent, it begins a branch.";
    foot.append(edit);
  }
}

function codeOf(pre) {
  const turn = pre.closest(".turn");
  const at = [...turn.querySelectorAll(".items > .said pre")].indexOf(pre);
  return inPlace(`/chat/${session}/turns/${turn.id.replace("turn-", "")}/code/${at}`);
}

// HTML and SVG of a model or a tool in a frame that reaches nothing; see `FRAMED`.
function showMade(made, kind, src, pressed) {
  const below = made.closest("p") ?? made;
  if (below.nextElementSibling?.matches("iframe.drawn")) {
    below.nextElementSibling.remove();
    pressed.textContent = "Show";
    return;
  }
  const frame = document.createElement("iframe");
  frame.className = "drawn";
  frame.title = `What the ${kind} draws`;
  frame.setAttribute("sandbox", "allow-scripts");
  frame.src = src;
  below.after(frame);
  frame.scrollIntoView({ block: "nearest" });
  pressed.textContent = "Hide";
}

// A diagram of mermaid in place of its source, in a frame that reaches nothing; its script is loaded with the first one.
function drawDiagram(pre, bar) {
  const frame = document.createElement("iframe");
  frame.className = "diagram";
  frame.title = `Diagram: ${pre.textContent.trim().split("\n")[0]}`;
  frame.setAttribute("sandbox", "allow-scripts");
  frame.src = new URL("diagram.html", import.meta.url);
  const toggle = button("Source", () => show(!pre.hidden));
  const show = (isDrawn) => {
    pre.hidden = isDrawn;
    frame.toggleAttribute("data-off", !isDrawn);
    toggle.textContent = isDrawn ? "Source" : "Diagram";
  };
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  const send = () => {
    const chosen = document.documentElement.dataset.theme;
    frame.contentWindow?.postMessage({ code: pre.textContent, dark: chosen ? chosen === "dark" : scheme.matches }, "*");
  };
  const hear = ({ source, data }) => {
    if (!frame.isConnected) { removeEventListener("message", hear); scheme.removeEventListener("change", send); return; }
    if (source !== frame.contentWindow) return;
    if (data.ready) send();
    else keepingPlace(() => {
      if (data.height) {
        frame.style.blockSize = `${Math.ceil(Number(data.height))}px`;
        if (!toggle.isConnected) { bar.append(toggle); show(true); }
      } else {
        frame.remove();
        toggle.remove();
        pre.hidden = false;
        bar.querySelector(".meta").textContent = "mermaid, which can’t be drawn: it has an error, or is of a kind that isn’t known here";
      }
    });
  };
  addEventListener("message", hear);
  scheme.addEventListener("change", send);
  frame.setAttribute("data-off", "");
  pre.after(frame);
}

function button(words, act) {
  const made = Object.assign(document.createElement("button"), { type: "button", textContent: words, className: "plain quiet" });
  made.addEventListener("click", act);
  return made;
}

const answerOf = (turn) => [...turn.querySelectorAll(".items > .said")].map((each) => each.innerText.trim()).join("\n\n");

// As Markdown, which only the server has; the words that stand here if it does not answer.
async function copyAnswer(turn, pressed) {
  let text = answerOf(turn);
  try {
    const answer = await fetch(inPlace(`/chat/${session}/turns/${turn.id.replace("turn-", "")}.md`), { credentials: "same-origin" });
    if (answer.ok) text = await answer.text();
  } catch { /* the words will do */ }
  copy(text, pressed);
}

async function copy(text, pressed) {
  try {
    await navigator.clipboard.writeText(text);
    pressed.textContent = "Copied";
  } catch {
    pressed.textContent = "The browser does not allow it";
  }
  setTimeout(() => { pressed.textContent = "Copy"; }, 2000);
}

function change(turn) {
  message.value = turn.querySelector("[data-said]").textContent;
  message.focus();
  message.setSelectionRange(message.value.length, message.value.length);
  keepDraft();
  composer.dataset.branch = turn.id.replace("turn-", "");
  const told = notice("Your message is in the field again. Sent, it begins a branch from here; what was said stays in this conversation.", "on");
  told.id = "branching";
  told.append(button("Send it at the end instead", () => { unbranch(); message.focus(); }));
  tell(told);
}

function unbranch() {
  delete composer.dataset.branch;
  document.getElementById("branching")?.remove();
}

function tell(...notices) {
  told.replaceChildren(...notices);
  told.scrollIntoView({ block: "nearest" });
}

// ---- Sending

async function post(url, fields) {
  fields.set("form_token", formToken());
  const answer = await fetch(url, {
    method: "POST", body: new URLSearchParams(fields), credentials: "same-origin", headers: { accept: "application/json", "x-form-token": formToken() },
  });
  if (answer.status === 401) { logInAgain(); throw new Error("Log in again."); }
  const said = await answer.json();
  if (!answer.ok) throw new Error(said.detail);
  return said;
}

function show(said) {
  told.replaceChildren();
  if (said.html) { const made = element(said.html); told.append(made); dress(made); told.scrollIntoView({ block: "nearest" }); }
  if (said.mode) composer.querySelector("[name=mode]").value = said.mode;
  if (said.opens) { location.assign(inPlace(said.to)); return; }
  if (said.mark) for (const each of document.querySelectorAll(`[data-memory="${CSS.escape(said.memory)}"]`)) markMemory(each, said);
  if (said.session && said.turn && said.session !== session) begun(said);
  release();
  follow();
}

function markMemory(note, { mark, content }) {
  note.classList.toggle("past", mark !== "changed");
  const words = note.querySelector("summary .said");
  if (mark === "changed") words.textContent = content;
  if (mark === "gone") { words.textContent = "Forgotten"; note.querySelector(".more")?.remove(); }
  if (mark === "past") note.querySelector("summary .meta").textContent = "Held until now";
}

function begun(said) {
  session = said.session;
  turns.dataset.session = session;
  composer.action = inPlace(`/chat/${session}`);
  stopButton.type = "submit";
  stopButton.formNoValidate = true;  // an empty field is no reason not to stop
  stopButton.setAttribute("formaction", inPlace(`/chat/${session}/stop`));
  document.getElementById("first-run")?.remove();
  setAddress(inPlace(`/chat/${session}`));
  const box = composer.querySelector("[name=private]");
  if (box?.checked) box.disabled = true;
  if (!document.getElementById("elsewhere")) {
    const place = document.createElement("div");
    place.id = "elsewhere"; place.hidden = true;
    turns.before(place);
  }
}

const attached = attaching(composer, (words) => tell(notice(words)));

// What another app shared. Any page can post to the worker what apps do, so files are sent to Satchel after a click only.
if (new URLSearchParams(location.search).has("shared") && navigator.serviceWorker) {
  navigator.serviceWorker.addEventListener("message", ({ data: { shared } }) => {
    if (!shared) { tell(notice("What was shared did not arrive. Share it again.", "warn")); return; }
    // Beneath a draft, which stays; what nobody touched is not kept as one.
    if (shared.text) message.value = [message.value, shared.text].filter(Boolean).join("\n");
    if (!shared.files.length) return;
    const said = notice(`Another app shared ${shared.files.map((file) => file.name).join(", ")}.`, "asks");
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Attach";
    button.addEventListener("click", () => { said.remove(); attached.add(shared.files); });
    said.append(button);
    tell(said);
  });
  navigator.serviceWorker.startMessages();
  navigator.serviceWorker.ready.then((worker) => worker.active.postMessage("shared"));
  setAddress(inPlace("/"));
}

async function send(text, { shows = true } = {}) {
  const fields = new FormData(composer);
  fields.set("message", text);
  message.value = "";
  if (text.startsWith("/")) fields.delete("attached");
  keepDraft();
  running = running || !text.startsWith("/");
  showRunning();
  try {
    const branch = text.startsWith("/") ? "" : composer.dataset.branch ?? "";
    if (branch) fields.set("turn", branch);
    const said = await post(session ? inPlace(`/chat/${session}${branch && "/branch"}`) : inPlace("/chat"), fields);
    if (!text.startsWith("/")) attached.clear();
    if (!said.turn) { running = false; showRunning(); }
    if (shows) show(said);
    if (session && !said.turn) refreshAround();   // a command may have changed the title
    follows = true;
    toEnd();
  } catch (error) {
    running = false;
    showRunning();
    if (!message.value) { message.value = text; keepDraft(); }
    tell(notice(error instanceof TypeError ? "Satchel does not answer. Your message is still in the field." : error.message));
    release();
    follow();
  }
}

composer.addEventListener("submit", async (event) => {
  event.preventDefault();
  if (event.submitter === stopButton) { stop(); return; }
  const text = message.value.trim();
  if (!text && !attached.count) return;
  if (attached.isBusy) { tell(notice("A file is still being sent.")); return; }
  hideCommands();
  if (running && answers(text)) return;
  if (running && text && !text.startsWith("/")) { wait(text); return; }
  await send(text);
});

const plainWords = JSON.parse(document.getElementById("composer").dataset.words);

// A plain yes or no answers what is asked for permission, once it can have been read; until then it stays in the field.
function answers(text) {
  const plain = text.toLowerCase().replace(/[ .!。！]+$/, "").replace(/^([yn])\1+/, "$1").split(/\s+/).join(" ");
  const yes = plainWords.yes.includes(plain);
  if (!yes && !plainWords.no.includes(plain)) return false;
  const buttons = [...turns.querySelectorAll(`[data-ask] [name=consent][value=${yes ? "once" : "no"}]`)];
  const button = buttons.find((each) => !each.disabled);   // the others are being answered
  if (!button || performance.now() - shownAt.get(button.form.elements.question.value) < 500) return buttons.length > 0;
  message.value = "";
  keepDraft();
  button.form.requestSubmit(button);
  return true;
}

async function stop() {
  if (!session || !running) return;
  try { await post(inPlace(`/chat/${session}/stop`), new FormData()); } catch (error) { tell(notice(error.message)); }
}

// One message may wait for the end of the turn.
function wait(text) {
  const before = waiting.dataset.text;
  waiting.dataset.text = before ? `${before}\n\n${text}` : text;
  document.getElementById("waiting-words").textContent = waiting.dataset.text;
  waiting.hidden = false;
  message.value = "";
  keepDraft();
}

function sendWaiting() {
  const text = waiting.dataset.text;
  if (!text || running) return;
  delete waiting.dataset.text;
  waiting.hidden = true;
  send(text);
}

document.getElementById("take-back").addEventListener("click", () => {
  message.value = [waiting.dataset.text, message.value].filter(Boolean).join("\n\n");
  delete waiting.dataset.text;
  waiting.hidden = true;
  message.focus();
  keepDraft();
});

// Forms in turns and in what was told: answers to questions, memories, undo.
document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (form === composer || !form.closest("#turns, #told, #preface, [data-start]") || (form.getAttribute("method") ?? "").toLowerCase() !== "post") return;
  event.preventDefault();
  const fields = new FormData(form, event.submitter);
  const buttons = form.querySelectorAll("button");
  buttons.forEach((each) => { each.disabled = true; });
  try {
    const said = await post(form.getAttribute("action"), fields);
    show(said);
    if (form.closest("#told") && !said.html) told.replaceChildren();
  } catch (error) {
    tell(notice(error instanceof TypeError ? "Satchel does not answer." : error.message));
  } finally {
    buttons.forEach((each) => { each.disabled = false; });
    // A button that can't be pressed has lost the focus.
    if (document.activeElement === document.body) (told.querySelector("button") ?? event.submitter)?.focus({ preventScroll: true });
    focusField();
  }
});

// ---- The field

const draftKey = () => `draft:${session || "new"}`;

function keepDraft() {
  try {
    if (message.value) localStorage.setItem(draftKey(), message.value);
    else localStorage.removeItem(draftKey());
  } catch { /* storage is off: the field itself still has the words */ }
}

function restoreDraft() {
  try { if (!message.value) message.value = localStorage.getItem(draftKey()) ?? ""; } catch { /* as above */ }
}

message.addEventListener("input", () => { keepDraft(); offerCommands(); if (!message.value) unbranch(); });

message.addEventListener("keydown", (event) => {
  if (event.isComposing) return;             // an input method is choosing characters
  if (!commands.hidden && commandKeys(event)) return;
  if (event.key === "Enter" && !event.shiftKey && !event.ctrlKey && !event.metaKey && !event.altKey && !matchMedia("(pointer: coarse)").matches) {
    event.preventDefault();
    composer.requestSubmit(sendButton);
  } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    composer.requestSubmit(sendButton);
  }
});

document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || event.defaultPrevented || !running) return;
  if (document.querySelector(":popover-open, dialog[open]")) return;
  event.preventDefault();
  stop();
});

// ---- Commands

const commands = document.getElementById("commands");
const options = [...commands.querySelectorAll("[role=option]")];
message.setAttribute("aria-controls", "commands");

function offerCommands() {
  const found = /^\/([a-z]*)$/i.exec(message.value);
  if (!found) { hideCommands(); return; }
  const fitting = options.filter((each) => { each.hidden = !each.dataset.name.startsWith(found[1].toLowerCase()); return !each.hidden; });
  commands.hidden = fitting.length === 0;
  choose(fitting[0]);
}

function choose(option) {
  for (const each of options) each.setAttribute("aria-selected", each === option);
  if (option) { message.setAttribute("aria-activedescendant", option.id); option.scrollIntoView({ block: "nearest" }); }
  else message.removeAttribute("aria-activedescendant");
}

function hideCommands() { commands.hidden = true; choose(null); }

function commandKeys(event) {
  const fitting = options.filter((each) => !each.hidden);
  const at = fitting.findIndex((each) => each.getAttribute("aria-selected") === "true");
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    choose(fitting[(at + (event.key === "ArrowDown" ? 1 : -1) + fitting.length) % fitting.length]);
    return true;
  }
  if (event.key === "Escape") { event.preventDefault(); hideCommands(); return true; }
  if (event.key === "Tab" || (event.key === "Enter" && fitting[at] && `/${fitting[at].dataset.name}` !== message.value.trim())) {
    event.preventDefault();
    take(fitting[at]);
    return true;
  }
  return false;
}

function take(option) {
  message.value = `/${option.dataset.name} `;
  hideCommands();
  message.focus();
  keepDraft();
}

commands.addEventListener("mousedown", (event) => {
  const option = event.target.closest("[role=option]");
  if (option) { event.preventDefault(); take(option); }
});

// ---- Voice

const dictateButton = document.getElementById("dictate");
const heard = document.getElementById("heard");
dictate.attach(dictateButton, heard, (words) => {
  message.value = [message.value.trimEnd(), words].filter(Boolean).join(" ");
  keepDraft();
});

function readAloud(turn, pressed) {
  speak.toggle(answerOf(turn), (state, words) => {
    pressed.textContent = state === "speaking" ? "Stop reading" : "Read aloud";
    if (state === "failed") tell(notice(speechSynthesis.getVoices().length ? `Reading aloud failed: ${words}` : "This browser has no voice to read with."));
  });
}

// ---- Begin

dress(document);
showRunning(document.getElementById("elsewhere")?.hidden === false ? "elsewhere" : "here");
restoreDraft();
focusField();
addEventListener("load", () => setTimeout(focusField));   // going to a turn that the address names takes the focus away
if (session && !location.hash && turns.childElementCount) toEnd();
follows = belowSight() < 2;
follow();
