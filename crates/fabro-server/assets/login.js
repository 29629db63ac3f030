// Exchanges the token of the address for a cookie, and removes it from the address and the history.
const state = document.getElementById("state");
const token = new URLSearchParams(location.hash.slice(1)).get("token");
if (token) {
  history.replaceState(null, "", location.pathname + location.search);
  const response = await fetch("/api/v1/session", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ token }),
  });
  const body = await response.json();
  if (response.ok) {
    state.textContent = `You are logged in with the role ${body.role}.`;
  } else {
    state.textContent = `${body.detail}: ${body.fix}.`;
  }
}
