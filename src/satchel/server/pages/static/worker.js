// Takes what other apps share with the installed pages: their POST has no cookie of a browser's place, so the server
// can't. It goes to the page of a new conversation, from memory: nothing is cached, and no other request comes by here.

let shared = null;

addEventListener("install", (event) => event.addRoutes?.({ condition: { requestMethod: "GET" }, source: "network" }));

addEventListener("fetch", (event) => {
  if (event.request.method !== "POST" || new URL(event.request.url).pathname !== "/share") return;
  event.respondWith((async () => {
    const form = await event.request.formData();
    const words = ["title", "text", "url"].map((name) => form.get(name)).filter(Boolean);
    shared = { text: [...new Set(words)].join("\n"), files: form.getAll("files") };
    return Response.redirect("/?shared", 303);
  })());
});

addEventListener("message", (event) => {
  event.source.postMessage({ shared });
  shared = null;
});
