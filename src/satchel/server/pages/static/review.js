// One key for each choice in the review: it presses what has the key as its data-key.

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || event.target.closest("input, textarea, select, dialog")) return;
  const choice = document.querySelector(`[data-key="${CSS.escape(event.key.toLowerCase())}"]`);
  if (!choice) return;
  event.preventDefault();
  choice.click();
  if (!choice.matches("summary") || !choice.parentElement.open) return;
  const words = choice.parentElement.querySelector("textarea");
  words.focus();
  words.setSelectionRange(words.value.length, words.value.length);
});
