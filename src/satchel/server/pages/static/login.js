// Leads a browser that is logged in to its place, which page.js keeps for this origin alone. The server can't do it: the
// cookie is sent to the place only. A place that has ended is forgotten, and a problem is read first.
const place = localStorage.getItem("place");
if (new URLSearchParams(location.search).has("ended")) {
  localStorage.removeItem("place");
  navigator.serviceWorker?.getRegistrations().then((all) => all.forEach((each) => each.unregister()));
}
else if (place && !document.querySelector('[role="alert"]')) location.replace(place + document.querySelector('[name="next"]').value);
