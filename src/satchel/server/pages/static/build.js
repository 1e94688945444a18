// A build, a login that goes on elsewhere, or an import: looks for news every two seconds while it goes on and the page is seen. An
// answer that is being typed is never taken away.
import { swap } from "./page.js";

const EVERY_MS = 2000;

const here = () => document.querySelector("#build, #server, #importing");

function isBusy(build) {
  if (build.contains(document.activeElement) && document.activeElement.matches("input, textarea, button")) return true;
  return [...build.querySelectorAll('input:not([type="hidden"])')].some((field) => field.value);
}

async function look() {
  const build = here();
  if (!build?.hasAttribute("data-running")) return;
  if (document.visibilityState === "visible" && !isBusy(build)) await swap(location.pathname, `#${build.id}`);
  setTimeout(look, EVERY_MS);
}

setTimeout(look, EVERY_MS);
