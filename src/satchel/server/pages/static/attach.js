// Files for the next message: picked, pasted or dropped. Each is sent at once and waits as a chip beside the field; the
// form names it. Pictures that are larger than models take are made smaller here.

import { formToken, inPlace } from "./page.js";

const MOST_PICTURE = 3_500_000;
const LONGEST_SIDE = 2000;

export function attaching(composer, say) {
  const list = composer.querySelector("#attached");
  const mostBytes = Number(list.dataset.mostBytes);
  const mostFiles = Number(list.dataset.mostFiles);
  composer.querySelector("#limits").hidden = false;
  for (const [from, by] of [["#files", "#attach"], ["#camera", "#photo"]]) {
    const picker = composer.querySelector(from);
    const button = composer.querySelector(by);
    button.hidden = false;
    button.addEventListener("click", () => picker.click());
    picker.addEventListener("change", () => { add(picker.files); picker.value = ""; });
  }
  composer.addEventListener("paste", (event) => {
    if (!event.clipboardData.files.length) return;
    event.preventDefault();
    add(event.clipboardData.files);
  });
  for (const kind of ["dragover", "drop"]) document.addEventListener(kind, (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    if (kind === "drop") add(event.dataTransfer.files);
  });

  function add(files) {
    for (const file of files) {
      if (list.childElementCount >= mostFiles) { say(`A message may have ${mostFiles} files at most.`); return; }
      one(file);
    }
  }

  async function one(file) {
    const chip = document.createElement("li");
    const name = document.createElement("span");
    const away = document.createElement("button");
    name.textContent = file.name;
    away.type = "button";
    away.className = "plain quiet";
    away.textContent = "Remove";
    away.setAttribute("aria-label", `Remove ${file.name}`);
    const sent = document.createElement("progress");
    sent.setAttribute("aria-label", `Sending ${file.name}`);
    const request = new XMLHttpRequest(); // fetch does not say how much has gone out
    away.addEventListener("click", () => { chip.remove(); request.abort(); composer.querySelector("#attach").focus(); });
    chip.append(name, sent, away);
    chip.setAttribute("aria-busy", "true");
    list.append(chip);
    try {
      const bytes = await fitted(file, chip);
      if (bytes.size > mostBytes) throw new Error(`${file.name} has more than ${mostBytes / 1024 / 1024} MB.`);
      if (!chip.isConnected) return;
      const said = await posted(request, `/api/attachments?filename=${encodeURIComponent(file.name)}`, bytes, sent);
      if (request.status !== 201) throw new Error(said.detail);
      sent.remove();
      const field = document.createElement("input");
      field.type = "hidden";
      field.name = "attached";
      field.value = JSON.stringify({ sha256: said.sha256, filename: said.filename });
      chip.append(field);
      chip.removeAttribute("aria-busy");
    } catch (error) {
      chip.remove();
      say(error instanceof TypeError ? "Satchel does not answer. The file was not sent." : error.message);
    }
  }

  return {
    add,
    get count() { return list.childElementCount; },
    get isBusy() { return list.querySelector("[aria-busy]") !== null; },
    clear() { list.replaceChildren(); },
  };
}

// The answer to bytes that are sent; the element shows how many have gone out.
function posted(request, path, bytes, shown) {
  return new Promise((done, failed) => {
    request.upload.addEventListener("progress", (event) => { shown.max = event.total; shown.value = event.loaded; });
    request.addEventListener("load", () => {
      try { done(JSON.parse(request.responseText)); } catch { failed(new TypeError()); }
    });
    request.addEventListener("error", () => failed(new TypeError()));
    request.open("POST", inPlace(path));
    for (const [name, value] of [["accept", "application/json"], ["content-type", "application/octet-stream"], ["x-form-token", formToken()]]) {
      request.setRequestHeader(name, value);
    }
    request.send(bytes);
  });
}

// The file, or a smaller picture in its place; also draws what it shows.
async function fitted(file, chip) {
  if (!/^image\/(png|jpeg|webp|gif)$/.test(file.type)) return file;
  let picture;
  try { picture = await createImageBitmap(file); } catch { return file; }
  const draw = (longest) => {
    const scale = Math.min(1, longest / Math.max(picture.width, picture.height));
    const canvas = document.createElement("canvas");
    canvas.width = Math.max(1, Math.round(picture.width * scale));
    canvas.height = Math.max(1, Math.round(picture.height * scale));
    canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
    return canvas;
  };
  const small = draw(96);
  small.setAttribute("aria-hidden", "true");
  chip.prepend(small);
  if (file.size <= MOST_PICTURE || file.type === "image/gif") return file;
  return await new Promise((done) => draw(LONGEST_SIDE).toBlob((made) => done(made ?? file), "image/jpeg", 0.85));
}
