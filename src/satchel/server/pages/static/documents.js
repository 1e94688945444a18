// Documents to remember: picked or dropped, and sent one after another.

import { formToken, inPlace } from "./page.js";

const MOST_BYTES = 15 * 1024 * 1024;
const picker = document.getElementById("files");
const button = document.getElementById("remember");
const progress = document.getElementById("progress");

button.hidden = false;
button.addEventListener("click", () => picker.click());
picker.addEventListener("change", () => send([...picker.files]));
for (const kind of ["dragover", "drop"]) document.addEventListener(kind, (event) => {
  if (!event.dataTransfer?.types.includes("Files")) return;
  event.preventDefault();
  if (kind === "drop" && !button.disabled) send([...event.dataTransfer.files]);
});

async function send(files) {
  button.disabled = true;
  const problems = [];
  for (const [at, file] of files.entries()) {
    progress.textContent = `Reading ${file.name}, ${at + 1} of ${files.length}`;
    try { await one(file); } catch (error) {
      problems.push(error instanceof TypeError ? `Satchel does not answer. ${file.name} was not remembered.` : error.message);
    }
  }
  picker.value = "";
  button.disabled = false;
  if (!problems.length) { location.reload(); return; }
  const others = files.length - problems.length;
  progress.textContent = problems.join(" ") + (others ? ` The other ${others === 1 ? "one is" : `${others} are`} remembered: load the page again to see.` : "");
}

async function one(file) {
  if (file.size > MOST_BYTES) throw new Error(`${file.name} has more than ${MOST_BYTES / 1024 / 1024} MB.`);
  const answer = await fetch(inPlace(`/api/memory/documents/sent?filename=${encodeURIComponent(file.name)}&project=${button.dataset.project}`), {
    method: "POST", body: file, credentials: "same-origin",
    headers: { accept: "application/json", "content-type": "application/octet-stream", "x-form-token": formToken() },
  });
  if (!answer.ok) throw new Error((await answer.json()).detail);
}
