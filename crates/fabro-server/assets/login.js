// Exchanges the token of the address for a cookie, and removes it from the address and the history.
const state = /** @type {HTMLElement} */ (document.getElementById("state"));

async function login() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!token) return;
  history.replaceState(null, "", location.pathname + location.search);
  const response = await fetch("/api/v1/session", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ token }),
  });
  if (response.ok) {
    location.reload();
    return;
  }
  const body = await response.json();
  state.textContent = `${body.detail}: ${body.fix}.`;
  state.hidden = false;
}

addEventListener("hashchange", login);
await login();

export {};
