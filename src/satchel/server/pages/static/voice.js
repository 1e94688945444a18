// Voice by the Web Speech API. Where the browser lacks it, nothing is shown; the text path is always there.

const Recognition = window.SpeechRecognition ?? window.webkitSpeechRecognition;

const WHY = {
  "not-allowed": "The browser may not use the microphone. Allow it for this page and try again.",
  "service-not-allowed": "The browser does not allow speech recognition here.",
  "audio-capture": "No microphone was found.",
  network: "The browser’s speech service can’t be reached. Type instead.",
  "no-speech": "Nothing was heard.",
  "language-not-supported": "The browser can’t recognise this language.",
};

export const dictate = {
  attach(button, state, take) {
    if (!Recognition) return;
    button.hidden = false;
    button.title = "Speak instead of typing. Most browsers send the sound to a service of their maker.";
    let running = null;
    const say = (words) => { state.textContent = words; state.hidden = !words; };
    const end = () => { running = null; button.setAttribute("aria-pressed", "false"); button.textContent = "Dictate"; };
    button.addEventListener("click", () => {
      if (running) { running.stop(); return; }
      running = new Recognition();
      running.lang = navigator.language;
      running.interimResults = true;
      running.continuous = true;
      let failed = "";
      running.onstart = () => { button.setAttribute("aria-pressed", "true"); button.textContent = "Stop dictating"; say("Listening …"); };
      running.onresult = (event) => {
        let interim = "";
        for (let at = event.resultIndex; at < event.results.length; at += 1) {
          const result = event.results[at];
          if (result.isFinal) take(result[0].transcript.trim());
          else interim += result[0].transcript;
        }
        say(interim ? `Listening: ${interim}` : "Listening …");
      };
      running.onerror = (event) => { failed = event.error === "aborted" ? "" : WHY[event.error] ?? `Dictation failed: ${event.error}.`; };
      running.onend = () => { end(); say(failed); };
      try { running.start(); } catch (error) { end(); say(`Dictation failed: ${error.message}.`); }
    });
    addEventListener("pagehide", () => running?.abort());
  },
};

let spoken = null;   // what ends the present reading

export const speak = {
  works: "speechSynthesis" in window && "SpeechSynthesisUtterance" in window,
  toggle(text, tell) {
    const mine = spoken?.tell === tell || spoken?.text === text;
    spoken?.end();
    if (mine || !text) return;
    const utterance = new SpeechSynthesisUtterance(text);
    const end = (state, words = "") => {
      if (spoken?.utterance !== utterance) return;
      spoken = null;
      tell(state, words);
    };
    spoken = { utterance, text, tell, end: () => { end("done"); speechSynthesis.cancel(); } };
    utterance.lang = document.documentElement.lang;
    utterance.onend = () => end("done");
    utterance.onerror = (event) => end(["canceled", "interrupted"].includes(event.error) ? "done" : "failed", event.error);
    tell("speaking", "");
    speechSynthesis.speak(utterance);
  },
};

if (speak.works) addEventListener("pagehide", () => speechSynthesis.cancel());
