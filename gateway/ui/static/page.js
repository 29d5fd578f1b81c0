// Keeps the live parts of a page as the gateway draws them. Without it, pages are whole and load themselves again.
const body = document.body;

function keyOf(node) {
  return node.nodeType === 1 ? `${node.tagName}#${node.id}` : String(node.nodeType);
}

// Makes `now` look like `next` with as few changes as may be, so that the focus, a selection and open parts stay.
function morph(now, next) {
  if (now.nodeType === 1) {
    for (const { name } of [...now.attributes]) {
      if (!next.hasAttribute(name) && !(now.tagName === "DETAILS" && name === "open")) now.removeAttribute(name);
    }
    for (const { name, value } of next.attributes) {
      if (now.getAttribute(name) !== value) now.setAttribute(name, value);
    }
    morphChildren(now, next);
  } else if (now.nodeValue !== next.nodeValue) {
    now.nodeValue = next.nodeValue;
  }
}

function morphChildren(now, next) {
  const wanted = [...next.childNodes];
  wanted.forEach((child, place) => {
    const there = now.childNodes[place];
    if (there === undefined) now.appendChild(child);
    else if (keyOf(there) === keyOf(child)) morph(there, child);
    else there.replaceWith(child);
  });
  while (now.childNodes.length > wanted.length) now.lastChild.remove();
}

function show(parts) {
  for (const [name, html] of Object.entries(parts)) {
    const region = document.querySelector(`[data-region="${CSS.escape(name)}"]`);
    if (region === null) continue;
    const drawn = document.createElement("template");
    drawn.innerHTML = html;
    morphChildren(region, drawn.content);
  }
}

function says(text, state) {
  const place = document.querySelector("[data-stream]");
  if (place !== null && place.textContent !== text) {
    place.textContent = text;
    place.dataset.state = state;
  }
  const isLost = state === "lost";
  if (isLost === body.classList.contains("lost")) return;
  body.classList.toggle("lost", isLost);
  const old = document.querySelector("[data-lost]");
  old.hidden = !isLost;
  old.querySelector("[data-heard]").textContent = new Date(heard).toISOString().slice(0, 19).replace("T", " ");
}

const SILENCE_MS = 20000;
let source = null;
let heard = 0;

function follow() {
  source = new EventSource(body.dataset.live);
  heard = Date.now();
  source.addEventListener("page", (event) => {
    heard = Date.now();
    says("live", "live");
    show(JSON.parse(event.data));
  });
  source.addEventListener("error", () => {
    says("no answer", "lost");
    if (source.readyState === EventSource.CLOSED) setTimeout(again, 2000);
  });
}

// The stream was refused or ended: the page itself says why, as the way to the log-in does.
async function again() {
  try {
    const answer = await fetch(location.href, { credentials: "same-origin", cache: "no-store" });
    if (answer.redirected) location.assign(answer.url);
    else follow();
  } catch {
    setTimeout(again, 2000);
  }
}

if (body.dataset.live) {
  follow();
  setInterval(() => {
    if (Date.now() - heard > SILENCE_MS) says("no answer", "lost");
  }, 1000);
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (button === null) return;
  await navigator.clipboard.writeText(button.dataset.copy);
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
});
