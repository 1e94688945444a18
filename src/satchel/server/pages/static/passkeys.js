// Makes a passkey on its page, and logs in with one. Browsers offer them on pages over HTTPS and on localhost only.
const error = document.querySelector("#passkey-error");
const begin = document.querySelector("#with-passkey");
const form = document.querySelector("#add-passkey");

async function post(path, body) {
  const answer = await fetch(path, {
    method: "POST", body: JSON.stringify(body ?? {}), headers: { "content-type": "application/json" },
  });
  const said = answer.headers.get("content-type")?.includes("json") ? await answer.json() : {};
  if (!answer.ok) throw new Error(said.detail ?? "It was refused. Try again later.");
  return said;
}

// Browsers say these in words for programmers.
const words = {
  NotAllowedError: "No passkey was used: it was cancelled, or this device has none for this address.",
  InvalidStateError: "This device has a passkey here already.",
  SecurityError: `Passkeys belong to a name, such as localhost: there are none for ${location.hostname}.`,
};

async function tried(work) {
  error.hidden = true;
  try { await work(); }
  catch (problem) {
    error.textContent = words[problem.name] ?? problem.message;
    error.hidden = false;
  }
}

if (window.PublicKeyCredential?.parseRequestOptionsFromJSON) {
  if (begin) {
    begin.hidden = false;
    begin.addEventListener("click", () => tried(async () => {
      const publicKey = PublicKeyCredential.parseRequestOptionsFromJSON(await post("/login/passkey/begin"));
      const credential = await navigator.credentials.get({ publicKey });
      const next = encodeURIComponent(document.querySelector('[name="next"]').value);
      location.replace((await post(`/login/passkey?next=${next}`, { credential: credential.toJSON() })).path);
    }));
  }
  if (form) {
    const here = location.pathname;
    form.querySelector("button").disabled = false;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      tried(async () => {
        const publicKey = PublicKeyCredential.parseCreationOptionsFromJSON(await post(`${here}/begin`));
        const credential = await navigator.credentials.create({ publicKey });
        await post(`${here}/add`, { name: form.querySelector("#key-name").value, credential: credential.toJSON() });
        location.reload();
      });
    });
  }
}
